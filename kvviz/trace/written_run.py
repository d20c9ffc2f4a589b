"""A run while it is written by hand, and the names in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kvviz.graph.model import Node
from kvviz.trace.element_types import BLOCKS, nbytes
from kvviz.trace.events import Bind
from kvviz.trace.regions import Region


class WrittenRun:
    """A run while it is written.

    ``first``: its first step. ``bound``: what it began with, by value. ``made``: values. ``nodes``: in the order in
      which they ran; ``positions``: their places in the program. ``rows``: what each op did. ``views``: of each op the
      inputs that an output is a view of.
    """

    __slots__ = ("bound", "first", "made", "names", "nodes", "peak", "positions", "rows", "text", "views")

    def __init__(self, first: int, text: str) -> None:
        self.first = first
        self.text = text
        self.bound: dict[int, Bind] = {}
        self.made: set[int] = set()
        self.nodes: list[Node] = []
        self.positions: list[int] = []
        self.rows: list[tuple[Any, ...]] = []
        self.views: list[tuple[int, ...]] = []
        self.names: dict[str, int] = {}
        self.peak = 0

    def in_program(self) -> tuple[list[int], tuple[Node, ...], list[tuple[int, ...]]]:
        """The place of each op in the program, counted without gaps; the nodes and their views in that order."""
        order = sorted(range(len(self.positions)), key=self.positions.__getitem__)
        places = [0] * len(order)
        for place, op in enumerate(order):
            places[op] = place
        if order == places == list(range(len(order))):
            return places, tuple(self.nodes), self.views
        nodes = tuple(replace(self.nodes[op], index=place) for place, op in enumerate(order))
        return places, nodes, [self.views[op] for op in order]


def unique_name(name: str, taken: dict[str, int]) -> str:
    """A name that is given once: the second ``k`` is ``k#2``, or, where something is called so already, ``k#3``."""
    times = taken.get(name, 0) + 1
    label = name
    while times > 1 and (label := f"{name}#{times}") in taken:
        times += 1
    taken[name] = times
    taken.setdefault(label, 1)
    return label


def stored_bytes(region: Region) -> int:
    """Bytes of the elements of a region."""
    return nbytes(region.shape, region.dtype) * (1 if region.rows is None else len(region.rows))


def numpy_type(dtype: Any) -> np.dtype | None:
    """NumPy's type of an element type; None for block types."""
    return None if dtype in BLOCKS else np.dtype(dtype)
