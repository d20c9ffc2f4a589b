"""Types and shapes before anything runs."""
