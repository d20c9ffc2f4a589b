"""A run while it is written by hand, and the names in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvviz.graph.model import Node
from kvviz.trace.element_types import nbytes
from kvviz.trace.events import Bind
from kvviz.trace.regions import Region


class WrittenRun:
    """What ops of a run were told: nodes in the order in which they ran, their places in the program, and rows."""

    __slots__ = ("bound", "first", "made", "names", "nodes", "peak", "positions", "rows", "text")

    def __init__(self, first: int, text: str) -> None:
        self.first = first
        self.text = text
        self.bound: dict[int, Bind] = {}
        self.made: set[int] = set()
        self.nodes: list[Node] = []
        self.positions: list[int] = []
        self.rows: list[tuple[Any, ...]] = []
        self.names: dict[str, int] = {}
        self.peak = 0

    def in_program(self) -> tuple[list[int], tuple[Node, ...]]:
        """The place of each op in the program, counted without gaps, and the nodes in that order."""
        order = sorted(range(len(self.positions)), key=self.positions.__getitem__)
        places = [0] * len(order)
        for place, op in enumerate(order):
            places[op] = place
        if order == places == list(range(len(order))):
            return places, tuple(self.nodes)
        return places, tuple(replace(self.nodes[op], index=place) for place, op in enumerate(order))


def unique_name(name: str, taken: dict[str, int]) -> str:
    """A name that is given once: the second ``k`` is ``k#2``, or, where something is called so already, ``k#3``."""
    times = taken.get(name, 0) + 1
    label = name
    while times > 1 and (label := f"{name}#{times}") in taken:
        times += 1
    taken[name] = times
    taken.setdefault(label, 1)
    return label


def stored(region: Region) -> int:
    """Bytes of the elements of a region."""
    return nbytes(region.shape, region.dtype) * (1 if region.rows is None else len(region.rows))
