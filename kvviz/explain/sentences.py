"""One sentence for every step: the page, the table, the command line and screen readers all use it.

Invariant: the text depends only on what was recorded, never on who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kvviz.graph.model import Node
from kvviz.ops.registry import find
from kvviz.trace.blockers import Blocker, BlockerCode
from kvviz.trace.recording import Trace
from kvviz.trace.records import Placed, Step
from kvviz.trace.schema.events import grown
from kvviz.trace.units import buffer, count, short, size, size_of

_RULES = {
    "in place": "last use, owned by the run, same shape and type",
    "append": "owned by the run, with room to grow",
    "view": "the op only looks at its input in another way",
    "passed": "the body hands its results out; nothing moves",
    "pool": "a freed buffer of the run was large enough",
}
REFUSALS = {
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
"""Why an input was refused, in two or three words."""
# The order in which a sentence names reasons is that of the table. Those in the op's own result come first: an input of
# another shape could not have been taken over under any owner.
_ORDER = (*REFUSALS, BlockerCode.OP_CANNOT)
_UNFIT = (BlockerCode.SHAPE_DIFFERS, BlockerCode.DTYPE_DIFFERS)


class Grown(NamedTuple):
    """What an append added: rows and bytes; both 0 if the past's shape is not known."""

    rows: int = 0
    nbytes: int = 0


UNKNOWN = Grown()


class Facts(NamedTuple):
    """The facts from which the words of a step are made.

    ``op``: operator.
    ``outs``: outputs that exist.
    ``source``: the input that was taken over; empty if there is none.
    ``copied, written, allocated``: bytes.
    ``foreign``: it ran on the reference kernel.
    ``control``: it runs a body in a frame of its own.
    ``bodies``: the frames that it ran, if known.
    ``grown``: for an append, the rows added, if known.
    ``weights``: whether a storage belongs to the model; readers do not need the numbers of these.
    """

    op: str
    outs: Sequence[Placed]
    blockers: Sequence[Blocker] = ()
    source: str = ""
    copied: int = 0
    written: int = 0
    allocated: int = 0
    foreign: bool = False
    control: bool = False
    bodies: Sequence[Any] | None = None
    grown: Grown = UNKNOWN
    weights: Callable[[int], bool] = lambda storage: False


def facts_of(step: Step, trace: Trace | None = None) -> Facts:
    """The facts of a step; with its trace, also which body a control node ran, and how many rows an append added."""
    decision, control, outs = step.decision, is_control(step.graph_node), step.outs
    bodies, grown, source = None, UNKNOWN, ""
    if trace is not None and control:
        bodies = [f for f in trace.frames if f.parent == step.frame_id and f.node is step.graph_node]
    if decision.taken:
        main = main_output(outs)
        source = (decision.shares or {}).get(main.name) or decision.taken[0]
        if trace is not None:
            grown = grown_by(main, decision.taken, trace.frames[step.frame_id].bindings)
    spent = step.copied, step.written, step.allocated
    facts = Facts(step.op_type, outs, decision.blockers, source, *spent, step.foreign, control, bodies, grown)
    return facts if trace is None else facts._replace(weights=in_weights(trace))


def sentence(step: Step, trace: Trace | None = None) -> str:
    return sentence_of(facts_of(step, trace))


def ended(step: Step) -> str:
    """How a step ended, in a few words: ``"called in place, copied 160 B: no room to grow"``."""
    return ending_of(facts_of(step), step.outcome)


def rule(step: Step) -> str:
    """The reason for the decision in a few words: ``"last use, owned by the run, same shape and type"``."""
    return rule_of(facts_of(step))


