"""Functions of elements, norms, reductions and products."""
