"""Kernels beside the numeric ones: ghosts and recorded answers."""
