"""The text of TTNN's IR: read, and drawn as a trace."""
