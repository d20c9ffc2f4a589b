"""One language to find steps: read here and in the page from one table, so that both find the same."""
