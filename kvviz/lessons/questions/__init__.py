"""Questions that the engine grades."""
