"""What a reader without a kernel sees: a still picture of the current step, as PNG and as an SVG image in HTML.

JupyterLab shows the richest form that an output has, and that is the widget, also where its model is neither with a
kernel nor saved: then an error stands there. So the picture is an output of its own behind the widget's, and it is
hidden as long as the page is there.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.trace.recording import Trace
from kvviz.view.export import figures_table, plan_table
from kvviz.view.png import still
from kvviz.view.svg import picture

_NOTE = (
    "A saved picture: the page itself needs its kernel. Run this cell again to have it; to keep it in the notebook, "
    "choose Settings → Save Widget State Automatically before saving, or write it to a file with <code>to_html</code>."
)
# JupyterLab: the picture goes where the page is; where it is not, so does the error in its place, which the note says
# better. Other hosts are served by a rule that the page brings along (assets/widget/src/mount.ts).
_LOOK = (
    ".jp-OutputArea-child:has(.{root}) + .jp-OutputArea-child:has({still}) {{ display: none }}"
    ".jp-OutputArea-child:has(+ .jp-OutputArea-child {still}) > .jupyter-widgets:not(:has(*)) {{ display: none }}"
)


def saved(key: str, bundle: Mapping[str, Any]) -> dict[str, Any]:
    """Mime type to data of the output that stands behind a widget's own.

    ``key``: by which the page knows this picture.
    ``bundle``: the picture or table by mime type.
    """
    note = f'<p style="font-size:small;opacity:.75">{_NOTE}</p>'
    html = stands_in(key, f"{note}{bundle.get('text/html', '')}")
    # The widget's own output has the text.
    return {**{kind: data for kind, data in bundle.items() if kind != "text/plain"}, "text/html": html}


def stands_in(key: str, html: str, root: str = "kvviz") -> str:
    """HTML that is seen where a widget is not.

    ``key``: by which the widget knows it.
    ``root``: the class of the widget's own element.
    """
    look = _LOOK.format(still=f'[data-kv-still="{key}"]', root=root)
    return f'<div data-kv-still="{key}"><style>{look}</style>{html}</div>'


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
