"""Forking a recording: a session that has run the same steps up to one of them, and continues differently."""

from __future__ import annotations

import re
from typing import Any

from kvviz.debugger.state import frame_id_after, frontier_after
from kvviz.engine.sessions.session import Session
from kvviz.errors import KvvizError
from kvviz.graph.model import Node
from kvviz.trace.recording import Trace
from kvviz.trace.records import Branch


def forked(trace: Trace, step: int, label: str, choice: tuple[int, Node] | None = None, **changes: Any) -> Session:
    """A session from the same inputs that has run the steps before ``step`` in the recorded order.

    ``choice``: frame and node of the op that runs as this step; see `find_choice`. ``**changes``: options that differ
    from the beginning; see `kvviz.engine.sessions.recipe.Recipe.session`.

    Raises `KvvizError`: if the trace cannot be run again, or its order cannot be kept with these changes. Raises
    `ReplayError`: if its inputs were not kept.
    """
    check_repeatable(trace)
    if not 0 <= step <= len(trace.log):
        raise KvvizError(f"step {step:,} does not exist; the trace has {len(trace.log):,} steps")
    session: Session = trace.recipe.session(**changes)
    session.trace.branch = Branch(label, step)
    if step:
        session.follow(trace, step)
    if choice is not None:
        session.take(trace, *choice)
    return session


def check_repeatable(trace: Trace) -> None:
    """Raise `KvvizError` for a trace without a recipe."""
    if trace.recipe is None:
        raise KvvizError(
            "this trace has no model to run again, for example because it was loaded from a file; record it again with "
            "kvviz.run, kvviz.decode or kvviz.ggml.run, and fork that trace"
        )


def find_choice(trace: Trace, step: int, wanted: Node | str) -> tuple[int, Node]:
    """Frame and node of an op, given as a node or by name, that could have run as a step; raises `KvvizError` that
    names the inputs it waits for if it could not."""
    name = wanted if isinstance(wanted, str) else wanted.name
    at = f"at step {step:,}"
    frame = frame_id_after(trace, step - 1)
    if frame is None or not 0 <= step <= len(trace.log):
        raise KvvizError(f"nothing is left to run {at}")
    ready = frontier_after(trace, step - 1)
    if not ready:
        raise KvvizError(f"no other op can run {at}: {trace.log[step].op.node.name!r} completes there")
    chosen = next((node for node in ready if wanted in (node, node.name)), None)
    if chosen is not None:
        return frame, chosen
    here = trace.frames[frame]
    node = next((node for node in here.order if wanted in (node, node.name)), None)
    if node is None:
        raise KvvizError(f"{name!r} is not an op of the graph that runs {at}; ready are {_names(ready)}")
    ran = trace.step_of(frame, node.index)
    if ran is not None and ran < step:
        raise KvvizError(f"{name!r} cannot run {at}: it ran as step {ran:,}")
    missing = _missing(trace, frame, step, node)
    raise KvvizError(
        f"{name!r} cannot run {at}: it waits for {', '.join(map(repr, missing))}; ready are {_names(ready)}"
    )


def called(node: Node) -> str:
    """A short label of a node: its operator, and its number or the end of its name."""
    last = node.name.rsplit("/", 1)[-1]
    numbered = re.fullmatch(rf"(?:node_)?{re.escape(node.op_type)}(?:_(\d+))?", last, re.IGNORECASE)
    if numbered is None:
        return f"{node.op_type} {last[-32:]}" if last else node.op_type
    return f"{node.op_type} #{numbered[1]}" if numbered[1] else node.op_type


def _missing(trace: Trace, frame: int, step: int, node: Node) -> list[str]:
    made_by = {name: other for other in trace.frames[frame].order for name in other.outputs if name}

    def is_missing(name: str) -> bool:
        maker = made_by.get(name)
        if maker is None:
            return False
        ran = trace.step_of(frame, maker.index)
        return ran is None or ran >= step

    return [name for name in dict.fromkeys((*node.inputs, *node.captures)) if name and is_missing(name)]


def _names(ready: tuple[Node, ...]) -> str:
    shown = ", ".join(repr(node.name) for node in ready[:8])
    return shown + (f" and {len(ready) - 8} more" if len(ready) > 8 else "")