def grown_by(out: Placed, taken: Iterable[str], bindings: Iterable[Any]) -> Grown:
    """What an append added, from the shape that the past had when its frame started."""
    if out.how != "append" or out.shape is None:
        return UNKNOWN
    past = next((b for b in bindings if b.storage == out.storage and b.name in taken), None)
    longer = None if past is None else grown(past.shape, out.shape)
    if longer is None:
        return UNKNOWN
    axis, old = longer
    return Grown(out.shape[axis] - old, out.nbytes * (out.shape[axis] - old) // out.shape[axis])


def in_weights(trace: Trace) -> Callable[[int], bool]:
    """A test of whether a storage belongs to the model."""
    storages = trace.log.storages
    return lambda storage: storages[storage].origin == "weights"


def is_control(node: Node) -> bool:
    """Whether a node runs a body in a frame of its own: If, Loop, Scan, or a local function that has no kernel."""
    return bool(node.subgraphs) or (node.function is not None and find(node.domain, node.op_type, node.opset) is None)


def sentence_of(facts: Facts) -> str:
    """What a step did to memory, from plain facts, for readers of many steps."""
    op, outs = facts.op, facts.outs
    if facts.bodies is not None:
        return _of_control(op, facts.bodies)
    if not outs:
        return f"{op} made nothing that is kept."
    main = main_output(outs)
    if main.how in ("new", "pool"):
        text = _of_new(facts)
        if facts.source:
            # The op was called in place; see `kvviz.trace.outcome`.
            head = f"{op} was called in place with {short(facts.source)}, and"
            text = f"{head}{text.removeprefix(op)}{_refused(facts.blockers)}"
        elif facts.blockers and (facts.allocated or facts.copied):
            text += _because(op, facts.blockers)
    elif len(outs) > 1 and all(o.how == "view" and o.storage == main.storage for o in outs):
        text = f"{op} made {len(outs)} views of {_home(facts, main)}; nothing was written"
    else:
        text = _of_shared(facts, main)
        if len(outs) > 1:
            text += f" ({_also([o for o in outs if o is not main])})"
    return f"{text}; it ran on the reference kernel." if facts.foreign else f"{text}."


def ending_of(facts: Facts, outcome: str) -> str:
    """How a step ended in a few words, from plain facts. ``outcome``: one of `kvviz.trace.outcome.OUTCOMES`."""
    how = main_output(facts.outs).how if facts.outs else ""
    copied = f"copied {size(facts.copied)}" if facts.copied else ""
    if outcome == "elsewhere":
        return f"called in place, {copied or f'wrote {size(facts.written)} elsewhere'}{_refused(facts.blockers)}"
    if outcome == "missed":
        return copied or f"not in place: {size(facts.allocated or facts.written)} in another buffer"
    if outcome == "in_place":
        return "in place: appended" if how == "append" else "in place"
    if outcome == "foreign":
        return "foreign kernel: never in place"
    if outcome == "view":
        return "a view: no bytes moved"
    if facts.control:
        return "body done"
    return "buffer from the pool" if how == "pool" else "new buffer"


def rule_of(facts: Facts) -> str:
    """The rule behind a decision, from plain facts."""
    if facts.control:
        return "a body runs in a frame of its own"
    if facts.foreign:
        return "no kernel of ours; the reference kernel never runs in place"
    how = main_output(facts.outs).how if facts.outs else "new"
    if (facts.source and how in ("in place", "append")) or how in ("view", "passed"):
        return _RULES[how]
    refused = _refused(facts.blockers)
    if refused:
        return f"{'called in place; its buffer did not fit' if facts.source else 'refused'}{refused}"
    return _RULES["pool"] if how == "pool" else "no input of this op may be overwritten"


def main_output(outs: Sequence[Placed]) -> Placed:
    """The output that a sentence is about: the first that was written in place, else the first."""
    return next((out for out in outs if out.how in ("append", "in place")), outs[0])


def _refused(blockers: Sequence[Blocker]) -> str:
    """Why the buffer of an op that was called in place could not hold the output."""
    codes = dict.fromkeys(b.code for b in blockers if b.code in REFUSALS)
    return ": " + ", ".join(REFUSALS[code] for code in sorted(codes, key=_ORDER.index)) if codes else ""


def _home(facts: Facts, out: Placed) -> str:
    return "a weight" if facts.weights(out.storage) else buffer(out.storage, out.generation)


def _of_shared(facts: Facts, out: Placed) -> str:
    op, written, copied, grown = facts.op, facts.written, facts.copied, facts.grown
    home, alone = _home(facts, out), len(facts.outs) == 1
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
    over = short(facts.source) if facts.source else "its input"
    if alone and not written and out.nbytes:
        return f"{op} handed {over} on as it is: {buffer(out.storage)} is now {home}; nothing was written"
    if alone and written < out.nbytes:
        return f"{op} wrote {size_of(written, out.nbytes)} of {over} in place: {buffer(out.storage)} is now {home}"
    before = buffer(out.storage, max(out.generation - 1, 0))
    return f"{op} overwrote {over} in place: {before} is now {home}; nothing was allocated"


def _of_new(facts: Facts) -> str:
    op, written, copied = facts.op, facts.written, facts.copied
    fresh = [o for o in facts.outs if o.how in ("new", "pool")]
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


def _also(outs: Sequence[Placed]) -> str:
    rest = [f"{o.how} {buffer(o.storage, o.generation)}" for o in outs[:2]]
    return f"and {', '.join(rest)}" + (f", {len(outs) - 2} more" if len(outs) > 2 else "")


def nearest(blockers: Iterable[Blocker]) -> list[Blocker]:
    """The reasons against the input that was nearest to being taken over; empty if there are none. An input of another
    shape or type could not have been taken over under any owner, so it comes last."""
    inputs: dict[int, list[Blocker]] = {}
    for blocker in blockers:
        inputs.setdefault(blocker.position, []).append(blocker)
    return min(inputs.values(), key=lambda found: (sum(b.code in _UNFIT for b in found), len(found)), default=[])


def in_order(blockers: Iterable[Blocker]) -> list[Blocker]:
    return sorted(blockers, key=lambda blocker: _ORDER.index(blocker.code))


def _because(op: str, blockers: Sequence[Blocker]) -> str:
    """The input that was nearest to being taken over, and the reasons against it."""
    found = nearest(b for b in blockers if b.code is not BlockerCode.OP_CANNOT)
    if not found:
        return ""
    first, *others = in_order(found)
    text = _brief(first).removesuffix(".")
    text = f"; it {text.removeprefix(f'{op} ')}" if text.startswith(f"{op} ") else f"; {text}"
    if others:
        text += f", and {_brief(others[0]).rpartition(': ')[2].removesuffix('.')}"
    return text


def _brief(blocker: Blocker) -> str:
    text = blocker.message
    for name in (blocker.input, blocker.culprit):
        if len(name) > 60:
            text = text.replace(name, short(name))
    return text


def _of_control(op: str, bodies: Sequence[Any]) -> str:
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
    clauses = [text]
    if "passed" in hows:
        clauses.append(f"it was passed {count(hows.count('passed'), 'value')}")
    captured = [
        f"{count(hows.count(f'captured by {how}'), 'value')} by {how}"
        for how in ("value", "reference")
        if f"captured by {how}" in hows
    ]
    if captured:
        clauses.append(f"it captured {' and '.join(captured)}")
    return "; ".join(clauses) + "."
