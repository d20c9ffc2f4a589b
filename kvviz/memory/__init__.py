"""Storages, views, and reserved room for growing caches."""

from kvviz.memory.storage import reserve

__all__ = ["reserve"]
