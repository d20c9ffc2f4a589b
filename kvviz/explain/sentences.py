"""One sentence for every step: the page, the table, the command line and a screen reader all say this one.

Invariant: the text depends on what was recorded only, never on who asks for it. `tell` and its kin make it of plain
facts, for those who read many steps at once; the others of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kvviz.graph.model import Node
from kvviz.ops.registry import find
from kvviz.trace.blockers import Blocker, BlockerCode
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.trace.units import buffer, count, short, size, size_of

# Which of several reasons a sentence names first. What lies in the op's own result comes before all others: an input
# of another shape could not have been taken over whoever owned it.
_UNFIT = (BlockerCode.SHAPE_DIFFERS, BlockerCode.DTYPE_DIFFERS)
_ORDER = (
    *_UNFIT,
    BlockerCode.NO_CAPACITY,
    BlockerCode.BORROWED_INPUT,
    BlockerCode.NOT_LAST_USE,
    BlockerCode.CAPTURED_BY_REFERENCE,
    BlockerCode.ALIASED,
    BlockerCode.REQUESTED_OUTPUT,
    BlockerCode.SAME_OP_TWICE,
    BlockerCode.NOT_CONTIGUOUS,
    BlockerCode.OTHER_INPUT_BUSY,
    BlockerCode.POLICY,
    BlockerCode.CONSTANT,
    BlockerCode.OP_CANNOT,
)

_RULES = {
    "in place": "last use, owned by the run, same shape and type",
    "append": "owned by the run, with room to grow",
    "view": "the op only looks at its input in another way",
    "passed": "the body hands its results out; nothing moves",
    "pool": "a freed buffer of the run was large enough",
}
# Why an input was refused, in two or three words.
_REFUSALS = {
    BlockerCode.SHAPE_DIFFERS: "another shape",
    BlockerCode.DTYPE_DIFFERS: "another type",
    BlockerCode.NO_CAPACITY: "no room to grow",
    BlockerCode.BORROWED_INPUT: "borrowed from the caller",
    BlockerCode.NOT_LAST_USE: "still read later",
    BlockerCode.CAPTURED_BY_REFERENCE: "captured by reference",
    BlockerCode.ALIASED: "another value lives there",
    BlockerCode.REQUESTED_OUTPUT: "an output of the run",
    BlockerCode.SAME_OP_TWICE: "read twice by this op",
    BlockerCode.NOT_CONTIGUOUS: "not row-major",
    BlockerCode.OTHER_INPUT_BUSY: "another input is busy",
    BlockerCode.POLICY: "the policy",
    BlockerCode.CONSTANT: "a weight",
}


class Out(NamedTuple):
    """Where one output of a step lives, as in `kvviz.trace.records.Placed`; ``weight``: in memory of the model."""

    name: str
    storage: int
    generation: int
    how: str
    nbytes: int
    shape: tuple[int, ...] | None
    weight: bool = False


class Grown(NamedTuple):
    """What an append added: rows and bytes; 0 and 0 where the past's shape is not known."""

    rows: int = 0
    nbytes: int = 0


UNKNOWN = Grown()


def sentence(step: Step, trace: Trace | None = None) -> str:
    """What a step did to memory, in one sentence.

    ``step``: a step of a trace.
    ``trace``: the trace that it comes from; with it, control nodes tell which body they ran, and appends how many
      rows they added.
    """
    decision = step.decision
    weights = in_weights(trace) if trace is not None else (lambda storage: False)
    outs = [Out(o.name, o.storage, o.generation, o.how, o.nbytes, o.shape, weights(o.storage)) for o in step.outs]
    bodies: Iterable[Any] | None = None
    grown = UNKNOWN
    source = ""
    if trace is not None and is_control(step.graph_node):
        bodies = [f for f in trace.frames if f.parent == step.frame_id and f.node is step.graph_node]
    if decision.taken:
        told = outs[main_output([o.how for o in outs])]
        source = (decision.shares or {}).get(told.name) or decision.taken[0]
        if trace is not None:
            grown = grown_by(told, decision.taken, trace.frames[step.frame_id].bindings)
    return tell(
        step.op_type,
        outs,
        blockers=decision.blockers,
        source=source,
        copied=step.copied,
        written=step.written,
        allocated=step.allocated,
        foreign=step.foreign,
        bodies=bodies,
        grown=grown,
    )


def ended(step: Step) -> str:
    """How a step ended, in a few words: ``"called in place, copied 160 B: no room to grow"``."""
    return tell_end(
        step.outcome,
        [o.how for o in step.outs],
        blockers=step.decision.blockers,
        copied=step.copied,
        written=step.written,
        allocated=step.allocated,
        control=is_control(step.graph_node),
    )


def rule(step: Step) -> str:
    """Why the decision fell as it did, in a few words: ``"last use, owned by the run, same shape and type"``."""
    return tell_rule(
        [o.how for o in step.outs],
        taken=bool(step.decision.taken),
        blockers=step.decision.blockers,
        control=is_control(step.graph_node),
        foreign=step.foreign,
    )


