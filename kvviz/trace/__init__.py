"""The trace as data: a log of named events that any producer can write and every reader reads."""
