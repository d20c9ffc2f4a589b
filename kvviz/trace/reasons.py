"""From bit masks to reasons: the culprits, read from the trace on demand."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kvviz import public_trace
from kvviz.graph.model import Node
from kvviz.trace.blockers import Blocker, BlockerCode, Decision, codes, rules
from kvviz.trace.schema.element_types import nbytes
from kvviz.trace.schema.events import APPEND, IN_PLACE, NEW, POOL, VIEW, Bind, FrameEvent, Op, Output
from kvviz.trace.trace_data import Noted, TraceData


def decision_of(trace: TraceData, index: int) -> Decision:
    row = trace.log[index]
    node = row.op.node
    placed = [(name, where) for name, where in zip(node.outputs, row.outs) if where is not None]
    shares = {name: source for name, where in placed if (source := _source(trace, index, name, where))}
    blockers = tuple(_blocker(trace, index, *reason) for reason in _reasons(trace, index, bool(shares)))
    taken = tuple(node.inputs[position] for position in row.taken)
    return Decision("in_place" if taken else "run", taken, shares, blockers)


def blocker_codes(trace: TraceData, index: int) -> tuple[BlockerCode, ...]:
    """The codes of a step's blockers, each once, without a search for culprits."""
    return tuple(dict.fromkeys(code for _, code, _ in _reasons(trace, index, None)))


def _reasons(trace: TraceData, index: int, shared: bool | None) -> Iterator[tuple[int, BlockerCode, str]]:
    """The position of an input (-1: none), the code, and the sentence of a reason that only the trace's policy has.
    ``shared``: as in `_wholly`."""
    row, own = trace.log[index], trace.policy.rules
    if not trace.policy.decides:
        return
    for position, mask in row.masks:
        yield from ((position, code, "") for code in codes(mask))
        for number in rules(mask):
            yield position, BlockerCode.POLICY, own[number] if number < len(own) else _UNKNOWN
    whole = _wholly(trace, index, row, shared)
    if whole is not None:
        yield *whole, ""


def _wholly(trace: TraceData, index: int, row: Op, shared: bool | None) -> tuple[int, BlockerCode] | None:
    """Why an op that is not decided input by input did not share memory: the input and the reason. ``shared``: whether
    an output lies in the memory of an input; None if unknown."""
    planned, inputs = row.op, row.op.node.inputs
    if row.taken or row.masks or any(where is not None and where.how == IN_PLACE for where in row.outs):
        return None
    if planned.views and inputs and not trace.policy.places_outputs and row.written:
        if shared is None:
            pairs = zip(planned.node.outputs, row.outs)
            shared = any(where is not None and _source(trace, index, name, where) for name, where in pairs)
        if not shared:
            return _no_view(trace, index, planned.views[0])
    if planned.control or (planned.views and not (trace.policy.places_outputs and row.written)):
        return None
    return -1, BlockerCode.OP_CANNOT


def _no_view(trace: TraceData, index: int, position: int) -> tuple[int, BlockerCode]:
    """Why an op that may return a view wrote its output: another element type (Cast), the layout of its input, or
    because it computed something: Attention, of which only the presents can be views, or a Dropout in training."""
    row = trace.log[index]
    here = placed_before(trace, row.frame, row.op.node.inputs[position], index)
    out = row.outs[0]
    changed = here is not None and out is not None and here.shape is not None and str(here.dtype) != str(out.dtype)
    if changed and len(row.op.node.outputs) == 1:
        return position, BlockerCode.DTYPE_DIFFERS
    if row.copied == row.written:
        return position, BlockerCode.NOT_CONTIGUOUS
    return -1, BlockerCode.OP_CANNOT


def is_missed(trace: TraceData, row: Op) -> bool:
    """Whether an op could have run in place, or have been a view, by kind, and memory was spent because it did not.
    That includes an op that was called in place and allocated all the same. It excludes a Cast to another type and the
    like, which no layout of their input makes a view. Nothing is missed if the runtime made no in-place decisions."""
    if not trace.policy.decides:
        return False
    if row.masks:
        return bool(row.allocated or row.copied)
    planned = row.op
    if row.taken or not planned.views or planned.control or trace.policy.places_outputs:
        return False
    return 0 < row.copied == row.written and all(where.how in (NEW, POOL) for where in row.outs if where is not None)


