"""Parts of a comparison: which steps correspond, where two traces differ, and whether their outputs agree."""
