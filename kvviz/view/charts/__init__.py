"""Charts with matplotlib, and still pictures."""
