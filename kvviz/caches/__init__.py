"""Readers of KV caches: what their rows hold, what they cost, and what is wrong with them.

``heat(trace, cache, run)`` is the state of every row, ``attention(trace, cache, run)`` what a query weighed.
"""

from kvviz.caches.cache_heat import Heat, attention, heat

__all__ = ["Heat", "attention", "heat"]
