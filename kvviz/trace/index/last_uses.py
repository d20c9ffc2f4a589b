"""Which ops ran in every frame, and the last step that used each value and each storage.

Frames that ran the same ops in the same order, as the runs of a decode and the iterations of a loop do, are looked at
together: what an op reads is looked up once for all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.trace.index.lifetimes import Ints, Lives, LogValues
from kvviz.trace.schema.events import PASSED, OpNode


class Ran:
    """Ops that ran one after the other, in one frame or several.

    ``makers``: by name of a value, the position of the op that made it, and which output it is.
    ``reads``: reader, maker, output; one row for each value that an op reads and another one made before.
    ``given``: position of the reader, and the name, of what no op before it made.
    ``control``: positions of those that enter bodies.
    """

    __slots__ = ("control", "given", "makers", "reads")

    def __init__(self, ops: tuple[OpNode, ...]) -> None:
        self.makers: dict[str, tuple[int, int]] = {}
        self.given: list[tuple[int, str]] = []
        self.control: Ints = np.array([bool(op.control) for op in ops], bool)
        reads: list[tuple[int, int, int]] = []
        for position, op in enumerate(ops):
            for name in filter(None, dict.fromkeys(op.node.inputs)):
                if name in self.makers:
                    reads.append((position, *self.makers[name]))
                else:
                    self.given.append((position, name))
            self.makers.update((name, (position, slot)) for slot, name in enumerate(op.node.outputs))
        self.reads: Ints = np.array(reads, np.int64).reshape(-1, 3)


class FrameSteps:
    """The steps of every frame, in order, and what they read.

    ``ran``: the ops, by frame.
    """

    def __init__(self, values: LogValues) -> None:
        self.values = values
        count = len(values.log.frames)
        self._steps: Ints = np.argsort(values.frame, kind="stable")
        self._starts: Ints = np.searchsorted(values.frame[self._steps], np.arange(count + 1))
        known: dict[tuple[OpNode, ...], Ran] = {}
        self.ran: list[Ran] = []
        for frame in range(count):
            steps = self.of(frame)
            if len(steps) and steps[-1] - steps[0] + 1 == len(steps):
                ops = tuple(values.ops[steps[0] : steps[-1] + 1])
            else:
                ops = tuple(values.ops[step] for step in steps.tolist())
            if ops not in known:
                known[ops] = Ran(ops)
            self.ran.append(known[ops])

    def of(self, frame: int) -> Ints:
        """The steps of a frame, in order."""
        return self._steps[self._starts[frame] : self._starts[frame + 1]]

    def reads(self) -> tuple[Ints, Ints, np.ndarray[Any, np.dtype[np.bool_]]]:
        """All reads of values: the values, the steps that read them, and whether these enter bodies."""
        values = self.values
        frames: dict[Ran, list[int]] = {}
        for frame, ran in enumerate(self.ran):
            frames.setdefault(ran, []).append(frame)
        bounds = np.searchsorted(values.bind_frames, np.arange(len(self.ran) + 1)).tolist()
        found, readers, control = [], [], []
        for ran, alike in frames.items():
            steps = np.stack([self.of(frame) for frame in alike])
            reader, maker, slot = ran.reads.T
            made = steps[:, maker]
            there = slot < values.counts[made]
            given = [self._given(frame, ran, *bounds[frame : frame + 2]) for frame in alike]
            found += [(values.begins[made] + slot)[there], np.concatenate(given)]
            positions = np.array([position for position, _ in ran.given], np.int64)
            readers += [steps[:, reader][there], steps[:, positions].ravel()]
            control += [np.broadcast_to(ran.control[reader], there.shape)[there]]
            control += [np.tile(ran.control[positions], len(alike))]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool)
        value, step, enters = np.concatenate(found), np.concatenate(readers), np.concatenate(control)
        there = (value >= 0) & (values.storage[value] >= 0)
        return value[there], step[there], enters[there]

    def _given(self, frame: int, ran: Ran, first: int, stop: int) -> Ints:
        """The numbers of what a frame was given and its ops read; -1 for what it was not given."""
        values = self.values
        numbers = {values.binds[at].name: at + values.outputs for at in range(first, stop)}
        return np.array([numbers.get(name, -1) for _, name in ran.given], np.int64)


def last_uses(steps: FrameSteps, lives: Lives, entered: dict[int, int], scanned: list[tuple[int, int]]) -> Ints:
    """The last step that made or read every value; sets ``used`` of the lives.

    ``entered``: the step at which the first body of a control node was opened, by the node's own step: what the node
    reads, it reads then; the rest is read by the steps of its bodies. For values this does not count as reading.
    ``scanned``: (storage, step) of what a loop collected at its end.
    """
    values = steps.values
    value, step, enters = steps.reads()
    last = values.step.copy()
    np.maximum.at(last, value[~enters], step[~enters])
    when = np.arange(len(values.ops))
    for node, opened in entered.items():
        when[node] = min(opened, node)
    made = np.flatnonzero((values.storage[: values.outputs] >= 0) & (values.how[: values.outputs] != PASSED))
    taken: Ints = np.array(scanned, np.int64).reshape(-1, 2)
    life = np.concatenate([lives.at(values.storage[value], step), lives.life[made], lives.at(*taken.T)])
    used = np.concatenate([when[step], values.step[made], taken[:, 1]])
    np.maximum.at(lives.used, life[life >= 0], used[life >= 0])
    return last
