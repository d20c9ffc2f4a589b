"""The rules of rten (commit c7f7bad9, after v0.25.0): which ops may run in place, when they do, where outputs live."""
