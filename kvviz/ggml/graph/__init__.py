"""Tensors and node lists: building graphs, running them on NumPy, and writing what they do to a trace."""