def _source(trace: TraceData, index: int, output: str, where: Output) -> str:
    """The input (or capture) of a step in whose storage one of its outputs lives, or an empty string."""
    row = trace.log[index]
    node = row.op.node
    if where.how not in (IN_PLACE, VIEW, APPEND) and not row.op.control:
        return ""
    taken = {node.inputs[position] for position in row.taken}
    found = ""
    for name in (*node.inputs, *node.captures):
        if name:
            here = placed_before(trace, row.frame, name, index)
            if here is not None and here.storage == where.storage and not _died(trace, index, where.storage):
                if name in taken:
                    return name
                found = found or name
    return found


def _died(trace: TraceData, index: int, storage: int) -> bool:
    """Whether a storage was freed inside the body of a control node, so that a pool could hand it out again."""
    rows = trace.log
    if not rows[index].op.control:
        return False
    for step in range(index - 1, -1, -1):
        if rows[step].frame == rows[index].frame:
            break
        if storage in rows[step].freed:
            return True
    return False


def placed_before(trace: TraceData, frame: int, name: str, index: int) -> Output | Bind | None:
    """Where a value of a frame lies as of a step, or None."""
    graph = trace.log.frames[frame].program.graph
    producer = graph.producers.get(name)
    if producer is not None:
        step = trace.step_of(frame, producer.index)
        if step is None or step > index:
            return None
        return trace.log.output(step, producer.outputs.index(name))
    return trace.log.frames[frame].bound(name)


def offset_of(trace: TraceData, index: int) -> int:
    """Bytes from the start of its storage to what a step viewed or overwrote; `kvviz.trace.index.lifetimes.offsets`
    finds those of all steps."""
    known: dict[int, int] = looked_up(trace, "offsets", dict)
    asked: list[int] = []
    maker: int | None = index
    while maker is not None and maker not in known:
        asked.append(maker)
        frame, op, taken = trace.log.called(maker)
        name = op.node.inputs[taken[0] if taken else 0]
        here = placed_before(trace, frame, name, maker - 1)
        offset = 0 if here is None else here.offset
        if offset is None:
            maker = trace.step_of(frame, trace.log.frames[frame].program.graph.producers[name].index)
        else:
            known[maker] = offset
    found = 0 if maker is None else known[maker]
    known.update(dict.fromkeys(asked, found))
    return found


def next_reader(trace: TraceData, frame: int, name: str, index: int, but: Node | None = None) -> tuple[str, int | None]:
    """The next op after a step that reads a value: (node name, its step or None if it has not run)."""
    known: dict[Any, Any] = looked_up(trace, "readers", dict)
    found: tuple[list[tuple[int, Node]], list[Node]] | None = known.get((frame, name))
    if found is None:
        plan = trace.log.frames[frame].program
        nodes = plan.graph.consumers.get(name, ())
        steps = [(trace.step_of(frame, node.index), node) for node in nodes]
        ran = sorted(((step, node) for step, node in steps if step is not None), key=lambda pair: pair[0])
        due = [node for step, node in steps if step is None]
        planned = {id(one.node) for one in plan.order} if due else set()
        found = known[frame, name] = ran, [node for node in due if id(node) in planned]
    ran, due = found
    for step, node in ran[bisect_right(ran, index, key=lambda pair: pair[0]) :]:
        if node is not but:
            return node.name, step
    return next(((node.name, None) for node in due if node is not but), ("", None))


def looked_up(trace: TraceData, what: str, make: Callable[[], Noted]) -> Noted:
    """A result kept as long as the trace gets no new rows."""
    found = trace.notes.get(what)
    if found is None or found[0] != trace.log.version:
        found = trace.notes[what] = trace.log.version, make()
    known: Noted = found[1]
    return known


def _culprit(trace: TraceData, index: int, name: str, code: BlockerCode) -> tuple[str, int | None]:
    """Who stands in the way, and at which step if it is an op that has run."""
    frame = trace.log[index].frame
    if code is BlockerCode.NOT_LAST_USE:
        return next_reader(trace, frame, name, index)
    if code is BlockerCode.CAPTURED_BY_REFERENCE:
        return _outer_reader(trace, frame, name, index)
    return _owner(trace, index, name, code), None


