"""The way of a cache through one run: which ops carry it from its input to its output, and which attention reads it."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.graph.model import Node

MS = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Link:
    """One op on the way of a cache.

    Attributes
    ----------
    frame : int
        Number of its frame within the run.
    node : Node
    output : int
        Position of the output that carries the cache on.
    past : int
        Position of the input that it carries on; -1 where it makes the rows from nothing.
    kind : str
        ``"write"`` (adds or overwrites rows), ``"move"`` (a view, or the same rows in another order or place),
        ``"join"`` (puts parts together that were written apart) or ``"make"``.
    """

    frame: int
    node: Node
    output: int
    past: int
    kind: str


@dataclass(frozen=True, slots=True)
class Reader:
    """An attention that reads a cache.

    Attributes
    ----------
    frame : int
    node : Node
        An operator with attention inside, a Softmax, or a product that no softmax was found for.
    kind : str
        ``"past"`` (the operator keeps the cache itself), ``"keys"`` (it is given keys or values), ``"softmax"``, or
        ``"product"``.
    after : tuple of Link
        What happened to the cache between the value that is read and the cache's output, last op first.
    cuts : tuple of (int, Node, str)
        Slices and Concats between that value and the attention: frame, node, and which of its inputs it comes from.
    """

    frame: int
    node: Node
    kind: str
    after: tuple[Link, ...]
    cuts: tuple[tuple[int, Node, str], ...]


@dataclass(frozen=True, slots=True)
class Way:
    """How a cache went through a run.

    Attributes
    ----------
    links : tuple of Link
        Without an order; each runs at a step of its own.
    spine : tuple of Link
        In order from the input on, one way only where parts are written apart and joined again.
    reached : bool
        Whether the output goes back to the input at all.
    readers : tuple of Reader
    """

    links: tuple[Link, ...]
    spine: tuple[Link, ...]
    reached: bool
    readers: tuple[Reader, ...]
