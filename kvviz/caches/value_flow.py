"""The way of a cache through the frames of a run: which ops carry it on, and which attention reads it."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.graph.model import Node

MS = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Link:
    """One op on the way of a cache. Its kind is ``"write"`` (adds or overwrites rows), ``"move"`` (a view, or the same
    rows in another order or place), ``"join"`` (puts parts together that were written apart) or ``"make"``."""

    frame: int  # number of its frame within the run
    node: Node
    output: int  # position of the output that carries the cache on
    past: int  # position of the input that it carries on; -1 where it makes the rows from nothing
    kind: str


@dataclass(frozen=True, slots=True)
class Reader:
    """An attention that reads a cache: an operator with attention inside, a Softmax, or a product without one. Its kind
    is ``"past"`` (the operator keeps the cache itself), ``"keys"`` (it is given keys or values), ``"softmax"``, or
    ``"product"``."""

    frame: int
    node: Node
    kind: str
    # what happened to the cache between the value that is read and the cache's output, last op first
    after: tuple[Link, ...]
    # Slices and Concats between that value and the attention: frame, node, which of its inputs it comes from
    cuts: tuple[tuple[int, Node, str], ...]


@dataclass(frozen=True, slots=True)
class Way:
    """How a cache went through a run."""

    links: tuple[Link, ...]  # without an order; each runs at a step of its own
    spine: tuple[Link, ...]  # in order from the input on, one way only where parts are written apart and joined again
    reached: bool  # whether the output goes back to the input at all
    readers: tuple[Reader, ...]
