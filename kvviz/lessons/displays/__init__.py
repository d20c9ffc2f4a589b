"""Charts, tables and animations of the lessons."""
