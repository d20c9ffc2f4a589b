"""Policies, and the plans that are made under them."""
