"""What a runtime does on this machine, beside what kvviz says that it does."""
