"""The version of kvviz, which files and reports state."""

VERSION = "0.1.0"
