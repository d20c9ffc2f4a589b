"""What a trace means: reasons, fixes, costs, comparisons. ``kvviz.explain(trace)`` is the report of all of it."""
