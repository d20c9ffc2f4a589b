"""Changes that need less memory: the order of least peak, with a bound that no order beats."""
