"""A tester from outside: models of its own, and all that the public names of kvviz promise, checked on them."""
