"""ggml: graphs built and run with its semantics, recordings of real ones, and the hidden dependencies in both."""
