"""Reading models from files, and refusing what cannot be trusted."""
