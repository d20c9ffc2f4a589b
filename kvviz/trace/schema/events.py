"""The program, and the events of a log: frames, ops, and the storages where outputs lie. An event never changes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

from kvviz.graph.model import Graph, Node

ORIGINS = ("weights", "caller", "donated", "run", "pool")
"""Who provided the memory of a storage."""
RUN = ORIGINS.index("run")


class StorageFacts(NamedTuple):
    """Number (shown as ``B12``), capacity in bytes, reserved room included, and one of `ORIGINS`."""

    id: int
    capacity: int
    origin: str


class Storages(Sequence[StorageFacts]):
    """All storages of a log, in order of id. ``origins``: indices into `ORIGINS`."""

    __slots__ = ("capacities", "origins")

    def __init__(self) -> None:
        self.capacities = array("q")
        self.origins = array("b")

    def add(self, capacity: int, origin: str) -> None:
        self.capacities.append(capacity)
        self.origins.append(ORIGINS.index(origin))

    def extend(self, capacities: Sequence[int], origin: str) -> None:
        self.capacities.extend(capacities)
        self.origins.extend([ORIGINS.index(origin)] * len(capacities))

    def resize(self, id: int, capacity: int) -> None:
        self.capacities[id] = capacity

    def cut(self, count: int) -> None:
        del self.capacities[count:], self.origins[count:]

    def __len__(self) -> int:
        return len(self.capacities)

    @overload
    def __getitem__(self, index: int) -> StorageFacts: ...
    @overload
    def __getitem__(self, index: slice) -> list[StorageFacts]: ...
    def __getitem__(self, index: int | slice) -> StorageFacts | list[StorageFacts]:
        if isinstance(index, slice):
            return [self[id] for id in range(*index.indices(len(self)))]
        id = index if index >= 0 else index + len(self)
        return StorageFacts(id, self.capacities[index], ORIGINS[self.origins[index]])

    def __iter__(self) -> Iterator[StorageFacts]:
        origins = map(ORIGINS.__getitem__, self.origins)
        return map(StorageFacts._make, zip(range(len(self)), self.capacities, origins))


class Grows(NamedTuple):
    """An input that an op may append to, and the output for it, by position. ``reads``: the op reads the input's bytes
    even then."""

    input: int
    output: int
    reads: bool


def grown(past: tuple[int, ...] | None, present: tuple[int, ...] | None) -> tuple[int, int] | None:
    """The axis along which a past grew, and its old length; None unless it grew along exactly one axis."""
    if past is None or present is None or len(past) != len(present):
        return None
    other = [(axis, old) for axis, (old, new) in enumerate(zip(past, present)) if new != old]
    return other[0] if len(other) == 1 and present[other[0][0]] > other[0][1] else None


@dataclass(slots=True, eq=False)
class OpNode:
    """A node as a producer runs it.

    ``position``: its place in the program's order.
    ``control``: ``"If"``, ``"Loop"``, ``"Scan"`` or ``"function"`` if it enters bodies, else empty.
    ``foreign``: it runs on a kernel of the reference evaluator.
    ``views``, ``overwrites``: inputs that its first output may be a view of, or may take over.
    ``unread``: inputs of which it needs only the shape or the type.
    ``note``: from the runtime's own planner.
    """

    node: Node
    position: int
    control: str = ""
    foreign: bool = False
    views: tuple[int, ...] = ()
    overwrites: tuple[int, ...] = ()
    grows: tuple[Grows, ...] = ()
    unread: tuple[int, ...] = ()
    note: str = ""


class Program:
    """The nodes of one graph that are to run, in order, and the outputs wanted of it (``wanted``: as a set)."""

    __slots__ = ("graph", "order", "outputs", "wanted")

    def __init__(self, graph: Graph, order: Sequence[OpNode], outputs: Sequence[str]) -> None:
        self.graph = graph
        self.order = tuple(order)
        self.outputs = tuple(outputs)
        self.wanted = frozenset(outputs)


NEW, IN_PLACE, VIEW, APPEND, POOL, PASSED = range(6)
HOW = ("new", "in place", "view", "append", "pool", "passed")
BINDINGS = ("weight", "borrowed", "donated", "captured by reference", "captured by value", "passed")


class Output(NamedTuple):
    """Where an output of an op lies.

    ``how``: a code; its words are in `HOW`.
    ``shape``: None for sequences and optionals.
    ``dtype``: for those, their kind.
    ``offset``: bytes from the start of the storage; None: that of the value that the op viewed or overwrote.
    ``strides``: in bytes; None if values lie in row-major order.
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

    ``taken``: positions of the inputs with which it was called in place.
    ``masks``: by position of an input, why it was not, as bits of `kvviz.trace.blockers`.
    ``outs``: one per output; None for an absent one.
    ``freed``: storages that died with this op, or after it and before the next one.
    ``allocated, copied, written, live``: bytes of new capacity, bytes only moved, bytes stored in all, and bytes alive
      while it ran.
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


@dataclass(slots=True, eq=False)
class FrameEvent:
    """One activation of a graph: its program, its caller, the values it started with, and how many ops had run when it
    was opened. ``attribute``: which body of the caller it is."""

    program: Program
    parent: int | None
    caller: OpNode | None
    attribute: str
    iteration: int | None
    run: int
    opened: int = 0
    bindings: tuple[Bind, ...] = ()
    _bound: dict[str, Bind] | None = field(default=None, init=False, repr=False)

    def bound(self, name: str) -> Bind | None:
        if self._bound is None or len(self._bound) != len(self.bindings):
            self._bound = {bind.name: bind for bind in reversed(self.bindings)}
        return self._bound.get(name)

    @property
    def control_node(self) -> Node:
        assert self.caller is not None
        return self.caller.node

    @property
    def label(self) -> str:
        if self.caller is None:
            return ""
        suffix = "" if self.iteration is None else f":{self.iteration}"
        return f"{self.caller.node.name}[{self.attribute}{suffix}]"
