"""Where every value of a trace lay, who read it, and how long every storage lived: looked up once for all questions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from kvviz.graph.model import Node
from kvviz.trace.lifetimes import Key, Life, Place, Walk


class Index:
    """What is asked of a trace again and again.

    ``members``: values that share bytes, in the order in which they were made.
    ``bodies``: frames that a control node opened.
    ``before``: of a frame that is not the first one of its control node: the frame of the iteration before.
    ``by_run``: frames of every run.
    ``lives``: in order of birth.
    ``mains``: the main frame of every run whose steps were kept.
    ``moments``: number of moments in all.
    ``notes``: what others worked out about this trace and want to keep.
    """

    def __init__(self, trace: Any) -> None:
        self.trace = trace.apart()
        self.trace.caches = trace.caches
        self.rows: list[Any] = trace.log.all()
        self.frames = trace.log.frames
        self.places: dict[Key, Place] = {}
        self.members: dict[tuple[int, int], list[Key]] = {}
        self.step_of: dict[tuple[int, int], int] = {}
        self.bodies: dict[tuple[int, int], list[int]] = {}
        self.before: dict[int, int] = {}
        self.by_run: dict[int, list[int]] = {}
        self.lives: list[Life] = []
        self.moments = len(self.rows) + len(trace.runs)
        self.notes: dict[str, Any] = {}
        self._starts = [self.binding(run.index) for run in trace.runs]
        self._inputs: dict[int, dict[str, int]] = {}
        self._lives: dict[int, list[Life]] = {}
        self._by_storage: dict[int, list[Key]] = {}
        self._made: dict[int, list[int]] = {}
        self.mains = {frame.run: i for i, frame in enumerate(self.frames) if frame.parent is None}
        for number, frame in enumerate(self.frames):
            self.by_run.setdefault(frame.run, []).append(number)
            if frame.parent is not None:
                siblings = self.bodies.setdefault((frame.parent, frame.caller.node.index), [])
                if siblings:
                    self.before[number] = siblings[-1]
                siblings.append(number)
        Walk(self).run()

    # -- values -----------------------------------------------------------------------------------------------------

    def moment(self, step: int) -> int:
        """The moment of a step."""
        return step + self.frames[self.rows[step].frame].run + 1

    def binding(self, run: int) -> int:
        """The moment before the first step of a run, when its inputs are bound."""
        return self.trace.runs[run].first + run

    def run_at(self, moment: int) -> int:
        """The run that a moment belongs to."""
        return max(bisect_right(self._starts, moment) - 1, 0)

    def life(self, storage: int, moment: int) -> Life:
        """The life that a storage has at a moment."""
        if not self._lives:
            for life in self.lives:
                self._lives.setdefault(life.storage, []).append(life)
        return next(life for life in reversed(self._lives[storage]) if life.first <= moment)

    def in_storage(self, storage: int) -> list[Key]:
        """Values that ever lay in a storage, in the order in which they were made."""
        if not self._by_storage:
            for (number, _), keys in self.members.items():
                self._by_storage.setdefault(number, []).extend(keys)
        return self._by_storage.get(storage, [])

    def made_in(self, storage: int) -> list[int]:
        """When these values were made: moments, in order. What a frame is given counts from the step before it."""
        if storage not in self._made:
            places = [(self.places[key], self.frames[key[0]].run) for key in self.in_storage(storage)]
            self._made[storage] = [place.step + run + (not place.bound) for place, run in places]
        return self._made[storage]

    def readers(self, frame: int, name: str) -> Iterator[tuple[Node, int]]:
        """Nodes of a frame that read a value, with their steps; those that have not run are left out."""
        for node in self.frames[frame].program.graph.consumers.get(name, ()):
            step = self.step_of.get((frame, node.index))
            if step is not None:
                yield node, step

    def path(self, frame: int) -> list[int]:
        """Frames from the main one to this one."""
        found = [frame]
        while (parent := self.frames[found[-1]].parent) is not None:
            found.append(parent)
        return found[::-1]

    def outputs(self, frame: int) -> tuple[str, ...]:
        """Names of what a frame hands out; for a main frame what the caller asked for."""
        return self.frames[frame].program.outputs

    def scanned(self, frame: int) -> tuple[str, ...]:
        """Outputs of a loop body that are collected until the loop ends."""
        row = self.frames[frame]
        if row.iteration is None or row.caller is None:
            return ()
        head, carried = head_and_carried(row.caller.node)
        return self.outputs(frame)[head // 2 + carried :]

    def outer(self, frame: int, name: str) -> Key | None:
        """The value of another frame that a body started with under this name; None for iteration numbers, slices of
        scan inputs and the inputs of the main graph."""
        row = self.frames[frame]
        if row.parent is None:
            return None
        position = self._position(row.program, name)
        if position is None:
            return row.parent, name
        node = row.caller.node
        if row.iteration is None:
            return (row.parent, node.inputs[position]) if position < len(node.inputs) else None
        head, carried = head_and_carried(node)
        carry = position - head
        if not 0 <= carry < carried or (node.op_type == "Scan" and node.opset < 9):
            return None
        if row.iteration:
            before = self.before[frame]
            return before, self.outputs(before)[head // 2 + carry]
        first = 2 if node.op_type == "Loop" else 0
        return row.parent, node.inputs[first + carry]

    def inner(self, frame: int, name: str) -> Key | None:
        """The value of a body that a control node handed out under this name, or the initial value where a loop had no
        iteration; None for what it made itself, as scan outputs."""
        place = self.places[frame, name]
        row = self.rows[place.step]
        node = row.op.node
        position, bodies = node.outputs.index(name), self.bodies.get((frame, node.index))
        if not bodies:
            first = 2 if row.op.control == "Loop" else int(node.opset < 9)
            carried = head_and_carried(node)[1]
            initial = (frame, node.inputs[first + position]) if position < carried else None
            # A policy may copy it.
            given = None if initial is None else self.places.get(initial)
            return initial if given is not None and given.storage == place.storage else None
        last = bodies[-1]
        names = self.outputs(last)
        if self.frames[last].iteration is not None:
            names = names[head_and_carried(node)[0] // 2 :]
        scanned = position >= len(names) or names[position] in self.scanned(last)
        return None if scanned else (last, names[position])

    def _position(self, plan: Any, name: str) -> int | None:
        """Which of a body's inputs a name is."""
        known = self._inputs.get(id(plan))
        if known is None:
            names = [value.name for value in plan.graph.inputs]
            known = self._inputs[id(plan)] = {name: i for i, name in reversed(list(enumerate(names)))}
        return known.get(name)


def head_and_carried(node: Node) -> tuple[int, int]:
    """Of a Loop or Scan: body inputs before the carried values, and the number of carried values."""
    if node.op_type == "Loop":
        return 2, len(node.inputs) - 2
    scanned = node.attributes.get("num_scan_inputs", len(node.inputs))
    return 0, max(len(node.inputs) - scanned - (node.opset < 9), 0)


def index_of(trace: Any) -> Index:
    """The index of a trace, made once for as long as the trace does not grow."""
    found: tuple[Any, Index] | None = trace.notes.get("index")
    if found is None or found[0] != trace.log.version:
        found = trace.notes["index"] = trace.log.version, Index(trace)
    return found[1]
