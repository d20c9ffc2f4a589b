"""Which inputs and outputs of a graph are a cache."""
