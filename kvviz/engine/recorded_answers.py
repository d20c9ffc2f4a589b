"""Recorded kernels: shapes, branches and iterations from a recording, for a dry run that cannot compute them.

A node runs once for every activation of its graph, in the same sequence in every replay of the same runs, so its
recorded results are used call by call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from kvviz.graph.model import Graph, GraphPath, Node
from kvviz.trace.recording import Trace
from kvviz.trace.records import Run
from kvviz.trace.schema.events import OpNode


class Answer(NamedTuple):
    """The recorded result of one call of a node: ``layouts`` (shape and dtype of each output, None for an absent one),
    ``moved`` (bytes written and copied) and ``rows`` written in its inputs' storages."""

    layouts: tuple[Any, ...]
    moved: tuple[int, int]
    rows: tuple[Any, ...]


_WITH_TENSORS = frozenset({"Constant", "ConstantOfShape", "TfIdfVectorizer", "LabelEncoder"})

Key = tuple[GraphPath, str]
"""A node: path of its graph, and its name."""


def count_of(counts: Mapping[Any, int], graph: Graph, node: Node) -> int | None:
    found = counts.get((graph.path, node.name))
    return counts.get(node.name) if found is None else found


class Answers(dict[Any, int]):
    """The recorded results of the nodes of a graph, call by call. The mapping itself has branches and iterations by
    `Key`, if they were always the same, and given counts by name."""

    def __init__(self, graph: Graph, stated: Mapping[str, int]) -> None:
        super().__init__(stated)
        self.stated = dict(stated)
        often = Counter((part.path, node.name) for part, node in graph.walk())
        self.unclear = {key for key, times in often.items() if times > 1}
        self.calls: dict[Key, list[Answer]] = {}
        self.at: Counter[Key] = Counter()
        self.latest: tuple[Any, Sequence[Any]] = None, ()
        self.plans: dict[Any, dict[tuple, Any]] = {}  # made with these answers, by graph

    def doubts(self, node: Node) -> bool:
        """Whether the recorded result is used even if the node could be computed from known values."""
        return False

    def read_on(self) -> bool:
        """Add the results of one more run; False if there is none."""
        return False

    def next(self, key: Key, args: Sequence[Any]) -> Answer | None:
        """The recorded result of the next call of a node since `begin`; None if it is ambiguous or unknown."""
        self.at[key] += 1
        self.latest = key, args
        return self.of(key, args)

    def of(self, key: Key, args: Sequence[Any]) -> Answer | None:
        """The recorded result of the call with these arguments, which is the next or the latest one."""
        called = self.latest[0] == key and all(one is other for one, other in zip(args, self.latest[1]))
        place = self.at[key] - called
        while place >= len(self.calls.get(key, ())) and self.read_on():
            pass
        calls = self.calls.get(key, ())
        if place >= len(calls) or key in self.unclear:
            return None
        known = all(layout is None or layout[0] is not None for layout in calls[place].layouts)
        return calls[place] if known else None


class TraceAnswers(Answers):
    def __init__(self, trace: Trace, stated: Mapping[str, int]) -> None:
        super().__init__(trace.graph, stated)
        self.trace = trace
        self._due: list[Run] = []  # runs whose results are read when they are asked for, the next one last

    def begin(self, run: int, runs: int) -> None:
        """Use the results of ``runs`` runs from ``run`` on, up to one whose steps were not kept."""
        trace = self.trace
        self.at.clear()
        self.calls.clear()
        span = trace.runs[run : run + runs]
        kept = list(takewhile(lambda one: one.last > one.first, span))
        entered: dict[Key, set[int]] = {}
        iterations: Counter[tuple[int, int]] = Counter()
        frames = trace.log.frames
        for frame in frames:
            if frame.parent is None or frame.caller is None or not run <= frame.run < run + len(kept):
                continue
            if frame.caller.control == "If":
                caller = frames[frame.parent].program.graph.path, frame.control_node.name
                entered.setdefault(caller, set()).add(int(frame.attribute == "then_branch"))
            iterations[frame.parent, frame.control_node.index] += frame.iteration is not None
        self._due = kept[::-1]
        for number, op in self._loops(span[0].first, kept[-1].last) if kept else ():
            key = frames[number].program.graph.path, op.node.name
            entered.setdefault(key, set()).add(iterations[number, op.node.index])
        self.clear()
        if len(kept) == len(span):
            self.update(
                {key: min(found) for key, found in entered.items() if len(found) == 1 and key not in self.unclear}
            )
        self.update(self.stated)

    def _loops(self, first: int, stop: int) -> Iterator[tuple[int, OpNode]]:
        log = self.trace.log
        nodes = [number for number, op in enumerate(log.nodes.entries) if op.control == "Loop"]
        for step in np.flatnonzero(np.isin(log.column("node")[first:stop], nodes)).tolist() if nodes else ():
            frame, op, _ = log.called(first + step)
            yield frame, op

    def read_on(self) -> bool:
        if not self._due:
            return False
        run, frames, written = self._due.pop(), self.trace.log.frames, self.trace.log.declared.written
        for step, row in enumerate(self.trace.log[run.first : run.last], run.first):
            key = frames[row.frame].program.graph.path, row.op.node.name
            outs = tuple(None if out is None else (out.shape, out.dtype) for out in row.outs)
            self.calls.setdefault(key, []).append(Answer(outs, (row.written, row.copied), written.get(step, ())))
        return True

    def doubts(self, node: Node) -> bool:
        """Whether attributes of a node may be missing, so that it cannot be computed."""
        held = any(isinstance(value, np.ndarray) for value in node.attributes.values())
        # The file of a trace stores small tensors only.
        return self.trace.recipe is None and node.op_type in _WITH_TENSORS and not held
