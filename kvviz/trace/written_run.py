"""A run while a `Writer` writes it: its ops, those of programs that they called, and its bindings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from kvviz.errors import KvvizError
from kvviz.graph.model import Graph, Node, Value
from kvviz.trace.records import Run
from kvviz.trace.schema.element_types import BLOCKS
from kvviz.trace.schema.events import Bind, FrameEvent, OpNode, Program
from kvviz.trace.schema.log import Log


class Row(NamedTuple):
    """An op of the run's own graph (``frame`` is None, ``op`` its node's place) or of a frame that it called."""

    frame: int | None
    op: Any
    taken: tuple[int, ...]
    masks: tuple[tuple[int, int], ...]
    outs: tuple[Any, ...]
    allocated: int
    copied: int
    written: int
    live: int


class Called(NamedTuple):
    """A frame of a program that an op of the run called. ``parent``: the frame that opened it, by its place among those
    called; None: the run's own. ``caller``: the op there, or for the run's own frame the place of its node. ``opened``
    counts from the first op of the run."""

    program: Program
    parent: int | None
    caller: Any
    attribute: str
    iteration: int | None
    opened: int
    bindings: tuple[Bind, ...]


class OpenRun(NamedTuple):
    """A run whose frames are in a log: its own frame, the log's node for each of its nodes, and its record."""

    main: int
    ops: list[OpNode]
    record: Run


@dataclass(slots=True, eq=False)
class WrittenRun:
    """What is known of one run so far. ``first``: the number of its first op. ``bound``, ``made``: values that it began
    with, and that it made, by id."""

    first: int
    text: str
    bound: dict[int, Bind] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    nodes: list[Node] = field(default_factory=list)
    declared: dict[tuple[str, ...], int] = field(default_factory=dict)  # places of nodes that have not run, by outputs
    views: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by node, the inputs that an output is a view of
    positions: list[int] = field(default_factory=list)  # of the nodes, in the program; they are in the order of the run
    rows: list[Row] = field(default_factory=list)
    called: list[Called] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    peak: int = 0

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.peak = max(self.peak, row.live)

    def hold(self, nbytes: int) -> None:
        """Count bytes that turn out to exist since the beginning of the run, before the ops that did not need them."""
        if nbytes and self.rows:
            self.rows = [row._replace(live=row.live + nbytes) for row in self.rows]
            self.peak += nbytes

    def node(
        self,
        op_type: str,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        function: Graph | None = None,
        position: int | None = None,
        scope: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> int:
        """Add a node to the run's own graph; returns its place. Repeated names get numbers."""
        if self.declared and (known := self.declared.pop(tuple(outputs), None)) is not None:
            return known
        label, place = unique_name(name, self.names), len(self.nodes)
        self.positions.append(place if position is None else position)
        edges = tuple(inputs), tuple(outputs)
        self.nodes.append(
            Node(label, op_type, "", *edges, place, attributes or {}, function=function, scope=tuple(scope))
        )
        return place

    def in_program(self) -> tuple[list[int], tuple[Node, ...]]:
        """The place of each op in the program, without gaps, and the nodes in that order."""
        order = sorted(range(len(self.positions)), key=self.positions.__getitem__)
        places = [0] * len(order)
        for place, op in enumerate(order):
            places[op] = place
        if places == list(range(len(order))):
            return places, tuple(self.nodes)
        return places, tuple(replace(self.nodes[op], index=place) for place, op in enumerate(order))

    def graph(self, title: str, nodes: tuple[Node, ...], outputs: Sequence[str]) -> Graph:
        bound = [(bind.name, bind) for bind in self.bound.values()]
        inputs = tuple(Value(name, _numpy(bind.dtype), bind.shape) for name, bind in bound if bind.how != "weight")
        weights = {name: np.empty(0) for name, bind in bound if bind.how == "weight"}
        return Graph(title, inputs, tuple(map(Value, outputs)), nodes, weights)

    def open(self, log: Log, number: int, title: str, outputs: tuple[str, ...], known: dict[Any, Program]) -> OpenRun:
        """Put the frames of the run into a log that has all earlier runs, and its program with all ops known so far.
        ``known``: programs of earlier runs, reused if equal, so that runs of one graph share one."""
        places, nodes = self.in_program()
        views = {places[op]: viewed for op, viewed in self.views.items()}
        facts = [
            (n.name, n.op_type, n.inputs, n.outputs, n.scope, id(n.function), tuple(n.attributes.items()))
            for n in nodes
        ]
        bound = [(bind.name, bind.how, str(bind.dtype), bind.shape) for bind in self.bound.values()]
        key = tuple(facts), tuple(bound), tuple(sorted(views.items())), outputs
        if key not in known:
            graph = self.graph(title, nodes, outputs)
            ops = [
                OpNode(node, i, "" if node.function is None else "function", views=views.get(i, ()))
                for i, node in enumerate(graph.nodes)
            ]
            known[key] = Program(graph, ops, outputs)
        program, order = known[key], known[key].order
        main = len(log.frames)
        log.frames.append(FrameEvent(program, None, None, "", None, number, self.first, tuple(self.bound.values())))
        for called, parent, caller, attribute, iteration, opened, bindings in self.called:
            above, op = (main, order[places[caller]]) if parent is None else (main + 1 + parent, caller)
            frame = FrameEvent(called, above, op, attribute, iteration, number, self.first + opened, bindings)
            log.frames.append(frame)
        record = Run(number, self.first, self.first, None, self.text)
        return OpenRun(main, [order[place] for place in places], record)

    def pour(self, log: Log, run: OpenRun, freed: Mapping[int, Sequence[int]]) -> None:
        """Put new rows into the log, and count them. ``freed``: storages that died with each op, by its number in the
        log."""
        record = run.record
        fresh = self.rows[record.last - self.first :]
        for step, (inside, op, taken, masks, outs, *counts) in enumerate(fresh, record.last):
            where, what = (run.main, run.ops[op]) if inside is None else (run.main + 1 + inside, op)
            log.write((where, what, taken, masks, outs, tuple(freed.get(step, ())), *counts))
        for name in ("allocated", "copied", "written"):
            total = sum(getattr(row, name) for row in fresh)
            setattr(log, name, getattr(log, name) + total)
            setattr(record, f"bytes_{name}", getattr(record, f"bytes_{name}") + total)
        record.last += len(fresh)
        record.peak_bytes, log.peak = self.peak, max(log.peak, self.peak)


def check_refused(op: str, refused: Iterable[int], inputs: int, decides: bool) -> None:
    """Raise `KvvizError` if an op refuses an input that does not exist, or its runtime makes no decisions."""
    for position in refused:
        if not decides or not 0 <= position < inputs:
            why = "has no such input" if decides else "belongs to a runtime that decides nothing"
            raise KvvizError(f"{op} cannot refuse its input {position}: it {why}")


def unique_name(name: str, taken: dict[str, int]) -> str:
    """A unique name: the second ``k`` becomes ``k#2``, or ``k#3`` if that is taken."""
    times = taken.get(name, 0) + 1
    label = name
    while times > 1 and (label := f"{name}#{times}") in taken:
        times += 1
    taken[name] = times
    taken.setdefault(label, 1)
    return label


def _numpy(dtype: Any) -> np.dtype | None:
    return None if dtype in BLOCKS else np.dtype(dtype)
