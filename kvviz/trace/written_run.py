"""A run while a `Writer` writes it: its ops, those of programs that they called, and its bindings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from kvviz.errors import KvvizError
from kvviz.graph.model import Graph, Node, Value
from kvviz.trace.records import Run
from kvviz.trace.schema.element_types import BLOCKS
from kvviz.trace.schema.events import Bind, FrameEvent, Op, OpNode, Program
from kvviz.trace.schema.log import Log


class OpenRun(NamedTuple):
    """A run whose frames are in a log: its own one, each of its ops there, by the index of the node in the run, and the
    record of it."""

    main: int
    ops: dict[int, OpNode]
    record: Run


@dataclass(slots=True, eq=False)
class WrittenRun:
    """What is known of one run so far.

    ``first``: the number of its first op.
    ``bound``: values that it began with, by their ids; ``made``: those that it made.
    ``ops``: of its own graph; ``position`` is that in the program, ``index`` of a node its place among them.
    ``rows, called``: all ops that ran, and the frames of programs that they called. Frames are numbered from the run's
      own one, and steps from the first of the run.
    """

    first: int
    text: str
    bound: dict[int, Bind] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    ops: list[OpNode] = field(default_factory=list)
    declared: dict[tuple[str, ...], int] = field(default_factory=dict)  # places of nodes that have not run, by outputs
    rows: list[Op] = field(default_factory=list)
    called: list[FrameEvent] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    peak: int = 0

    def add(self, row: Op) -> None:
        """One more op, when all before it are written."""
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
        label, place = unique_name(name, self.names), len(self.ops)
        edges = tuple(inputs), tuple(outputs)
        node = Node(label, op_type, "", *edges, place, attributes or {}, function=function, scope=tuple(scope))
        control = "" if function is None else "function"
        self.ops.append(OpNode(node, place if position is None else position, control))
        return place

    def graph(self, title: str, nodes: tuple[Node, ...], outputs: Sequence[str]) -> Graph:
        bound = [(bind.name, bind) for bind in self.bound.values()]
        inputs = tuple(Value(name, _numpy(bind.dtype), bind.shape) for name, bind in bound if bind.how != "weight")
        weights = {name: np.empty(0) for name, bind in bound if bind.how == "weight"}
        return Graph(title, inputs, tuple(map(Value, outputs)), nodes, weights)

    def open(self, log: Log, number: int, title: str, outputs: tuple[str, ...], known: dict[Any, Program]) -> OpenRun:
        """Put the frames of the run into a log that has all runs before it, and its program with all ops that are
        known of.

        ``known``: programs of the runs before; one that is the same is taken, so that runs of one graph are of one.
        """
        order = sorted(self.ops, key=attrgetter("position"))
        bound = [(bind.name, bind.how, str(bind.dtype), bind.shape) for bind in self.bound.values()]
        key = tuple(_facts(op) for op in order), tuple(bound), outputs
        if key not in known:
            # Positions are counted without gaps.
            ops = [replace(op, node=_at(op.node, place), position=place) for place, op in enumerate(order)]
            known[key] = Program(self.graph(title, tuple(op.node for op in ops), outputs), ops, outputs)
        program, main = known[key], len(log.frames)
        there = dict(zip((op.node.index for op in order), program.order))
        log.frames.append(FrameEvent(program, None, None, "", None, number, self.first, tuple(self.bound.values())))
        for frame in self.called:
            assert frame.caller is not None and frame.parent is not None
            caller = frame.caller if frame.parent else there[frame.caller.node.index]
            opened = self.first + frame.opened
            log.frames.append(replace(frame, parent=main + frame.parent, caller=caller, run=number, opened=opened))
        record = Run(number, self.first, self.first, None, self.text)
        return OpenRun(main, there, record)

    def pour(self, log: Log, run: OpenRun, freed: Mapping[int, Sequence[int]]) -> None:
        """Put new rows into the log, and count them. ``freed``: storages that died with each op, by its number in the
        log."""
        record = run.record
        fresh = self.rows[record.last - self.first :]
        for step, row in enumerate(fresh, record.last):
            op = row.op if row.frame else run.ops[row.op.node.index]
            log.write((run.main + row.frame, op, *row[2:5], tuple(freed.get(step, ())), *row[6:]))
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


def _facts(op: OpNode) -> tuple[Any, ...]:
    """What ops of equal programs have in common, in the order of the program."""
    node = op.node
    names = node.name, node.op_type, node.inputs, node.outputs, node.scope
    return *names, id(node.function), tuple(node.attributes.items()), op.views


def _at(node: Node, place: int) -> Node:
    return node if node.index == place else replace(node, index=place)


def _numpy(dtype: Any) -> np.dtype | None:
    return None if dtype in BLOCKS else np.dtype(dtype)
