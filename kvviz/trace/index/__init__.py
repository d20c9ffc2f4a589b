"""Answers about all values and storages of a log, computed once."""
