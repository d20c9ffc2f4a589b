"""The version of kvviz, for what says by which one it was made."""

VERSION = "0.1.0"
