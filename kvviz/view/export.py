"""One self-contained HTML file: the same page as in a notebook, with the trace inside and no kernel and no network.

Invariant: nothing is fetched; the page's own policy forbids it. Without scripts a reader sees a picture and a table.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from kvviz.atomic_write import write_text
from kvviz.errors import InputError
from kvviz.explain.figures import alike
from kvviz.graph.model import Graph
from kvviz.query.found_steps import find
from kvviz.report.faces.steps_table import Table, steps_table
from kvviz.trace.guided_tour import Tour
from kvviz.trace.recording import Trace
from kvviz.trace.units import keeps_all, short, size, steps_summary
from kvviz.view.drawing.svg import picture
from kvviz.view.page_data.payload import Payloads
from kvviz.view.page_data.payload_cache_rows import cache_payload
from kvviz.view.page_data.payload_lanes import lane_header, pack_lanes
from kvviz.view.page_data.payload_plan import plan_payload
from kvviz.view.page_data.payload_tour import keep_tour
from kvviz.view.page_data.payload_values import values_payload
from kvviz.view.page_modules import bundled, file_modules

_TABLE_ROWS = 400
# Up to this many steps, a file contains the diagnosis by default.
_DIAGNOSED = 600_000

# Of base 91: all that is printed in ASCII but what HTML, an attribute in double quotes, or JSON escapes.
_DIGITS = "".join(chr(code) for code in range(32, 127) if chr(code) not in '"&<\\')

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
:where(#kvviz-still) table {{ border-collapse: collapse; font-size: 12px }}
:where(#kvviz-still) :is(td, th) {{ padding: 2px 8px; border-bottom: 1px solid #8884; vertical-align: top }}
:where(#kvviz-still) img {{ max-width: 100% }}
{rules}
</style>
<style id="kvviz-style"></style>
</head>
<body>
{above}
<div id="kvviz"></div>
<div id="kvviz-still">
<h1>{title}</h1>
<p>{summary}</p>
{still}
</div>
{payloads}
<script type="application/json" id="kvviz-state">{state}</script>
<script data-page="{module}" data-digits="{digits}">
{start}</script>
</body>
</html>
"""


def to_html(
    trace: Trace,
    path: str | os.PathLike[str] | None = None,
    *,
    detail: Collection[int] | None = None,
    step: int | None = None,
    open_at: str = "",
    selection: Mapping[str, Any] | None = None,
    place: Mapping[str, Any] | None = None,
    values: int | str | None = None,
    diagnosis: bool | None = None,
    hazards: bool = False,
    tour: Tour | None = None,
    above: str = "",
) -> str:
    """The debugger of a trace as one HTML file that needs nothing else.

    ``path``: where to write it; an existing file is replaced.
    ``detail``: runs whose steps are included. By default all, or a few of a long recording. The totals of all runs
      are always included.
    ``step``: step that the page opens at; the last one by default, -1: before the first.
    ``open_at``: a query, see `Trace.find`; the page opens at the first step that it finds.
    ``selection``: what is selected there, as in `kvviz.Debugger.selection`; for example the cache to show.
    ``place``: the framed finding and which of its steps, as ``"finding"``, and the open table, as ``"list"``.
    ``values``: maximum bytes for summaries of values; see `Trace.summarise`. By default the page has the summaries
      that the trace has.
    ``diagnosis``: include missed ops, fixes and storages held too long, for all steps, even those not in the page. By
      default for up to 600,000 steps, and always if the page has all steps.
    ``hazards``: include the steps that only the schedule keeps in order, see `kvviz.hazards`, even if the producer did
      not declare what its ops touch. If it did, they are always included.
    ``tour``: a guided tour, which the trace keeps from then on; see `kvviz.lessons.Tour`.
    ``above``: HTML that stands above the debugger.

    Returns the page.

    Raises `KvvizError`: if the page's bundle is missing from the installation, a stop of the tour names something that
      does not exist, or the query finds no step.
    """
    if open_at:
        found = find(trace, open_at)
        if not found:
            raise InputError(f"open_at: no step of {len(trace.steps):,} is found by {open_at!r}")
        step = int(found.numbers[0])
    if tour is not None:
        keep_tour(trace, tour)
    if values is not None:
        trace.summarise(values)
    steps = len(trace.steps)
    cursor = steps - 1 if step is None else min(step, steps - 1)
    table = steps_table(trace, _ends(steps))
    summary = (
        f"{steps_summary(trace)}, policy {trace.policy.name}; {'' if keeps_all(trace) else 'of all runs: '}"
        f"peak {size(trace.peak_bytes)}, "
        f"{size(trace.bytes_copied)} copied, {size(trace.bytes_allocated)} allocated."
    )
    if len(table) < steps:
        summary += f" The table has only the first and last {_TABLE_ROWS // 2} steps."
    if diagnosis is None:
        diagnosis = steps <= _DIAGNOSED
    packing = Payloads(trace, detail)
    if hazards:
        packing.look_for_hazards()
    payloads = {"payload": packing.encode(lazy=not diagnosis)}
    payloads["modules"] = file_modules("kvviz", _unneeded(trace, hazards))
    if rows := cache_payload(trace):
        payloads["cache_data"] = rows
    if kept := values_payload(trace):
        payloads["value_data"] = kept
    return _write(
        path,
        trace.title,
        summary,
        f"{_image(picture(trace, cursor).svg)}\n{table.html()}",
        payloads,
        {"cursor": None if step is None else cursor, "selection": selection, "place": place or {}},
        above=above,
    )


