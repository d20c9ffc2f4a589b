"""A trace in a file: written, read, and checked."""
