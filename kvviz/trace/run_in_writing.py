"""A run of a trace while `kvviz.trace.writer` writes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.graph.model import Node
from kvviz.trace.element_types import BLOCKS, nbytes
from kvviz.trace.events import Bind
from kvviz.trace.regions import Region


class RunInWriting:
    """A run while it is written.

    ``first``: its first step. ``bound``: what it began with, by value. ``made``: values. ``rows``: what each op did.
    ``views``: of each op the inputs that an output is a view of.
    """

    __slots__ = ("bound", "first", "made", "names", "nodes", "peak", "rows", "text", "views")

    def __init__(self, first: int, text: str) -> None:
        self.first = first
        self.text = text
        self.bound: dict[int, Bind] = {}
        self.made: set[int] = set()
        self.nodes: list[Node] = []
        self.rows: list[tuple[Any, ...]] = []
        self.views: list[tuple[int, ...]] = []
        self.names: dict[str, int] = {}
        self.peak = 0


def stored_bytes(region: Region) -> int:
    """Bytes of the elements of a region."""
    return nbytes(region.shape, region.dtype) * (1 if region.rows is None else len(region.rows))


def numpy_type(dtype: Any) -> np.dtype | None:
    """NumPy's type of an element type; None for block types."""
    return None if dtype in BLOCKS else np.dtype(dtype)
