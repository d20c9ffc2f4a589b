"""A trace as the bytes that the page reads."""
