"""What a reader without a kernel sees: a still picture of the current step, as PNG and as an SVG image in HTML."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from kvviz.engine.trace import Trace
from kvviz.view.export import figures_table, plan_table
from kvviz.view.png import still
from kvviz.view.svg import picture


def still_bundle(trace: Trace, position: int) -> dict[str, Any]:
    """Mime type to data. Untrusted notebooks strip inline SVG, so it goes in as a data URI."""
    step = position if position >= 0 else len(trace.steps) - 1
    if step < 0:
        return {"text/plain": repr(trace)}
    source = picture(trace, step).data_uri
    return {
        "text/plain": repr(trace),
        "image/png": base64.b64encode(still(trace, step)).decode(),
        "text/html": f'<img alt="kvviz: step {step} of {len(trace.steps)}" src="{source}">',
    }


def still_pair(before: Trace, after: Trace, labels: Sequence[str], position: int) -> dict[str, Any]:
    """Mime type to data: the figures of both, and a picture of the first."""
    bundle = still_bundle(before, position)
    figures = figures_table(before, after, labels)
    return {
        "text/plain": f"{labels[0]}: {before!r}\n{labels[1]}: {after!r}",
        "text/html": f"{figures}{bundle.get('text/html', '')}",
    }


def still_plan(text: str, events: Sequence[Any]) -> dict[str, Any]:
    """Mime type to data: the picks with their reasons."""
    return {"text/plain": text, "text/html": plan_table(events)}