def _unneeded(trace: Trace, hazards: bool) -> frozenset[str]:
    """The parts of the page that this trace cannot need in a file."""
    there = {
        "tour": trace.tour is not None,
        "cache": bool(trace.caches),
        "clock": bool(trace.log.declared.times),
        "hazards": hazards or bool(trace.log.declared.accesses),
        # What a device did cannot be run again, neither with a change nor to record values.
        "lanes": not trace.log.declared.times,
        "values": not trace.log.declared.times or trace.value_summaries is not None,
    }
    return frozenset(name for name, needed in there.items() if not needed)


def lanes_to_html(
    traces: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    *,
    step: int = -1,
    shown: int = 0,
    lanes: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """Traces of the same thing as lanes of one HTML file that needs nothing else.

    ``traces``: by label.
    ``path``: where to write it; an existing file is replaced.
    ``step``: step of the shown trace that the page opens at; -1: before the first.
    ``shown``: number of the trace that the page opens with.
    ``lanes``: a header for each lane; by default, a comparison with the first one.

    Returns the page.
    """
    names, ordered = list(traces), list(traces.values())
    if lanes is None:
        first = (0, names[0], ordered[0])
        lanes = [lane_header(i, name, ordered[i], first if i else None) for i, name in enumerate(names)]
    number = {lane["label"]: str(lane["id"]) for lane in lanes}
    main = Payloads(ordered[shown])
    own = {"payload": main.encode(lazy=True), "modules": file_modules("kvviz", frozenset({"tour"}))}
    others: dict[str, bytes] = {}
    for name, trace in traces.items():
        alone = trace is ordered[shown]
        if not alone:
            others[number[name]] = Payloads(trace, main.runs()).encode(lazy=True)
        aside = {"cache_data": cache_payload(trace), "value_data": values_payload(trace)}
        for key, raw in aside.items():
            if raw and alone:
                own[key] = raw
            elif raw:
                others[f"{key}:{number[name]}"] = raw
    own["branches"] = pack_lanes(others)
    here = int(number[names[shown]])
    title = f"{ordered[0].title}: {' and '.join(names)}"
    summary = f"{' and '.join(f'{len(trace.steps):,}' for trace in ordered)} steps."
    still = "".join(figures_table(ordered[0], trace, (names[0], name)) for name, trace in list(traces.items())[1:])
    state = {"cursor": step, "lanes": list(lanes), "lane": here, "main": here, "data_of": here}
    return _write(path, title, summary, still, own, state)


def plan_to_html(
    graph: Graph,
    events: Sequence[Any],
    policy: Mapping[str, str],
    path: str | os.PathLike[str] | None = None,
    *,
    event: int = -1,
) -> str:
    """The planning of a graph as one HTML file that needs nothing else. ``policy``: ``name`` and ``about``. ``path``:
    where to write it; an existing file is replaced. ``event``: event that the page opens at; -1: before the first.
    Returns the page."""
    picks = sum(event.action == "pick" for event in events)
    summary = f"{picks:,} ops planned under policy {policy['name']} in {len(events):,} events."
    payloads = {"payload": plan_payload(graph, events, policy), "modules": file_modules("planner")}
    return _write(path, graph.name, summary, plan_table(events), payloads, {"cursor": event}, "planner")


_FIGURES = (
    ("name", "", False, 60),
    ("peak", "peak", True, 12),
    ("copied", "copied", True, 12),
    ("allocated", "allocated", True, 12),
    ("in_place", "in place", True, 12),
)
_PICKS = (
    ("step", "step", True, 8),
    ("op", "op", False, 60),
    ("name", "name", False, 60),
    ("reason", "why it is next", False, 200),
)


def figures_table(before: Any, after: Any, labels: Sequence[str]) -> str:
    """The figures of two traces for the runs that both have finished, as a small HTML table."""
    shared = alike(before, after)
    rows = [{"name": label, **side} for label, side in zip(labels, shared.figures)]
    return Table(rows, _FIGURES, shared.note).html()


def plan_table(events: Sequence[Any]) -> str:
    """The picks of a plan with their reasons, as an HTML table; the first and last ones if there are many."""
    picks = [(event.node, event.reason) for event in events if event.action == "pick"]
    rows = [
        {"step": step, "op": node.op_type, "name": node.name, "reason": reason}
        for step, (node, reason) in enumerate(picks)
    ]
    return Table(rows, _PICKS).html(_TABLE_ROWS)


def _write(
    path: str | os.PathLike[str] | None,
    title: str,
    summary: str,
    still: str,
    payloads: Mapping[str, bytes],
    state: Mapping[str, Any],
    module: str = "kvviz",
    above: str = "",
) -> str:
    """Fill in the page, and write it to the path if one is given."""
    blocks = [
        f'<script type="application/octet-stream" id="kvviz-{name}">{base91(data)}</script>'
        for name, data in payloads.items()
    ]
    still, rules = _classed(still)
    page = _PAGE.format(
        rules=rules,
        title=escape(short(title, 120)),
        summary=escape(summary),
        still=still,
        above=above,
        payloads="\n".join(blocks),
        module=module,
        digits=_DIGITS,
        start=bundled("start.js").decode(),
        state=json.dumps(dict(state)).replace("<", "\\u003c"),
    )
    if path is not None:
        write_text(path, page)
    return page


def base91(data: bytes) -> str:
    """Bytes as text in `_DIGITS`: 13 bits are two digits, the lowest first, and up to 6 that are left are one."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    rows = np.pad(bits, (0, -len(bits) % 13)).reshape(-1, 13)
    numbers = np.packbits(rows, axis=1, bitorder="little").view("<u2")
    digits = np.hstack([numbers % 91, numbers // 91]).ravel()
    used = len(digits) - (1 <= len(bits) % 13 <= 6)
    return np.frombuffer(_DIGITS.encode(), np.uint8)[digits[:used]].tobytes().decode()


def _image(svg: str) -> str:
    """A picture as an image, in which nothing can run; its letters as they are take less than base 64."""
    escaped: dict[str, str | int | None] = {"%": "%25", "#": "%23", "\n": "", "&": "&amp;", "'": "&#39;"}
    return f"<img alt='graph around this step' src='data:image/svg+xml,{svg.translate(str.maketrans(escaped))}'>"


def _classed(still: str) -> tuple[str, str]:
    """HTML with a class instead of each inline style, and the rules of these classes. A table repeats the same few
    styles in every cell, which is most of its bytes: cells of the most frequent one have no class. The ends of cells
    and rows are left out: HTML has them where the next one begins."""
    cells = Counter(re.findall('<td style="([^"]*)"', still))
    usual = max(cells, key=cells.__getitem__, default="")
    names: dict[str, str] = {}
    html = still.replace(f'<td style="{usual}"', "<td")
    html = re.sub(r'style="([^"]*)"', lambda found: f"class={names.setdefault(found[1], f'k{len(names)}')}", html)
    rules = {"#kvviz-still td:not([class], [colspan])": usual} | {f".{name}": style for style, name in names.items()}
    return re.sub("</t[dhr]>", "", html), "\n".join(f"{of} {{ {style} }}" for of, style in rules.items())


def _ends(steps: int) -> list[int]:
    half = _TABLE_ROWS // 2
    return list(range(steps)) if steps <= _TABLE_ROWS else [*range(half), *range(steps - half, steps)]
