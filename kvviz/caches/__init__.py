"""Readers of KV caches: what their rows hold, what they cost, and what is wrong with them."""
