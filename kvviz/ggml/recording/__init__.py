"""Graphs of a real ggml: recordings, DOT files, and recording out of a running llama.cpp."""
