"""Bodies of If, Loop, Scan and local functions."""
