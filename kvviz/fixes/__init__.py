"""Changes that need less memory, among them the order of least peak, with a lower bound for all orders."""
