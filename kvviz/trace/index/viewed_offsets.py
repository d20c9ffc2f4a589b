"""Offsets of outputs in the storage of an input: `kvviz.trace.reasons.offset_of`, for many steps at once."""

from __future__ import annotations

import numpy as np

from kvviz.trace.schema.log import Ints, Log, distinct


def viewed_offsets(log: Log, ops: Ints, outs: Ints, steps: Ints) -> Ints:
    """Bytes from the start of its storage to what each of these steps viewed or overwrote. ``ops, outs``: the columns
    of the log. ``steps``: with an output whose offset is not recorded. The viewed value may itself be the output of
    such a step, and so on to one whose offset is known."""
    if not len(steps):
        return np.zeros(0, np.int64)
    ends = ops[:, -1]
    made = np.repeat(np.arange(len(ops)), np.diff(ends, prepend=0))
    chained, _ = distinct(made[(outs[:, 0] >= 0) & (outs[:, 3] < 0)], len(ops))
    maker, slot = _makers(log, ops, chained)
    made = np.flatnonzero(maker >= 0)
    at = np.where(maker[made] > 0, ends[maker[made] - 1], 0) + slot[made]
    if (at >= ends[maker[made]]).any():
        raise ValueError("it has a view of an output that its op does not have")
    offsets = np.zeros(len(chained), np.int64)
    there = outs[at, 0] >= 0
    offsets[made] = np.where(there, outs[at, 3], 0)
    for place in np.flatnonzero(maker < 0).tolist():
        frame, op, taken = log.called(int(chained[place]))
        bound = log.frames[frame].bound(op.node.inputs[taken[0] if taken else 0])
        offsets[place] = 0 if bound is None else bound.offset
    before = np.arange(len(chained))
    further = made[there & (outs[at, 3] < 0)]
    before[further] = np.searchsorted(chained, maker[further])
    # All of them follow twice as many views at a time, until each is at the last one.
    while not np.array_equal(before, before[before]):
        before = before[before]
    return offsets[before][np.searchsorted(chained, steps)]


def _makers(log: Log, ops: Ints, steps: Ints) -> tuple[Ints, Ints]:
    """The steps that made what some steps viewed or overwrote, -1 if no earlier one did, and which output it is."""
    nodes = log.nodes.entries
    indices, index = np.unique([op.node.index for op in nodes], return_inverse=True)
    numbers = {number: place for place, number in enumerate(indices.tolist())}
    ran = ops[:, 0] * len(indices) + index[ops[:, 1]]
    order = np.argsort(ran, kind="stable")
    graphs = dict.fromkeys(id(frame.program.graph) for frame in log.frames)
    places = {graph: place for place, graph in enumerate(graphs)}
    of_frame = np.array([places[id(frame.program.graph)] for frame in log.frames])
    frame, node, refusal = ops[steps, :3].T
    asked = len(log.refusals.entries)
    key = (of_frame[frame] * len(nodes) + node) * asked + refusal
    kinds, kind = distinct(key, len(graphs) * len(nodes) * asked)
    examples = np.zeros(len(kinds), np.int64)
    examples[kind] = np.arange(len(steps))
    found = np.full((len(kinds), 2), -1)
    for place, example in enumerate(examples.tolist()):
        at, op, taken = log.called(int(steps[example]))
        name = op.node.inputs[taken[0] if taken else 0]
        producer = log.frames[at].program.graph.producers.get(name)
        if producer is not None and producer.index in numbers:
            found[place] = numbers[producer.index], producer.outputs.index(name)
    number, slot = found[kind].T
    wanted = frame * len(indices) + number
    place = np.searchsorted(ran[order], wanted, "right") - 1
    maker = order[np.maximum(place, 0)]
    earlier = (number >= 0) & (place >= 0) & (ran[maker] == wanted) & (maker < steps)
    return np.where(earlier, maker, -1), slot
