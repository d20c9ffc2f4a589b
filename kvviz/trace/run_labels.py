"""What runs are called."""

from __future__ import annotations

from typing import Any


def run_label(trace: Any, run: int) -> str:
    """``"prefill"``, ``"decode 3"``; ``"run"`` or ``"run 3"`` where there are no tokens."""
    if trace.prompt:
        return f"decode {run}" if run else "prefill"
    return f"run {run}" if len(trace.runs) > 1 else "run"


def run_text(trace: Any, run: int) -> str:
    """What a producer calls a run, as ``"submit 3 · layer"``; its label where there is no such word."""
    told = trace.runs[run]
    return told.text if told.text and told.token is None else run_label(trace, run)
