"""Caches with equal rows in a run: layers that do the same with values of the same shapes share one answer.

What a run does to the rows of a cache follows from the ops of its way and of the attention that reads it, from their
wiring, and from shapes and values of what they read and make. If all of these are equal, so is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvviz.caches.control_values import Known
from kvviz.caches.path_search import SCORES, Link, Reader, Way
from kvviz.graph.model import Node
from kvviz.trace.index.frame_values import RunFrames, Spot
from kvviz.trace.records import Cache, Rows
from kvviz.trace.schema.log import Table

Asked = tuple[tuple[Spot, ...], list[int], tuple[Rows, ...]]
"""The values at the ops of a way, which of them were asked for, and the rows that followed."""


def outline_of(known: Known, cache: Cache, way: Way) -> tuple[int, tuple[Spot, ...]]:
    """The ops that decide what happens to the rows of a cache in a run; found once for all runs that entered the same
    bodies. Returns a number, equal for caches whose ops have equal kinds, attributes and wiring, and the values that
    these ops read and make, in the same order for such caches."""
    notes = known.trace.notes
    outlines: dict[Any, tuple[int, tuple[Spot, ...]]] = notes.setdefault("cache outlines", {})
    key = (known.frames.signature, cache.input, cache.output)
    if key not in outlines:
        walk = _Walk(known.frames)
        number = notes.setdefault("kinds of outlines", Table())[walk.of(cache, way)]
        outlines[key] = number, tuple(walk.spots)
    return outlines[key]


@dataclass
class AlikeRows:
    found: dict[Any, list[Asked]] = field(default_factory=dict)

    def rows(
        self, known: Known, cache: Cache, way: Way, facts: tuple[Any, ...], work_out: Callable[[], tuple[Rows, ...]]
    ) -> tuple[Rows, ...]:
        """The rows of a cache: those of another one with equal facts, else computed. ``facts``: those not in the
        run."""
        number, mine = outline_of(known, cache, way)
        shapes = tuple(known.shape(*spot) for spot in mine)
        others = self.found.setdefault((number, shapes, facts), [])
        for spots, asked, rows in others:
            if all(_same(known, spots[at], mine[at]) for at in asked):
                return rows
        known.asked = set()
        rows = work_out()
        if known.asked.issubset(mine):
            others.append((mine, [mine.index(spot) for spot in known.asked], rows))
        return rows


def _same(known: Known, first: Spot, second: Spot) -> bool:
    """Whether two values are equal; two unknown values count as equal."""
    if first == second:
        return True
    one, other = known.value(*first), known.value(*second)
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and np.array_equal(one, other)


class _Walk:
    """``spots``: the values met, by number."""

    def __init__(self, frames: RunFrames) -> None:
        self.frames = frames
        self.spots = Table()

    def of(self, cache: Cache, way: Way) -> tuple[Any, ...]:
        ends = self.spots.numbers(((0, cache.input), (0, cache.output)))
        spine = tuple(map(self._link, way.spine))
        return (*ends, spine, tuple(map(self._reader, way.readers)))

    def _link(self, link: Link) -> tuple[Any, ...]:
        return self._node(link.frame, link.node), link.output, link.past, link.kind

    def _reader(self, reader: Reader) -> tuple[Any, ...]:
        after = tuple(map(self._link, reader.after))
        cuts = tuple((self._node(frame, node), self.spots[frame, name]) for frame, node, name in reader.cuts)
        scores = tuple(self._scores(reader)) if reader.kind == "softmax" else ()
        return self._node(reader.frame, reader.node), reader.kind, after, cuts, scores

    def _scores(self, reader: Reader) -> Iterator[tuple[Any, ...]]:
        """The ops between a product and its softmax, where masks are added."""
        producers = self.frames.graph(reader.frame).producers
        stack, seen = [reader.node.inputs[0]], set[str]()
        while stack:
            name = stack.pop()
            node = producers.get(name)
            if node is not None and node.op_type in SCORES and name not in seen:
                seen.add(name)
                yield self._node(reader.frame, node)
                stack += [given for given in node.inputs if given]

    def _node(self, frame: int, node: Node) -> tuple[Any, ...]:
        values = (self.spots[frame, name] if name else None for name in (*node.inputs, *node.outputs))
        given = tuple((name, _plain(value)) for name, value in sorted(node.attributes.items()))
        return node.domain, node.op_type, node.opset, frame, len(node.inputs), tuple(values), given


def _plain(value: Any) -> Any:
    """An attribute as a key; an unhashable one equals only itself."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    return (type(value).__name__, value if isinstance(value, (int, float, str, bytes)) else id(value))
