"""What runs are called, of which of them a trace has steps, and at which layer a step is.

Totals and meters are of all runs, everything else is of those whose steps were kept. Where all of them were kept, the
words do not mention it.
"""

from __future__ import annotations

from typing import Any

from kvviz.graph.layers import Place, inside, places
from kvviz.trace.recording import Trace
from kvviz.trace.units import count


def decodes(trace: Trace) -> bool:
    """Whether its runs generate tokens. Which ones, a dry run does not know."""
    return bool(trace.prompt) or trace.options.kind == "decode"


def run_label(trace: Trace, run: int) -> str:
    """``"prefill"``, ``"decode 3"``; ``"run"`` or ``"run 3"`` where there are no tokens; what a producer called it.
    Where several runs read the prompt, the later ones are ``"prefill 1"`` and so on."""
    if trace.prompt:
        # The last run of the prefill gives the first token.
        prefill = next((one.index for one in trace.runs if one.token is not None), run)
        if run > prefill:
            return f"decode {run - prefill}"
        return f"prefill {run}" if run else "prefill"
    named = trace.runs[run] if run < len(trace.runs) else None
    if named is not None and named.text and named.token is None:
        return str(named.text)
    return f"run {run}" if len(trace.runs) > 1 else "run"


def kept_runs(trace: Trace) -> tuple[int, ...]:
    """Runs whose steps were kept; a run that has only begun is one of them."""
    begun = len(trace.runs) - 1 if trace.live is not None or trace.interrupted else -1
    return tuple(run.index for run in trace.runs if run.last > run.first or run.index == begun)


def keeps_all(trace: Trace) -> bool:
    """Whether every run has its steps, or, as where nothing was recorded, none has."""
    return len(kept_runs(trace)) == len(trace.runs) or not trace.log


def steps_summary(trace: Trace) -> str:
    """``6,400 steps in 16 runs``, or ``13,640 steps of 8 of 512 runs were kept``."""
    steps, runs = count(len(trace.steps), "step"), count(len(trace.runs), "run")
    if keeps_all(trace):
        return f"{steps} in {runs}"
    return f"{steps} of {len(kept_runs(trace)):,} of {runs} were kept"


def in_kept_runs(trace: Trace) -> str:
    """What stands behind a sum over steps: empty, or ``in the 8 runs whose steps were kept``."""
    if keeps_all(trace):
        return ""
    runs = len(kept_runs(trace))
    return f"in the {count(runs, 'run')} whose steps were kept" if runs > 1 else "in the run whose steps were kept"


def place_of(trace: Trace, row: Any) -> Place:
    """Layer and role of a step, of one in a body with the role of the node that has the body."""
    return place_in(trace.log.frames, row.frame, row.op.node.index)


def place_in(frames: Any, number: int, node: int) -> Place:
    """The same of a node, by its index in the graph of a frame."""
    frame = frames[number]
    own = places(frame.program.graph)[node]
    if frame.parent is None:
        return own
    outer = place_in(frames, frame.parent, frame.control_node.index)
    return inside(outer, frames[frame.parent].program.graph, frame.attribute, own)
