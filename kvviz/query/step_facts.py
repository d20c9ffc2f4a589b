"""The fields that a query can test, read from the log: one function per field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from kvviz.graph.blocks import Block, blocks
from kvviz.graph.layers import Place
from kvviz.graph.model import Node
from kvviz.query.grammar import HAZARDS
from kvviz.trace.index.hazards import find_hazards
from kvviz.trace.outcome import Kinds, outcome
from kvviz.trace.reasons import blocker_codes, is_missed, looked_up, placed_before
from kvviz.trace.recording import Trace
from kvviz.trace.schema.element_types import dims, nbytes
from kvviz.trace.schema.events import HOW, Op
from kvviz.trace.schema.log import COLUMNS, Ints, distinct
from kvviz.trace.trace_data import TraceData
from kvviz.trace.units import place_in, run_label

Fact: TypeAlias = Any
"""A number or None; texts; or (storage, generation) of buffers."""


class Graphs:
    """Blocks of the nodes of all graphs that were entered, as the page has them; kept by the trace."""

    def __init__(self) -> None:
        self._seen = 0
        self._orders: dict[int, dict[int, Node]] = {}
        self._cut: dict[int, tuple[int, dict[int, Block]]] = {}

    def block(self, frames: Sequence[Any], frame: int, node: Node) -> Block | None:
        self._look(frames)
        graph = frames[frame].program.graph
        order = self._orders[id(graph)]
        cut = self._cut.get(id(graph))
        if cut is None or cut[0] != len(order):
            found = {id(one): block for block in blocks(graph, tuple(order.values())) for one in block.nodes}
            cut = self._cut[id(graph)] = (len(order), found)
        return cut[1].get(id(node))

    def _look(self, frames: Sequence[Any]) -> None:
        if self._seen > len(frames):
            self._seen = 0
            self._orders.clear()
        for row in frames[self._seen :]:
            graph = row.program.graph
            order = self._orders.setdefault(id(graph), {})
            if len(order) != len(row.program.order):
                for planned in row.program.order:
                    order.setdefault(id(planned.node), planned.node)
        self._seen = len(frames)


class Scene:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.log = trace.log
        self.frames = trace.log.frames
        self._graphs: Graphs = trace.notes.setdefault("query graphs", Graphs())
        self._grown: dict[int, list[tuple[int, int]]] = {}
        self._grown_to = 0

    def block(self, frame: int, node: Node) -> Block | None:
        return self._graphs.block(self.frames, frame, node)

    def place(self, frame: int, node: Node) -> Place:
        return place_in(self.frames, frame, node.index)

    def above(self, frame: int | None) -> Iterator[Any]:
        """A frame and its enclosing ones."""
        while frame is not None:
            yield self.frames[frame]
            frame = self.frames[frame].parent

    def hazards(self, step: int) -> tuple[str, ...]:
        """Kinds and states of the pairs that a step is part of; none if ops did not declare what they touch."""
        found = looked_up(self.trace, "query hazards", self._hazards).get(step, ())
        return tuple(name for name in HAZARDS if name in found)

    def _hazards(self) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for hazard in find_hazards(self.trace) if self.log.declared.accesses else ():
            for at in (hazard.first, hazard.second):
                found.setdefault(at, set()).update((hazard.kind, hazard.state))
        return found

    def capacity(self, storage: int, step: int) -> int:
        if self._grown_to != len(self.log.grew):
            self._grown, self._grown_to = {}, len(self.log.grew)
            for at, grown, more in self.log.grew:
                self._grown.setdefault(grown, []).append((at, more))
        late = sum(more for at, more in self._grown.get(storage, ()) if at > step)
        return int(self.log.storages[storage].capacity) - late

    def run(self, row: Op) -> int:
        return int(self.frames[row.frame].run)

    def word(self, run: int) -> str:
        """The result of a run, as text or, without one, as a number."""
        made = self.trace.runs[run]
        return made.text.strip() or ("" if made.token is None else str(made.token))

    def called(self, run: int) -> tuple[str, str]:
        return run_label(self.trace, run).lower(), self.word(run).lower()


def _op(node: Node) -> tuple[str, ...]:
    whole = node.qualified_op
    return (whole.rpartition(".")[2], whole)


def short_texts(scene: Scene, frame: int, node: Node) -> str:
    """The texts that a bare word is searched in."""
    block = scene.block(frame, node)
    values = " ".join((*node.inputs, *node.outputs))
    fact = (
        node.qualified_op,
        node.name,
        "/".join(node.scope),
        block.title if block else "",
        scene.place(frame, node).role,
    )
    return " ".join((*fact, values)).lower()


OF_NODE: Mapping[str, Callable[[Scene, int, Node], Fact]] = {
    "op": lambda scene, frame, node: _op(node),
    "name": lambda scene, frame, node: (node.name,),
    "scope": lambda scene, frame, node: ("/".join(node.scope),),
    "block": lambda scene, frame, node: (block.title,) if (block := scene.block(frame, node)) else (),
    "layer": lambda scene, frame, node: scene.place(frame, node).layer,
    "role": lambda scene, frame, node: (scene.place(frame, node).role,),
    "value": lambda scene, frame, node: tuple(name for name in (*node.inputs, *node.outputs) if name),
}


def _reads(scene: Scene, index: int, row: Op) -> list[tuple[int, int]]:
    places = (placed_before(scene.trace, row.frame, name, index) for name in row.op.node.inputs if name)
    return [(place.storage, place.generation) for place in places if place is not None]


def _writes(scene: Scene, index: int, row: Op) -> list[tuple[int, int]]:
    return [(where.storage, where.generation) for where in row.outs if where is not None]


def _frees(scene: Scene, index: int, row: Op) -> list[tuple[int, int]]:
    return [(storage, -1) for storage in row.freed if storage not in scene.log.later]


def _caches(scene: Scene, index: int, row: Op) -> tuple[str, ...]:
    caches = scene.trace.caches
    if not caches:
        return ()
    touched = {storage for storage, _ in (*_reads(scene, index, row), *_writes(scene, index, row))}
    run = scene.run(row)
    main = list(scene.above(row.frame))[-1]
    found = []
    for cache in caches:
        came = main.bound(cache.input)
        left = cache.runs[run].storage if run < len(cache.runs) else -1
        if (came is not None and came.storage in touched) or left in touched:
            found.append(cache.name)
    return tuple(found)


def _iteration(scene: Scene, index: int, row: Op) -> int | None:
    return next((frame.iteration for frame in scene.above(row.frame) if frame.iteration is not None), None)


def _path(scene: Scene, index: int, row: Op) -> tuple[str, ...]:
    labels = [frame.label for frame in scene.above(row.frame)][-2::-1]
    return (" › ".join(labels) or "main",)


def _of_outs(fact: Callable[[Any], str]) -> Callable[[Scene, int, Op], tuple[str, ...]]:
    return lambda scene, index, row: tuple(fact(where) for where in row.outs if where is not None)


OF_STEP: Mapping[str, Callable[[Scene, int, Op], Fact]] = {
    "step": lambda scene, index, row: index,
    "run": lambda scene, index, row: scene.run(row),
    "word": lambda scene, index, row: (word,) if (word := scene.word(scene.run(row))) else (),
    "buffer": lambda scene, index, row: [*_writes(scene, index, row), *_reads(scene, index, row)],
    "reads": _reads,
    "writes": _writes,
    "frees": _frees,
    "cache": _caches,
    "decision": lambda scene, index, row: (outcome(scene.trace, row),),
    "blocker": lambda scene, index, row: tuple(code.value for code in blocker_codes(scene.trace, index)),
    "hazard": lambda scene, index, row: scene.hazards(index),
    "how": _of_outs(lambda where: HOW[where.how]),
    "allocated": lambda scene, index, row: row.allocated,
    "copied": lambda scene, index, row: row.copied,
    "written": lambda scene, index, row: row.written,
    "live": lambda scene, index, row: row.live,
    "freed": lambda scene, index, row: sum(scene.capacity(s, index) for s, _ in _frees(scene, index, row)),
    "bytes": lambda scene, index, row: sum(nbytes(out.shape, out.dtype) for out in row.outs if out is not None),
    "missed": lambda scene, index, row: max(row.allocated, row.copied) if is_missed(scene.trace, row) else 0,
    "frame": _path,
    "iteration": _iteration,
    "depth": lambda scene, index, row: sum(1 for _ in scene.above(row.frame)) - 1,
    "shape": _of_outs(lambda where: dims(where.shape)),
    "dtype": _of_outs(lambda where: str(where.dtype)),
}


def value_of(scene: Scene, field: str, index: int) -> Fact:
    row = scene.log[index]
    if field in OF_NODE:
        return OF_NODE[field](scene, row.frame, row.op.node)
    return OF_STEP[field](scene, index, row)


def first_of(fact: Fact) -> Any:
    """The sort key of a value: a number, a text, or None."""
    if isinstance(fact, Sequence):
        first = fact[0] if fact else None
        return first[0] if isinstance(first, tuple) else first
    return fact


# Groups of steps that a test cannot distinguish, so that a query about a long trace tests each group once.

NUMBERS = ("allocated", "copied", "written", "live")
"""Fields that are columns of the log."""


class StepGroups:
    """The steps of a trace, grouped by what a field depends on."""

    def __init__(self, trace: TraceData) -> None:
        self.trace = trace
        self._ops, self._outs = trace.log.tables()
        self._known: dict[str, Ints] = {}

    def number(self, field: str) -> Ints:
        """The number that every step has in a field of `NUMBERS`, or its own for ``"step"``."""
        steps: Ints = np.arange(len(self._ops))
        return steps if field == "step" else self._ops[:, COLUMNS["op"].index(field)]

    def examples(self, by: str, steps: Ints) -> tuple[Ints, Ints]:
        """The first step of every group among some steps, and for each step the place of its group."""
        if by not in self._known:
            self._known[by] = _BY[by](self)
        groups = self._known[by][steps]
        found, places = distinct(groups, int(groups.max(initial=-1)) + 1)
        first = np.empty(len(found), np.int64)
        first[places[::-1]] = steps[::-1]
        return first, places

    @cached_property
    def _kinds(self) -> Kinds:
        return Kinds(self.trace.log)

    def _of_runs(self) -> Ints:
        runs: Ints = np.array([frame.run for frame in self.trace.log.frames], np.int64)
        return runs[self._ops[:, 0]]

    def _of_outputs(self) -> Ints:
        """Steps of one output by how it came about and its form; each other step is a group."""
        ends = self._ops[:, -1]
        if not len(self._outs):
            return np.zeros(len(ends), np.int64)
        storage, _, how, _, form = self._outs[np.maximum(ends - 1, 0)].T
        groups = (form * len(HOW) + how) * 2 + (storage < 0)
        single = np.diff(ends, prepend=0) == 1
        return np.where(single, groups, int(groups.max(initial=0)) + 1 + np.arange(len(ends)))

    def _of_reasons(self) -> Ints:
        """By kind, except for steps that wrote what could have been a view: their inputs say why."""
        kinds, free = self._kinds, not self.trace.policy.places_outputs
        by_kind = [
            bool(row.masks or row.taken or not (row.op.views and row.written and free)) for row in kinds.examples
        ]
        of_kind = np.array(by_kind, bool)[kinds.kind]
        return np.where(of_kind, kinds.kind, len(by_kind) + np.arange(len(of_kind)))

    def _of_spent(self) -> Ints:
        values, spent = np.unique(self._kinds.spent, return_inverse=True)
        return self._kinds.kind * len(values) + spent


_BY: Mapping[str, Callable[[StepGroups], Ints]] = {
    "node": lambda groups: groups._ops[:, 1],
    "frame": lambda groups: groups._ops[:, 0],
    "run": StepGroups._of_runs,
    "kind": lambda groups: groups._kinds.kind,
    "outputs": StepGroups._of_outputs,
    "reasons": StepGroups._of_reasons,
    "spent": StepGroups._of_spent,
}
HANGS_ON = {
    **dict.fromkeys(("run", "word"), "run"),
    **dict.fromkeys(("frame", "iteration", "depth"), "frame"),
    **dict.fromkeys(("how", "shape", "dtype", "bytes"), "outputs"),
    "decision": "kind",
    "blocker": "reasons",
    "missed": "spent",
}
"""By field of a step, what it depends on; the others depend on the step itself."""