def _owner(trace: TraceData, index: int, name: str, code: BlockerCode) -> str:
    """Who stands in the way, other than a later reader."""
    row = trace.log[index]
    frame = row.frame
    if code is BlockerCode.ALIASED:
        return _alias(trace, index, name)
    if code is BlockerCode.REQUESTED_OUTPUT:
        caller = trace.log.frames[frame].caller
        return caller.node.name if caller is not None else "the caller"
    if code is BlockerCode.BORROWED_INPUT:
        return "the caller"
    if code is BlockerCode.POLICY:
        return trace.policy.name
    if code is BlockerCode.NO_CAPACITY:
        return f"the buffer of {name}"
    if code is BlockerCode.OP_CANNOT:
        return row.op.node.op_type
    if code is BlockerCode.SAME_OP_TWICE:
        return row.op.node.name
    return name


def _outer_reader(trace: TraceData, frame: int, name: str, index: int) -> tuple[str, int | None]:
    """Who still needs a value that a body only borrows: a later reader outside, or the next iteration of the loop."""
    row = trace.log.frames[frame]
    if row.parent is None or row.caller is None:
        return "the caller", None
    caller, parent = row.caller.node, trace.log.frames[row.parent]
    outer = _name_outside(row, name)
    if row.iteration is not None and not outer:
        return f"the next iteration of {caller.name}", None
    outer = outer or name
    reader, step = next_reader(trace, row.parent, outer, index, but=caller)
    if reader:
        return reader, step
    if outer in parent.program.wanted:
        return parent.caller.node.name if parent.caller is not None else "the caller", None
    if any(bound.name == outer and bound.how.startswith("captured") for bound in parent.bindings):
        return _outer_reader(trace, row.parent, outer, index)
    return caller.name, None


def _name_outside(row: FrameEvent, name: str) -> str:
    """The outer name of an argument of a body; empty for a capture, which keeps its name."""
    assert row.caller is not None
    node = row.caller.node
    inputs = [value.name for value in row.program.graph.inputs]
    if name not in inputs:
        return ""
    # Scan-8 has the sequence lengths in front of the body's inputs.
    position = inputs.index(name) + (node.op_type == "Scan" and node.opset < 9)
    return node.inputs[position] if position < len(node.inputs) else ""


def _alias(trace: TraceData, index: int, name: str) -> str:
    """Another value in the same storage that is still needed, by this op or after it."""
    frames, rows = trace.log.frames, trace.log
    frame: int | None = rows[index].frame
    assert frame is not None
    here = placed_before(trace, frame, name, index)
    if here is None:
        return ""
    run = frames[frame].run
    placed = looked_up(trace, f"placed in {run}", partial(_placed, trace, run)).get(here.storage, [])
    for step, output in reversed(placed[: bisect_left(placed, (index, ""))]):
        if output != name and _is_needed(trace, rows[step].frame, output, index):
            return output
    while frame is not None:
        for bound in frames[frame].bindings:
            if bound.storage == here.storage and bound.name != name and _is_needed(trace, frame, bound.name, index):
                return bound.name
        frame = frames[frame].parent
    return "another view"


def _placed(trace: TraceData, run: int) -> dict[int, list[tuple[int, str]]]:
    """By storage, the steps of a run that put an output there, with its name; for one step the first output last."""
    frames, rows = trace.log.frames, trace.log
    found: dict[int, list[tuple[int, str]]] = {}
    for step in range(trace.runs[run].first, len(rows)):
        if frames[rows[step].frame].run != run:
            break
        for output, where in reversed(list(zip(rows[step].op.node.outputs, rows[step].outs))):
            if where is not None:
                found.setdefault(where.storage, []).append((step, output))
    return found


def _is_needed(trace: TraceData, frame: int, name: str, index: int) -> bool:
    return name in trace.log.frames[frame].program.wanted or bool(next_reader(trace, frame, name, index - 1)[0])


