"""Operators that move, select, join or convert elements."""
