"""Parts of a comparison: which steps belong together, where two traces part, and whether their outputs agree."""