def _blocker(trace: TraceData, index: int, position: int, code: BlockerCode, rule: str) -> Blocker:
    """``rule``: the sentence of a reason that only the trace's policy has."""
    row = trace.log[index]
    node = row.op.node
    name = node.inputs[position] if position >= 0 else ""
    culprit, step = _culprit(trace, index, name, code)
    called = culprit if step is None else f"{culprit} (step {step})"
    facts = {"op": node.op_type, "input": name, "culprit": called, "policy": trace.policy.name, "more": ""}
    if code in (BlockerCode.NO_CAPACITY, BlockerCode.SHAPE_DIFFERS, BlockerCode.DTYPE_DIFFERS):
        facts["more"] = _sizes(trace, index, position, code)
    cost = row.copied if code in (BlockerCode.NO_CAPACITY, BlockerCode.NOT_CONTIGUOUS) and row.copied else row.allocated
    cost = cost or (row.copied if rule else 0)
    text = rule or (_COMPUTES if code is BlockerCode.OP_CANNOT and row.op.views else TEXTS[code])
    find = partial(public_trace.fix_of, trace, index)
    return Blocker(code, name, position, culprit, text.format(**facts), cost, find)


def _sizes(trace: TraceData, index: int, position: int, code: BlockerCode) -> str:
    row = trace.log[index]
    here = placed_before(trace, row.frame, row.op.node.inputs[position], index) if position >= 0 else None
    presents = [row.outs[grow.output] for grow in row.op.grows if grow.input == position]
    out = next((p for p in (*presents, *row.outs) if p is not None), None)
    if here is None or out is None or here.shape is None or out.shape is None:
        return ""
    if code is BlockerCode.DTYPE_DIFFERS:
        return f": it holds {here.dtype}, the output {out.dtype}"
    if code is BlockerCode.SHAPE_DIFFERS:
        return f": it is {list(here.shape)}, the output {list(out.shape)}"
    axis = next((i for i, (n, m) in enumerate(zip(here.shape, out.shape)) if n != m), None)
    if axis is None or not here.shape[axis]:
        return ""
    size = nbytes(here.shape, here.dtype)
    have = trace.log.storages[here.storage].capacity * here.shape[axis] // size if size else 0
    if have >= out.shape[axis]:
        return ": it lies in a larger buffer, the rest of which is not reserved for it"
    return f": it holds {have} row{'s' * (have != 1)} along axis {axis}, and {out.shape[axis]} are needed"


# For an op that returns views in other cases, or appends if it gets a past.
_UNKNOWN = "{op} did not take {input}: {policy}"
_COMPUTES = "{op} has no input here that could hold what it computes"
TEXTS = {
    BlockerCode.NOT_LAST_USE: "{op} cannot overwrite {input}: {culprit} still reads it",
    BlockerCode.REQUESTED_OUTPUT: "{op} cannot overwrite {input}: {culprit} takes it as an output",
    BlockerCode.BORROWED_INPUT: "{op} cannot overwrite {input}: it belongs to the caller, who did not donate it",
    BlockerCode.CONSTANT: "{op} cannot overwrite {input}: it is a weight of the model",
    BlockerCode.CAPTURED_BY_REFERENCE: (
        "{op} cannot overwrite {input}: it is borrowed from outside this subgraph, where {culprit} needs it"
    ),
    BlockerCode.ALIASED: "{op} cannot overwrite {input}: {culprit} lives in the same storage",
    BlockerCode.SAME_OP_TWICE: "{op} cannot overwrite {input}: it reads that value twice",
    BlockerCode.SHAPE_DIFFERS: "{op} cannot overwrite {input}: its shape is not that of the output{more}",
    BlockerCode.DTYPE_DIFFERS: "{op} cannot overwrite {input}: its type is not that of the output{more}",
    BlockerCode.NO_CAPACITY: "{op} cannot append to {input}: its buffer has no room reserved{more}",
    BlockerCode.NOT_CONTIGUOUS: "{op} cannot reuse {input}: its values do not lie in row-major order",
    BlockerCode.OTHER_INPUT_BUSY: "{op} cannot overwrite {input}: another of its inputs could not be taken over",
    BlockerCode.OP_CANNOT: "{op} never runs in place",
    BlockerCode.POLICY: "the policy {policy!r} runs nothing in place",
}