def grown_by(out: Out, taken: Iterable[str], bindings: Iterable[Any]) -> Grown:
    """What an append added, from the shape that the past had when its frame started."""
    if out.how != "append" or out.shape is None:
        return UNKNOWN
    past = next((b for b in bindings if b.storage == out.storage and b.name in taken), None)
    if past is None or past.shape is None or len(past.shape) != len(out.shape):
        return UNKNOWN
    longer = [(new - old, new) for old, new in zip(past.shape, out.shape) if new != old]
    if len(longer) != 1 or longer[0][0] <= 0:
        return UNKNOWN
    rows, length = longer[0]
    return Grown(rows, out.nbytes * rows // length)


def in_weights(trace: Trace) -> Callable[[int], bool]:
    """Tells of a storage whether it belongs to the model; of those no reader needs the number."""
    storages = trace.log.storages
    return lambda storage: storages[storage].origin == "weights"


def is_control(node: Node) -> bool:
    """Whether a node runs a body in a frame of its own: If, Loop, Scan, or a local function that has no kernel."""
    return bool(node.subgraphs) or (node.function is not None and find(node.domain, node.op_type, node.opset) is None)


def tell(
    op: str,
    outs: Sequence[Out],
    *,
    blockers: Sequence[Blocker] = (),
    source: str = "",
    copied: int = 0,
    written: int = 0,
    allocated: int = 0,
    foreign: bool = False,
    bodies: Iterable[Any] | None = None,
    grown: Grown = UNKNOWN,
) -> str:
    """The sentence itself, from plain facts, for those who read many steps at once.

    ``op``: operator.
    ``outs``: outputs that exist.
    ``source``: the input that was taken over; empty where none was.
    ``copied, written, allocated``: bytes.
    ``bodies``: the frames that a control node ran; None for every other op.
    ``grown``: for an append, what is known of the rows added.
    """
    if bodies is not None:
        return _tell_control(op, list(bodies))
    if not outs:
        return f"{op} made nothing that is kept."
    told = outs[main_output([o.how for o in outs])]
    if told.how in ("new", "pool"):
        text = _tell_new(op, outs, written, copied)
        if source:
            # The op was called in place; see `kvviz.trace.outcome`.
            text = f"{op} was called in place with {short(source)}, and{text.removeprefix(op)}{_refused(blockers)}"
        elif blockers and (allocated or copied):
            text += _because(op, blockers)
    else:
        if len(outs) > 1 and all(o.how == "view" and o.storage == told.storage for o in outs):
            place = "a weight" if told.weight else buffer(told.storage, told.generation)
            text = f"{op} made {len(outs)} views of {place}; nothing was written"
        else:
            text = _tell_shared(op, told, source, written, copied, grown, alone=len(outs) == 1)
            if len(outs) > 1:
                text += f" ({_also([o for o in outs if o is not told])})"
    return f"{text}; it ran on the reference kernel." if foreign else f"{text}."


def tell_end(
    outcome: str,
    hows: Sequence[str],
    *,
    blockers: Sequence[Blocker] = (),
    copied: int = 0,
    written: int = 0,
    allocated: int = 0,
    control: bool = False,
) -> str:
    """How a step ended in a few words: ``"called in place, copied 160 B: no room to grow"``.

    ``outcome``: one of `kvviz.trace.outcome.OUTCOMES`.
    ``hows``: where its outputs lie.
    ``copied, written, allocated``: bytes.
    """
    how = hows[main_output(hows)] if hows else ""
    if outcome == "elsewhere":
        spent = f"copied {size(copied)}" if copied else f"wrote {size(written)} elsewhere"
        return f"called in place, {spent}{_refused(blockers)}"
    if outcome == "missed":
        return f"copied {size(copied)}" if copied else f"not in place: {size(allocated or written)} in another buffer"
    if outcome == "in_place":
        return "in place: appended" if how == "append" else "in place"
    if outcome == "foreign":
        return "foreign kernel: never in place"
    if outcome == "view":
        return "a view: no bytes moved"
    if control:
        return "body done"
    return "buffer from the pool" if how == "pool" else "new buffer"


def _refused(blockers: Sequence[Blocker]) -> str:
    """Why the buffer of an op that was called in place could not hold the output."""
    codes = dict.fromkeys(b.code for b in blockers if b.code in _REFUSALS)
    return ": " + ", ".join(_REFUSALS[code] for code in sorted(codes, key=_ORDER.index)) if codes else ""


def tell_rule(
    hows: Sequence[str],
    *,
    taken: bool,
    blockers: Sequence[Blocker] = (),
    control: bool = False,
    foreign: bool = False,
) -> str:
    """The rule behind a decision, from plain facts; see `rule`."""
    if control:
        return "a body runs in a frame of its own"
    if foreign:
        return "no kernel of ours; the reference kernel never runs in place"
    how = hows[main_output(hows)] if hows else "new"
    if (taken and how in ("in place", "append")) or how in ("view", "passed"):
        return _RULES[how]
    refused = _refused(blockers)
    if refused:
        return f"{'called in place; its buffer did not fit' if taken else 'refused'}{refused}"
    return _RULES["pool"] if how == "pool" else "no input of this op may be overwritten"


def main_output(hows: Sequence[str]) -> int:
    """Which output a sentence is about: the first that was written in place, else the first."""
    for i, how in enumerate(hows) if len(hows) > 1 else ():
        if how in ("append", "in place"):
            return i
    return 0


def _tell_shared(op: str, out: Out, source: str, written: int, copied: int, grown: Grown, alone: bool) -> str:
    home = "a weight" if out.weight else buffer(out.storage, out.generation)
    if out.how == "view":
        return f"{op} is a view of {home}; nothing was written"
    if out.how == "passed":
        return f"{op} handed out {home}; nothing was written"
    if out.how == "append":
        added = grown.nbytes or (written if alone else 0)
        what = count(grown.rows, "row") if grown.rows else size(added) if added else "rows"
        text = f"{op} appended {what} to {buffer(out.storage)} in place; "
        if added == out.nbytes:
            return text + "the past was empty"
        return text + (f"{size_of(copied, out.nbytes - added)} of past copied" if added else f"{size(copied)} copied")
    over = short(source) if source else "its input"
    if alone and not written and out.nbytes:
        return f"{op} handed {over} on as it is: {buffer(out.storage)} is now {home}; nothing was written"
    if alone and written < out.nbytes:
        return f"{op} wrote {size_of(written, out.nbytes)} of {over} in place: {buffer(out.storage)} is now {home}"
    before = buffer(out.storage, max(out.generation - 1, 0))
    return f"{op} overwrote {over} in place: {before} is now {home}; nothing was allocated"


def _tell_new(op: str, outs: Sequence[Out], written: int, copied: int) -> str:
    fresh = [o for o in outs if o.how in ("new", "pool")]
    homes = " and ".join(buffer(o.storage, o.generation) for o in fresh[:2])
    if len(fresh) > 2:
        homes = f"{buffer(fresh[0].storage, fresh[0].generation)} and {len(fresh) - 1} more"
    if fresh[0].how == "pool":
        place = f"{homes}, which came from the pool"
    else:
        place = f"a new buffer {homes}" if len(fresh) == 1 else f"new buffers {homes}"
    if not written:
        return f"{op} made {place}"
    if copied == written:
        return f"{op} copied {size(copied)} to {place}"
    moved = f" ({size(copied)} of it copied)" if copied else ""
    return f"{op} wrote {size(written)}{moved} to {place}"


def _also(outs: Sequence[Out]) -> str:
    rest = [f"{o.how} {buffer(o.storage, o.generation)}" for o in outs[:2]]
    return f"and {', '.join(rest)}" + (f", {len(outs) - 2} more" if len(outs) > 2 else "")


def nearest(blockers: Iterable[Blocker]) -> list[Blocker]:
    """The reasons against the input that came nearest to being taken over; none where there are none.

    An input of another shape or type could not have been taken over whoever owned it, so it comes last.
    """
    inputs: dict[int, list[Blocker]] = {}
    for blocker in blockers:
        inputs.setdefault(blocker.position, []).append(blocker)
    return min(inputs.values(), key=lambda found: (sum(b.code in _UNFIT for b in found), len(found)), default=[])


def _because(op: str, blockers: Sequence[Blocker]) -> str:
    """The input that came nearest to being taken over, and what stood in the way."""
    found = nearest(b for b in blockers if b.code is not BlockerCode.OP_CANNOT)
    if not found:
        return ""
    first, *others = sorted(found, key=lambda b: _ORDER.index(b.code))
    text = _brief(first).removesuffix(".")
    text = f"; it {text.removeprefix(f'{op} ')}" if text.startswith(f"{op} ") else f"; {text}"
    if others:
        text += f", and {_brief(others[0]).rpartition(': ')[2].removesuffix('.')}"
    return text


def _brief(blocker: Blocker) -> str:
    """A blocker's message with long names cut."""
    text = blocker.message
    for name in (blocker.input, blocker.culprit):
        if len(name) > 60:
            text = text.replace(name, short(name))
    return text


def _tell_control(op: str, bodies: Sequence[Any]) -> str:
    if not bodies:
        return f"{op} ran no body."
    first = bodies[0]
    if first.attribute == "function":
        text = f"{op} ran its body, a local function"
    elif first.iteration is None:
        text = f"{op} {'took' if first.attribute.endswith('branch') else 'ran'} its {first.attribute}"
    else:
        text = f"{op} ran its {first.attribute} {count(len(bodies), 'time')}"
    hows = [b.how for b in first.bindings]
    told = [text]
    if "passed" in hows:
        told.append(f"it was passed {count(hows.count('passed'), 'value')}")
    captured = [
        f"{count(hows.count(f'captured by {how}'), 'value')} by {how}"
        for how in ("value", "reference")
        if f"captured by {how}" in hows
    ]
    if captured:
        told.append(f"it captured {' and '.join(captured)}")
    return "; ".join(told) + "."
