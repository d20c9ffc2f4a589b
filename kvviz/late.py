"""Functions of higher layers, found by name when they are called: what holds data does not import what draws it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def late(place: str) -> Any:
    """The function at ``package.module:function`` of kvviz."""
    module, _, function = place.partition(":")
    return getattr(import_module(f"kvviz.{module}"), function)
