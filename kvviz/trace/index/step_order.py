"""Which steps of a run the graph itself puts in order: questions about two steps, close to linear in all.

The steps and two marks for each body, its start and its end, are the nodes of a graph without circles. Two walks
through it give every node a number and an interval. Within the interval of one walk's tree the answer is yes; out of
the interval of all that a node can reach it is no; a search between the two steps decides the rest.

References
----------
H. Yıldırım, V. Chaoji, M. Zaki: GRAIL, scalable reachability index for large graphs, VLDB 2010.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvviz.trace.index.frame_values import head_and_carried
from kvviz.trace.index.lifetimes import Key
from kvviz.trace.index.value_index import Index
from kvviz.trace.schema.events import OpNode

_APART = 4


class Reachability:
    """The order that the graph gives to the steps of one run."""

    def __init__(self, index: Index, run: int) -> None:
        self.index = index
        self.first, last = index.trace.runs[run].first, index.trace.runs[run].last
        self.steps = last - self.first
        self._makers: dict[Key, int] = {}
        bodies = [number for number in index.by_run.get(run, ()) if index.frames[number].parent is not None]
        self._start = {number: self.steps + 2 * i for i, number in enumerate(bodies)}
        # Nodes by number: the steps, then start and end of each body. What a node waits for, and a step that is not
        # before any of that.
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
        self._walks = (self._walk(True), self._walk(False)) if self.steps else ()
        # It is kept by the index, and must not keep it in turn.
        del self.index

    def ordered(self, first: int, second: int) -> bool:
        """Whether a path of the graph leads from one step of the run to a later one."""
        return bool(self.before({first}, second))

    def before(self, steps: set[int], late: int) -> set[int]:
        """Those of the steps from which a path of the graph leads to a later step of the run."""
        node = late - self.first
        known = {step: self._known_order(step - self.first, node) for step in steps}
        unsure = {step - self.first for step, answer in known.items() if answer is None}
        # A search for one step leaves out more than a search for all of them, but there may be many.
        parts = [unsure] if len(unsure) > _APART else [{step} for step in unsure]
        found = {step + self.first for part in parts for step in self._search(part, node)}
        return found | {step for step, answer in known.items() if answer}

    def path(self, first: int, second: int) -> tuple[int, ...]:
        """The steps of a shortest path of the graph from one step of the run to a later one, both with it; empty where
        there is none."""
        start, node = first - self.first, second - self.first
        came: dict[int, int] = {node: -1}
        ahead = [node]
        while ahead and start not in came:
            further = []
            for late in ahead:
                for wait in self._waits[late]:
                    if (
                        wait not in came
                        and self._when[wait] >= start
                        and (wait == start or self._known_order(start, wait) is not False)
                    ):
                        came[wait] = late
                        further.append(wait)
            ahead = further
        if start not in came:
            return ()
        found = [start]
        while found[-1] != node:
            found.append(came[found[-1]])
        return tuple(step + self.first for step in found if step < self.steps)

    def _search(self, wanted: set[int], node: int) -> set[int]:
        """Those of the nodes from which a path leads to a later one, by going back from there."""
        lowest, alone = min(wanted), min(wanted) if len(wanted) == 1 else None
        found: set[int] = set()
        seen, stack = {node}, [node]
        while stack and len(found) < len(wanted):
            for wait in self._waits[stack.pop()]:
                if wait in seen or self._when[wait] < lowest:
                    continue
                seen.add(wait)
                ordered = None if alone is None or wait == alone else self._known_order(alone, wait)
                if wait in wanted or ordered:
                    found.add(wait if alone is None else alone)
                if ordered is None:
                    stack.append(wait)
        return found

    def _known_order(self, early: int, late: int) -> bool | None:
        """Whether one node comes before another, as far as the two walks show; None if they do not."""
        for enter, low, rank in self._walks:
            if enter[late] <= rank[early] < rank[late]:
                return True
            if low[early] < low[late] or rank[early] > rank[late]:
                return False
        return None

    # -- what waits for what ----------------------------------------------------------------------------------------

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
        """A body waits for the inputs that control its node, and for the iteration before."""
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
        """The step that made a value, in whichever frame; -1 where it comes from outside of the run."""
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

    # -- numbers ----------------------------------------------------------------------------------------------------

    def _walk(self, forward: bool) -> tuple[list[int], list[int], list[int]]:
        """Depth first along what each node waits for.

        ``enter, low, rank``: by node: the count when it was met; the smallest ``rank`` of all that it waits for; the
          count when it was left. ``forward`` says from which side nodes are taken.
        """
        total = len(self._waits)
        enter, low, rank = [-1] * total, [0] * total, [0] * total
        count = 0
        awaited = {wait for waits in self._waits for wait in waits}
        ends = [node for node in range(total) if node not in awaited]
        for root in ends if forward else reversed(ends):
            enter[root] = low[root] = count
            stack = [(root, iter(self._ordered(root, forward)))]
            while stack:
                node, rest = stack[-1]
                for wait in rest:
                    if enter[wait] < 0:
                        enter[wait] = low[wait] = count
                        stack.append((wait, iter(self._ordered(wait, forward))))
                        break
                    low[node] = min(low[node], low[wait])
                else:
                    rank[node] = count
                    count += 1
                    stack.pop()
                    if stack:
                        above = stack[-1][0]
                        low[above] = min(low[above], low[node])
        return enter, low, rank

    def _ordered(self, node: int, forward: bool) -> list[int]:
        return sorted(self._waits[node], key=self._when.__getitem__, reverse=not forward)


def _awaited(planned: OpNode) -> tuple[str, ...]:
    """Of a control node the inputs that decide whether its body runs; the rest is read by the body."""
    inputs = planned.node.inputs
    if planned.control == "Scan":
        return inputs[head_and_carried(planned.node)[1] :]
    return inputs[: {"If": 1, "Loop": 2}.get(planned.control, 0)]
