"""Writing a trace by hand, for any runtime."""
