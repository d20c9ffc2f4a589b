"""One sentence for every step: the page, the table, the command line and a screen reader all say this one.

Invariant: the text depends on what was recorded only, never on who asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvviz.explain.phrases import UNKNOWN, Grown, Out, main_output, tell, tell_end, tell_rule
from kvviz.graph.model import Node
from kvviz.ops.registry import find


def sentence(step: Any, trace: Any = None) -> str:
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


def ended(step: Any) -> str:
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


def rule(step: Any) -> str:
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


def in_weights(trace: Any) -> Callable[[int], bool]:
    """Tells of a storage whether it belongs to the model; of those no reader needs the number."""
    storages = trace.log.storages
    return lambda storage: storages[storage].origin == "weights"


def is_control(node: Node) -> bool:
    """Whether a node runs a body in a frame of its own: If, Loop, Scan, or a local function that has no kernel."""
    return bool(node.subgraphs) or (node.function is not None and find(node.domain, node.op_type, node.opset) is None)
