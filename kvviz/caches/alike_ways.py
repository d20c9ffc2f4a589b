"""Caches whose rows come out alike in a run: layers do the same with values of the same shapes, and need one answer.

What a run does to the rows of a cache follows from the ops of its way and of the attention that reads it, from how
these are wired, and from shapes and values of what they read and make. If all of these are equal, so is the answer.
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


@dataclass(frozen=True, slots=True)
class Outline:
    """The ops that decide what happens to the rows of a cache.

    ``number``: equal for two caches whose ops are of one kind, have equal attributes and are wired alike.
    ``spots``: the values that these ops read and make, in an order that is the same for such caches.
    ``made``: by value, its frame, the node that makes it and the position of the output; None for other values.
    """

    number: int
    spots: tuple[Spot, ...]
    made: tuple[tuple[int, int, int] | None, ...]

    def shapes(self, known: Known) -> tuple[Any, ...]:
        """What stands for the shapes of its values in a run."""
        log, first = known.trace.log, known.frames.first
        found: list[Any] = []
        for spot, maker in zip(self.spots, self.made):
            if maker is None:
                found.append(known.shape(*spot))
                continue
            step = log.step_of(first + maker[0], maker[1])
            found.append(None if step is None else log.form(step, maker[2]))
        return tuple(found)


def outline_of(known: Known, cache: Cache, way: Way) -> Outline:
    """The outline of a cache's way through a run; found once for all runs that entered the same bodies."""
    notes = known.trace.notes
    outlines: dict[Any, Outline] = notes.setdefault("cache outlines", {})
    key = (known.frames.signature, cache.input, cache.output)
    if key not in outlines:
        walk = _Walk(known.frames)
        ops = walk.of(cache, way)
        spots = tuple(walk.spots)
        number = notes.setdefault("kinds of outlines", Table())[ops]
        outlines[key] = Outline(number, spots, tuple(_maker(known.frames, *spot) for spot in spots))
    return outlines[key]


@dataclass
class AlikeRows:
    """What followed for the caches of one run so far."""

    found: dict[Any, list[Asked]] = field(default_factory=dict)

    def rows(
        self, known: Known, cache: Cache, way: Way, facts: tuple[Any, ...], work_out: Callable[[], tuple[Rows, ...]]
    ) -> tuple[Rows, ...]:
        """The rows of a cache: those of another one if all that they follow from is equal, else worked out.

        ``facts``: what they follow from that is not in the run.
        """
        outline = outline_of(known, cache, way)
        others = self.found.setdefault((outline.number, outline.shapes(known), facts), [])
        for spots, asked, rows in others:
            if all(_same(known, spots[number], outline.spots[number]) for number in asked):
                return rows
        known.asked = set()
        rows = work_out()
        if known.asked.issubset(outline.spots):
            others.append((outline.spots, [outline.spots.index(spot) for spot in known.asked], rows))
        return rows


def _same(known: Known, first: Spot, second: Spot) -> bool:
    """Whether two values are equal; two that are not known count as equal."""
    if first == second:
        return True
    one, other = known.value(*first), known.value(*second)
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and np.array_equal(one, other)


def _maker(frames: RunFrames, frame: int, name: str) -> tuple[int, int, int] | None:
    graph = frames.graph(frame)
    node = None if name in graph.weights else graph.producers.get(name)
    return None if node is None else (frame, node.index, node.outputs.index(name))


class _Walk:
    """``spots``: the values that were met, by number."""

    def __init__(self, frames: RunFrames) -> None:
        self.frames = frames
        self.spots = Table()

    def of(self, cache: Cache, way: Way) -> tuple[Any, ...]:
        """The facts of the ops that are compared, with numbers instead of names."""
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
    """An attribute as a key; one that cannot be a key equals only itself."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    return (type(value).__name__, value if isinstance(value, (int, float, str, bytes)) else id(value))
