"""The events of a log, and the codes in them. An event is written once and never changes."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvviz.graph.model import Node
from kvviz.trace.program import OpNode

NEW, IN_PLACE, VIEW, APPEND, POOL, PASSED = range(6)
HOW = ("new", "in place", "view", "append", "pool", "passed")
"""Where an output lies: in memory of its own, in that of an input, or where the body of a control node put it."""
BINDINGS = ("weight", "borrowed", "donated", "captured by reference", "captured by value", "passed")
"""How a frame came by the values that it starts with."""


class Output(NamedTuple):
    """Where an output of an op lies.

    Attributes
    ----------
    storage, generation : int
    how : int
        A code; its words are in `HOW`.
    shape : tuple of int or None
        None for sequences and optionals.
    dtype : numpy.dtype or str
        The kind of what is no tensor.
    offset : int or None
        Bytes from the start of the storage; None: where the value began that the op viewed or overwrote.
    strides : tuple of int or None
        In bytes; None if values lie in row-major order.
    """

    storage: int
    generation: int
    how: int
    shape: tuple[int, ...] | None
    dtype: Any
    offset: int | None
    strides: tuple[int, ...] | None


class Bind(NamedTuple):
    """A value that a frame starts with; ``how`` is one of `BINDINGS`, the rest is as in `Output`."""

    name: str
    storage: int
    generation: int
    how: str
    shape: tuple[int, ...] | None
    dtype: Any
    offset: int


class Op(NamedTuple):
    """A completed op.

    Attributes
    ----------
    frame : int
    op : OpNode
    taken : tuple of int
        Positions of the inputs with which it was called in place.
    masks : tuple of (int, int)
        By position of an input, why it was not: bits of `kvviz.trace.blockers`.
    outs : tuple of Output or None
        One for each output; None for an absent one.
    freed : tuple of int
        Storages that died with this op, or after it and before the next one.
    allocated, copied, written, live : int
        Bytes of new capacity, bytes that were only moved, bytes stored in all, and bytes alive while it ran.
    """

    frame: int
    op: OpNode
    taken: tuple[int, ...]
    masks: tuple[tuple[int, int], ...]
    outs: tuple[Output | None, ...]
    freed: tuple[int, ...]
    allocated: int
    copied: int
    written: int
    live: int


class FrameEvent:
    """One activation of a graph: its program, who called it, which values it started with, and before which op.

    Attributes
    ----------
    program : Program
    parent : int or None
    caller : OpNode or None
    attribute : str
        Which body of the caller it is.
    iteration : int or None
    run : int
    opened : int
        Number of ops that had run.
    bindings : tuple of Bind
    """

    __slots__ = ("_bound", "attribute", "bindings", "caller", "iteration", "opened", "parent", "program", "run")

    def __init__(
        self,
        program: Any,
        parent: int | None,
        caller: OpNode | None,
        attribute: str,
        iteration: int | None,
        run: int,
        opened: int = 0,
    ) -> None:
        self.program = program
        self.parent = parent
        self.caller = caller
        self.attribute = attribute
        self.iteration = iteration
        self.run = run
        self.opened = opened
        self.bindings: tuple[Bind, ...] = ()
        self._bound: dict[str, Bind] | None = None

    def bound(self, name: str) -> Bind | None:
        """What the frame started with under a name."""
        if self._bound is None or len(self._bound) != len(self.bindings):
            self._bound = {bind.name: bind for bind in reversed(self.bindings)}
        return self._bound.get(name)

    @property
    def control_node(self) -> Node:
        """The node of the parent whose body the frame runs; the main graph has none."""
        assert self.caller is not None
        return self.caller.node

    @property
    def label(self) -> str:
        """``node[then_branch]``, ``node[body:3]``; empty for the main graph."""
        if self.caller is None:
            return ""
        suffix = "" if self.iteration is None else f":{self.iteration}"
        return f"{self.caller.node.name}[{self.attribute}{suffix}]"
