"""How a kernel says that a rare variant of its operator is not its own."""

from __future__ import annotations


class Decline(Exception):
    """This variant is left to the reference evaluator's kernel. The engine catches it and falls back."""
