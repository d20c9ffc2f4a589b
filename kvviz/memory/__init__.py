"""What a run works on: storages, views and the room that a cache may grow into."""

from kvviz.memory.storage import reserve

__all__ = ["reserve"]
