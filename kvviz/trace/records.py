"""What a trace shows of a run: steps, frames, storages, runs, caches. Plain records, made from rows on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kvviz import public_trace
from kvviz.graph.model import Graph, Node
from kvviz.interrupts import held_back
from kvviz.other_names import not_there
from kvviz.trace.blockers import Decision


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a value lives.

    Attributes
    ----------
    name : str
        Value name.
    storage, generation : int
        ``B<storage>.<generation>``.
    how : str
        For an output ``"new"``, ``"in place"``, ``"view"``, ``"append"``, ``"pool"`` or ``"passed"`` (out of a body);
        for a value that a
        frame starts with ``"weight"``, ``"borrowed"``, ``"donated"``, ``"captured by reference"``, ``"captured by
        value"`` or ``"passed"``.
    shape : tuple of int or None
        None for sequences and optionals.
    dtype : str
    offset : int
        Bytes from the start of the storage.
    strides : tuple of int or None
        In bytes, for views; None if values lie in row-major order.
    nbytes : int
        Size of the value.
    """

    name: str
    storage: int
    generation: int
    how: str
    shape: tuple[int, ...] | None
    dtype: str
    offset: int = 0
    strides: tuple[int, ...] | None = None
    nbytes: int = 0

    @property
    def label(self) -> str:
        """``B12`` or ``B12.3``."""
        return f"B{self.storage}.{self.generation}" if self.generation else f"B{self.storage}"


@dataclass(frozen=True, slots=True)
class Step:
    """One completed op.

    Attributes
    ----------
    index, run : int
        Position in the trace, and the run that it belongs to.
    frame : tuple of str
        Path of the frame: ``()`` is the main graph, else ``("node[then_branch]", …)``.
    frame_id : int
    node, op_type : str
    node_index : int
        Position in the model's own node list.
    graph_node : Node
    inputs, outputs : tuple of str
    decision : Decision
    live_bytes : int
        Bytes alive while the op ran: its outputs exist, its dead inputs are not freed yet.
    allocated, copied, written : int
        Bytes of new capacity, bytes that were only moved, bytes stored in all.
    outs : tuple of Placed
    freed : tuple of int
        Storages that died with this op.
    foreign : bool
        It ran on a kernel of the reference evaluator.
    outcome : str
        How it ended: one of `kvviz.trace.outcome.OUTCOMES`. ``"in_place"``: an output lies in memory of an input;
        ``"elsewhere"``: it was called in place (``decision.dispatch``) and wrote to other memory.
    """

    index: int
    run: int
    frame: tuple[str, ...]
    frame_id: int
    node: str
    node_index: int
    graph_node: Node
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    decision: Decision
    live_bytes: int
    allocated: int
    copied: int
    written: int
    outs: tuple[Placed, ...]
    freed: tuple[int, ...]
    foreign: bool = False
    outcome: str = "new"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return not_there(self, name)

    __repr__ = public_trace.step_text
    _repr_html_ = public_trace.step_html


@dataclass(frozen=True, slots=True)
class TraceFrame:
    """One activation of a graph, as recorded."""

    id: int
    graph: Graph
    parent: int | None
    node: Node | None
    attribute: str
    iteration: int | None
    run: int
    path: tuple[str, ...]
    order: tuple[Node, ...]
    bindings: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class StorageRecord:
    """One storage over its life: the step that made it, or before which it was passed in, and the step that freed it.

    ``born`` is -1 for storages from before the first step, ``freed`` is None while it lives. ``capacity`` is
    final; ``grew`` has (step, bytes) of every time that a runtime made the block larger. ``space`` is
    ``"host"``, ``"dram"`` …; ``arena`` and ``address`` say where in it, if that is known, and ``taken`` how many bytes
    it takes there, if that is not its capacity.
    """

    id: int
    capacity: int
    space: str
    origin: str
    name: str
    born: int
    freed: int | None
    grew: tuple[tuple[int, int], ...] = ()
    arena: str = ""
    address: int | None = None
    taken: int | None = None


@dataclass(slots=True)
class Run:
    """One call of the graph.

    Attributes
    ----------
    index, first, last : int
        Number, and half-open range of steps.
    token : int or None
        Token that this run produced (batch item 0), in a decode.
    text : str
        That token as text, if a tokenizer is known.
    peak_bytes, bytes_copied, bytes_written, bytes_allocated : int
    bytes_moved_outside : int
        Bytes of caches that the caller moved into larger buffers after this run; no kernel copied them.
    """

    index: int
    first: int
    last: int
    token: int | None = None
    text: str = ""
    peak_bytes: int = 0
    bytes_copied: int = 0
    bytes_written: int = 0
    bytes_allocated: int = 0
    bytes_moved_outside: int = 0


Span = tuple[int, int]
"""Rows from the first to (not including) the second."""

Held = tuple[int, int, int]
"""Rows from the first to (not including) the second that hold the tokens from the third on; -1: no live token."""


Owned = tuple[int, int, tuple[int, ...], str]
"""Rows from the first to (not including) the second, the sequences that own them, and what is wrong with them."""


