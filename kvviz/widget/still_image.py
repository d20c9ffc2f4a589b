"""A still picture of the current step for readers without a kernel, as PNG and as an SVG image in HTML.

JupyterLab shows the richest form of an output. That is the widget, even if its model is neither in a kernel nor saved,
and then JupyterLab shows an error. So the picture is a separate output after the widget's, hidden while the page is
there.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kvviz.explain.sentences import sentence
from kvviz.trace.recording import Trace
from kvviz.view.charts.png import still
from kvviz.view.drawing.svg import picture
from kvviz.view.export import figures_table, plan_table

_NOTE = (
    "A saved picture. For the page itself, run this cell, or trust this notebook if it was saved with its pages. "
    "<code>to_html</code> writes the page to a file that needs no kernel."
)
# In JupyterLab, the picture is hidden if the page is there; otherwise the error is hidden, since the note is clearer.
# For other hosts the page has its own rule (assets/widget/src/mount.ts).
_LOOK = (
    ".jp-OutputArea-child:has(.{root}) + .jp-OutputArea-child:has({still}) {{ display: none }}"
    ".jp-OutputArea-child:has(+ .jp-OutputArea-child {still}) > .jupyter-widgets:not(:has(*)) {{ display: none }}"
)


# For pages narrower than the picture, and to print it on one sheet.
_FITS = "max-width:100%;break-inside:avoid"


def saved(key: str, bundle: Mapping[str, Any]) -> dict[str, Any]:
    """The output that follows a widget's own, by mime type: a picture or table, which the page finds by ``key``."""
    note = f'<p style="font-size:small;opacity:.75">{_NOTE}</p>'
    html = stands_in(key, f"{bundle.get('text/html', '')}{note}")
    # The widget's own output has the text.
    return {**{kind: data for kind, data in bundle.items() if kind != "text/plain"}, "text/html": html}


def stands_in(key: str, html: str, root: str = "kvviz") -> str:
    """HTML that is shown if the widget is not. ``key``: by which the widget finds it. ``root``: the class of the
    widget's own element."""
    look = _LOOK.format(still=f'[data-kv-still="{key}"]', root=root)
    return f'<div data-kv-still="{key}"><style>{look}</style>{html}</div>'


def still_bundle(trace: Trace, position: int, selection: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The picture by mime type. Untrusted notebooks strip inline SVG, so it is a data URI. ``selection``: as in the
    page. For a cache, or a step that makes one, the rows are shown too."""
    step = position if position >= 0 else len(trace.steps) - 1
    if step < 0:
        return {"text/plain": repr(trace)}
    source = picture(trace, step).data_uri
    caption = f"Step {step:,} of {len(trace.steps):,}: {sentence(trace.steps[step], trace)}"
    html = f'<img alt="{escape(caption)}" style="{_FITS}" src="{source}">'
    cache = _cache_at(trace, step, selection)
    png = base64.b64encode(still(trace, step, cache)).decode()
    if cache is not None:
        rows = f"Step {step:,}: rows of the cache {trace.caches[cache].name} after every run"
        html += f'<br><img alt="{escape(rows)}" style="{_FITS}" src="data:image/png;base64,{png}">'
    return {"text/plain": repr(trace), "image/png": png, "text/html": html}


def _cache_at(trace: Trace, step: int, selection: Mapping[str, Any] | None) -> int | None:
    """The selected cache, or else the one that the step makes; None if there is none, or if it has no rows."""
    chosen = selection.get("id") if selection and selection.get("kind") == "cache" else None
    if not isinstance(chosen, int) or not 0 <= chosen < len(trace.caches):
        made = trace.steps[step].outputs
        chosen = next((i for i, cache in enumerate(trace.caches) if cache.output in made), None)
    return None if chosen is None or trace.caches[chosen].axis is None else chosen


def still_pair(traces: Sequence[Trace], labels: Sequence[str], steps: Sequence[int]) -> dict[str, Any]:
    """The figures of both traces, and a picture of each at its own step, by mime type."""
    halves = [still_bundle(trace, step).get("text/html", "") for trace, step in zip(traces, steps)]
    # A table, since styles may be stripped; its text is aligned as in a page.
    cells = "".join(
        f'<td style="text-align:left;vertical-align:top;width:50%"><b>{escape(label)}</b><br>{half}</td>'
        for label, half in zip(labels, halves)
    )
    shown = f"<table><tr>{cells}</tr></table>"
    return {
        "text/plain": f"{labels[0]}: {traces[0]!r}\n{labels[1]}: {traces[1]!r}",
        "text/html": f"{figures_table(traces[0], traces[1], labels)}{shown}",
    }


def still_plan(text: str, events: Sequence[Any]) -> dict[str, Any]:
    return {"text/plain": text, "text/html": plan_table(events)}
