"""A graph in parts: modules, layers, blocks."""