class Rows(NamedTuple):
    """The rows of a cache after one run, for one batch entry.

    Attributes
    ----------
    held : tuple of (start, stop, position)
        Rows that hold something. Row ``start`` holds the token at ``position``, the next row the next token; a position
        of -1 means no live token: left over, evicted, or padding. Rows in no span were never written.
    wrote : tuple of (start, stop)
        Rows that this run wrote.
    read : tuple of (start, stop) or None
        Rows that at least one query of this run may see; None if that follows from more than the control inputs.
    lost : int
        Rows of tokens that this run overwrote although its first query still attends to them.
    notes : tuple of (start, stop, text)
        Remarks of the producer on rows: who owns them, or what is wrong with their bytes.
    owners : tuple of (start, stop, sequences, state)
        Numbers of the sequences that own rows, where several share a cache, and one word for a conflict between the
        rows and these numbers; empty if there is none.
    """

    held: tuple[Held, ...] = ()
    wrote: tuple[Span, ...] = ()
    read: tuple[Span, ...] | None = ()
    lost: int = 0
    notes: tuple[tuple[int, int, str], ...] = ()
    owners: tuple[Owned, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheRun:
    """A cache after one run.

    Attributes
    ----------
    capacity, valid : int
        Rows that there is room for, and rows that hold real tokens (of the fullest batch entry).
    bytes_copied, bytes_written : int
        Bytes that kernels moved and stored on the cache's way from its input to its output.
    storage : int
        Where it lives after the run; -1 if that is not known, as of runs whose steps were not kept.
    bytes_moved_outside : int
        Bytes that the caller moved after the run, to give the cache more room.
    rows_written, rows_read : int
        Rows that the run wrote, and rows that attention may see; where a mask is computed from more than the control
        inputs, all that attention was given.
    stale : int
        Rows that attention was given and that hold something, but no live token: left over, evicted, or padding.
    reallocations : int
        Ops of the run after which the cache lay in another storage than before.
    generations : int
        The largest number of storages with a past, present or half-made version of the cache that were alive at once.
    items : tuple of Rows
        Rows by batch entry; a single one if all are equal, none for a state.
    """

    capacity: int
    valid: int
    bytes_copied: int
    bytes_written: int
    storage: int
    bytes_moved_outside: int = 0
    rows_written: int = 0
    rows_read: int = 0
    stale: int = 0
    reallocations: int = 0
    generations: int = 1
    items: tuple[Rows, ...] = ()

    @property
    def slack(self) -> int:
        """Reserved rows that hold no live token: capacity less valid."""
        return self.capacity - self.valid


def meter_in_turn(caches: Sequence[Cache]) -> None:
    """Meter all pending runs, run by run, since the caches of a run read the same ops of a long log."""
    more = True
    while more:
        with held_back():
            more = sum(cache.meter_next() for cache in caches) > 0


class _Runs:
    def __get__(self, cache: Cache | None, owner: type | None = None) -> list[CacheRun]:
        if cache is None:
            # The default of the field, for `dataclasses`.
            return ()  # type: ignore[return-value]
        while cache.__dict__["waiting"]:
            cache.meter_next()
        runs: list[CacheRun] = cache.__dict__["runs"]
        return runs

    def __set__(self, cache: Cache, runs: Sequence[CacheRun]) -> None:
        cache.__dict__["runs"], cache.__dict__["waiting"] = list(runs), []


@dataclass
class Cache:
    """A cache input and the output that carries it on.

    Attributes
    ----------
    name, input, output : str
    protocol : str
        ``"growing"``, ``"shared"``, ``"static"``, ``"window"``, ``"state"`` or ``"cross"``; see
        `kvviz.graph.cache_pairs.CachePair`. ``"shared"`` is a growing cache whose past and present were one
        buffer.
    axis : int or None
        The sequence axis.
    runs : list of CacheRun
        One entry per run.
    """

    name: str
    input: str
    output: str
    protocol: str
    axis: int | None
    runs: _Runs = _Runs()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return not_there(self, name)

    __repr__ = public_trace.cache_text
    _repr_html_ = public_trace.cache_html

    def unplace(self, since: int) -> None:
        """Clear the storage of the last entry, if that storage has been renumbered."""
        if self.runs and self.runs[-1].storage >= since:
            self.runs[-1:] = [replace(self.runs[-1], storage=-1)]

    def meter_next(self) -> bool:
        """Make the next pending change, completely or not at all; False if none is pending."""
        waiting = self.__dict__["waiting"]
        if waiting:
            with held_back():
                waiting.pop(0)(self, self.__dict__["runs"])
        return bool(waiting)

    def later(self, change: Callable[[Cache, list[CacheRun]], None]) -> None:
        """Queue a change of ``runs``, which is made on their next access and gets this cache and the list."""
        self.__dict__["waiting"].append(change)


class Caches(list[Cache]):
    __repr__ = public_trace.caches_text
    _repr_html_ = public_trace.caches_html


@dataclass(frozen=True, slots=True)
class Live:
    """The live edge.

    Attributes
    ----------
    frame : int
        The frame that runs next.
    frontier : tuple of Node
        What may run there, in plan order; empty if the next step completes a control node.
    costs : tuple of (int or None, int)
        Bytes that each of them would allocate (None: not known before it runs) and free; empty if nobody asked.
    """

    frame: int
    frontier: tuple[Node, ...]
    costs: tuple[tuple[Any, int], ...] = ()


class Branch(NamedTuple):
    """Where a trace left another one.

    Attributes
    ----------
    label : str
        The change, in a few words: ``"rten"``, ``"Shape #4 at step 2,216"``, ``"kv_capacity=18"``.
    step : int
        The first step that need not be as in the other trace; 0: the change holds from the beginning.
    """

    label: str
    step: int
