"""Summaries of the values that a run computed."""
