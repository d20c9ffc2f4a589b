"""Sessions, and what runs a trace again: replay, recipes, previews."""
