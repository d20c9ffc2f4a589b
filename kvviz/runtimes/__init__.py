"""The rules of the runtimes that kvviz reproduces: order, in-place rules, plans, pools."""
