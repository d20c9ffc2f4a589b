"""Which steps of a run the graph itself orders.

The steps, and a start and an end mark for each body, are the nodes of an acyclic graph; a search goes back from the
later step, no further than the earliest step in question.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvviz.trace.index.frame_values import head_and_carried
from kvviz.trace.index.lifetimes import Key
from kvviz.trace.index.value_index import Index
from kvviz.trace.schema.events import OpNode


class Reachability:
    def __init__(self, index: Index, run: int) -> None:
        self.index = index
        self.first, last = index.trace.runs[run].first, index.trace.runs[run].last
        self.steps = last - self.first
        self._makers: dict[Key, int] = {}
        bodies = [number for number in index.by_run.get(run, ()) if index.frames[number].parent is not None]
        self._start = {number: self.steps + 2 * i for i, number in enumerate(bodies)}
        # Nodes by number: the steps, then start and end of each body. By node: what it waits for, and a step that is
        # not before any of that.
        self._waits: list[list[int]] = []
        self._when = [*range(self.steps), *(0,) * (2 * len(bodies))]
        ends: dict[int, list[int]] = {number: [self._start[number]] for number in bodies}
        for step in range(self.steps):
            number, planned = index.rows[self.first + step][:2]
            self._waits.append(self._of_step(number, planned))
            if number in ends:
                ends[number].append(step)
        for number in bodies:
            start = self._start[number]
            self._waits += [self._of_start(number), ends[number]]
            self._when[start] = index.frames[number].opened - self.first - 1
            self._when[start + 1] = max(self._when[start], ends[number][-1] if len(ends[number]) > 1 else -1)
        # The index keeps this object, so it must not keep the index.
        del self.index

    def before(self, steps: set[int], late: int) -> set[int]:
        """Those of the steps from which a path of the graph leads to a later step of the run."""
        wanted, node = {step - self.first for step in steps}, late - self.first
        lowest, found = min(wanted), set[int]()
        seen, stack = {node}, [node]
        while stack and len(found) < len(wanted):
            for wait in self._waits[stack.pop()]:
                if wait not in seen and self._when[wait] >= lowest:
                    seen.add(wait)
                    stack.append(wait)
                    if wait in wanted:
                        found.add(wait + self.first)
        return found

    def path(self, first: int, second: int) -> tuple[int, ...]:
        """The steps of a shortest path of the graph from one step of the run to a later one, inclusive; empty if
        none."""
        start, node = first - self.first, second - self.first
        came: dict[int, int] = {node: -1}
        ahead = [node]
        while ahead and start not in came:
            further = []
            for late in ahead:
                for wait in self._waits[late]:
                    if wait not in came and self._when[wait] >= start:
                        came[wait] = late
                        further.append(wait)
            ahead = further
        if start not in came:
            return ()
        found = [start]
        while found[-1] != node:
            found.append(came[found[-1]])
        return tuple(step + self.first for step in found if step < self.steps)

    def _of_step(self, number: int, planned: Any) -> list[int]:
        node = planned.node
        found = self._makers_of(number, (*node.inputs, *node.captures))
        if number in self._start:
            found.append(self._start[number])
        if planned.control:
            # A control node is complete when its bodies are.
            found += [self._start[body] + 1 for body in self.index.bodies.get((number, node.index), ())]
        return found

    def _of_start(self, number: int) -> list[int]:
        """A body waits for the inputs that control its node, and for the previous iteration."""
        row = self.index.frames[number]
        assert row.parent is not None and row.caller is not None
        found = self._makers_of(row.parent, _awaited(row.caller))
        if row.parent in self._start:
            found.append(self._start[row.parent])
        if number in self.index.before:
            found.append(self._start[self.index.before[number]] + 1)
        return found

    def _makers_of(self, number: int, names: Iterable[str]) -> list[int]:
        makers = {self._maker(number, name) for name in names if name}
        return [maker for maker in makers if maker >= 0]

    def _maker(self, number: int, name: str) -> int:
        """The step that made a value, in any frame; -1 if it comes from outside the run."""
        index, asked = self.index, []
        key: Key | None = (number, name)
        found = -1
        while key is not None:
            if key in self._makers:
                found = self._makers[key]
                break
            asked.append(key)
            producer = index.frames[key[0]].program.graph.producers.get(key[1])
            if producer is not None:
                step = index.step_of(key[0], producer.index)
                inside = step is not None and self.first <= step < self.first + self.steps
                found = step - self.first if step is not None and inside else -1
                break
            key = index.outer(*key)
        self._makers.update(dict.fromkeys(asked, found))
        return found


def _awaited(planned: OpNode) -> tuple[str, ...]:
    """Of a control node, the inputs that decide whether its body runs; the body reads the others."""
    inputs = planned.node.inputs
    if planned.control == "Scan":
        return inputs[head_and_carried(planned.node)[1] :]
    return inputs[: {"If": 1, "Loop": 2}.get(planned.control, 0)]
