"""Layouts and drawings of graphs."""
