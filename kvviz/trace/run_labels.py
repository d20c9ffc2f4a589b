"""What runs are called."""

from __future__ import annotations

from kvviz.trace.recording import Trace


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
