"""One self-contained HTML file: the same page as in a notebook, with the trace inside and no kernel and no network.

Invariant: nothing is fetched; the page's own policy forbids it. Without scripts a reader sees a picture and a table.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Collection
from html import escape
from pathlib import Path
from typing import Any

from kvviz.errors import KvvizError
from kvviz.explain.words import short, size
from kvviz.view.svg import picture
from kvviz.view.table import steps_table
from kvviz.view.wire import payload

# The bundle belongs to the widget, which lies above this layer: only its files are read, nothing is imported.
STATIC = Path(__file__).resolve().parent.parent / "widget" / "static"
_TABLE_ROWS = 400

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' blob: data:;
 style-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ margin: 16px; font: 13px/1.45 system-ui, sans-serif; background: Canvas; color: CanvasText }}
#kvviz-still table {{ border-collapse: collapse; font-size: 12px }}
#kvviz-still td, #kvviz-still th {{ padding: 2px 8px; border-bottom: 1px solid #8884; vertical-align: top }}
#kvviz-still img {{ max-width: 100% }}
{style}
</style>
</head>
<body>
<div id="kvviz"></div>
<div id="kvviz-still">
<h1>{title}</h1>
<p>{summary}</p>
{picture}
{table}
</div>
<script type="application/octet-stream" id="kvviz-payload">{payload}</script>
<script type="application/octet-stream" id="kvviz-module">{module}</script>
<script>
(async () => {{
  const bytes = (id) => Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const still = document.getElementById("kvviz-still");
  try {{
    const address = URL.createObjectURL(new Blob([bytes("kvviz-module")], {{ type: "text/javascript" }}));
    const page = (await import(address)).default;
    const state = {{ payload: new DataView(bytes("kvviz-payload").buffer), edge: new DataView(new ArrayBuffer(0)),
      cursor: {cursor}, decode_step: 0, selection: null, breakpoints: [], theme: "auto",
      height: Math.max(560, innerHeight - 40) }};
    const model = {{ get: (name) => state[name], set: (name, value) => {{ state[name] = value; }},
      save_changes() {{}}, on() {{}}, off() {{}} }};
    page.render({{ model, el: document.getElementById("kvviz") }});
    still.remove();
  }} catch (error) {{
    still.querySelector("p").append(" This browser could not start the page: " + error);
  }}
}})();
</script>
</body>
</html>
"""


def to_html(
    trace: Any, path: str | os.PathLike[str] | None = None, *, detail: Collection[int] | None = None, step: int = -1
) -> str:
    """The debugger of a trace as one HTML file that needs nothing else.

    Parameters
    ----------
    trace : Trace
    path : path, optional
        Where to write it; an existing file is replaced.
    detail : collection of int, optional
        Runs whose steps are told; all by default.
    step : int
        Step that the page opens at; the last one by default.

    Returns
    -------
    str
        The page.

    Raises
    ------
    KvvizError
        If the page's bundle is missing from the installation.
    """
    steps = len(trace.steps)
    cursor = range(steps)[step] if steps else -1
    table = steps_table(trace, _ends(steps))
    summary = (
        f"{steps:,} steps in {len(trace.runs):,} runs under policy {trace.policy.name}; peak {size(trace.peak_bytes)}, "
        f"{size(trace.bytes_copied)} copied, {size(trace.bytes_allocated)} allocated."
    )
    if len(table) < steps:
        summary += f" Of the table only the first and last {_TABLE_ROWS // 2} steps are told here."
    page = _PAGE.format(
        title=escape(short(trace.title, 120)),
        summary=escape(summary),
        style=_bundled("kvviz.css").decode().replace("</", "<\\/"),
        module=base64.b64encode(_bundled("kvviz.js")).decode(),
        picture=picture(trace, cursor)._repr_html_(),
        table=table.html(),
        payload=base64.b64encode(payload(trace, detail=detail)).decode(),
        cursor=cursor,
    )
    if path is not None:
        Path(path).write_text(page, encoding="utf-8", errors="replace")
    return page


def _bundled(name: str) -> bytes:
    try:
        return (STATIC / name).read_bytes()
    except OSError as error:
        raise KvvizError(f"the page's bundle is missing ({name}): build it with `make widget`") from error


def _ends(steps: int) -> list[int]:
    half = _TABLE_ROWS // 2
    return list(range(steps)) if steps <= _TABLE_ROWS else [*range(half), *range(steps - half, steps)]
