"""The common part of kvviz's widgets: a bundle for the page, its look, answers to the page's requests, and a still
picture of the current step for readers without a kernel, as PNG and as an SVG image in HTML.

JupyterLab shows the richest form of an output. That is the widget, even if its model is neither in a kernel nor saved,
and then JupyterLab shows an error. So the picture is a separate output after the widget's, hidden while the page is
there.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from uuid import uuid4

import anywidget
import traitlets
from IPython.display import display

from kvviz.errors import KvvizError
from kvviz.explain.sentences import sentence
from kvviz.trace.recording import Trace
from kvviz.view.charts.png import still
from kvviz.view.drawing.svg import picture
from kvviz.view.export import figures_table, plan_table
from kvviz.view.page_modules import bundled

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


def whole_number(message: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number in a message from the page; raises `KvvizError` if it is not one."""
    value = message.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise KvvizError(f"the page sent {name}={value!r}, which is not a whole number")
    return value


class Listener(anywidget.AnyWidget):
    """A widget that receives messages from the page until it is closed, and can be garbage-collected afterwards.

    Its bundle is a text: if it were a file, anywidget would keep every widget alive to watch for changes.
    """

    still = traitlets.Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(still=uuid4().hex, **traits)
        self.on_msg(self._receive)

    def close(self) -> None:
        """Remove the widget from the page, and release it."""
        self.on_msg(self._receive, remove=True)
        self.layout.close()
        super().close()

    def _receive(self, _widget: Any, message: Mapping[str, Any], _buffers: Any) -> None:
        raise NotImplementedError


class Page(Listener):
    """A widget that is drawn by one of kvviz's bundles.

    ``payload``: the data that the bundle draws. Synced.
    ``cursor``: number of the step, or planning event, that is shown; -1 before the first. Synced.
    ``theme``: ``"auto"``, ``"light"`` or ``"dark"``. Synced.
    ``height``: in px. Synced.
    ``still``: key by which the page finds the saved picture beside it. Synced.
    """

    _esm = bundled("kvviz.js").decode()
    _css = bundled("kvviz.css").decode()

    payload = traitlets.Bytes().tag(sync=True)
    cursor = traitlets.Int(-1, min=-1).tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)
    height = traitlets.Int(720).tag(sync=True)

    def _receive(self, _widget: Any, message: Mapping[str, Any], _buffers: Any) -> None:
        known = message if isinstance(message, Mapping) else {}
        try:
            self._stand_where(known)
            answer = self._answer(known)
        except KvvizError as error:
            answer = {"error": str(error)}
        except KeyboardInterrupt:  # it stopped the page's request, so the page gets the error
            answer = {"error": "stopped from the keyboard; what ran until then is here"}
        except Exception as error:  # the page must get an answer to any error
            answer = {"error": f"{type(error).__name__}: {error}"}
        if answer is not None:
            buffers = answer.pop("buffers", None)
            self.send({"id": known.get("id"), "side": known.get("side", 0), **answer}, buffers)

    def set_state(self, sync_data: Any) -> None:
        """Apply the page's state. An invalid state is answered with an error and the present state."""
        try:
            super().set_state(sync_data)
        except Exception as error:
            self.send({"id": None, "side": 0, "error": f"the page sent what cannot be shown: {error}"})
            self.send_state([name for name in sync_data if name in self.keys])

    def _stand_where(self, message: Mapping[str, Any]) -> None:
        """Move to the place of a message."""

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """The reply to the page, with bytes under ``"buffers"``; None if traits are the reply."""
        return {"error": f"the page asked for {message.get('do')!r}, which this version does not know"}

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**self._still(), **data}, metadata

    def _ipython_display_(self) -> None:
        """Show the page, followed by a separate output for readers that cannot show the page."""
        bundle, metadata = self._repr_mimebundle_()
        still = self._still()
        page = {kind: data for kind, data in bundle.items() if kind not in still or kind == "text/plain"}
        display(page, metadata=metadata, raw=True)
        if still.keys() - {"text/plain"}:
            display(saved(self.still, still), raw=True)

    def _still(self) -> dict[str, Any]:
        return {"text/plain": repr(self)}
