"""How a notebook displays a trace, a graph, a step and a cache.

A trace and a graph are cards: a few figures, a small picture, the verdict. Untrusted notebooks strip scripts and inline
SVG, so the picture goes in as a data URI and the rest is plain HTML. A step and a cache are text and a table.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from kvviz.decode.model_kind import model_kind
from kvviz.explain.sentences import sentence
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from kvviz.report.faces.steps_table import Table
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.trace.units import buffer, count, short, size

_WIDTH, _HEIGHT, _POINTS = 560, 64, 280
_LONGEST = 200_000  # steps; a verdict on more takes too long
_OPS, _INPUTS = 6, 6


def trace_card(trace: Trace) -> str:
    """A trace: the curve of its live bytes, totals, and what to know first."""
    totals = f"{len(trace.steps):,} steps in {count(len(trace.runs), 'run')} · policy {trace.policy.name}"
    lines = [f"<b>{escape(short(trace.title, 60))}</b> {escape(totals)}"]
    if len(trace.steps):
        lines.append(f'<img alt="live bytes by step, at most {size(trace.peak_bytes)}" src="{_curve(trace)}">')
    if trace.words:
        lines.append(escape(short(" ".join(trace.words), 160)))
    if len(trace.steps) <= _LONGEST:
        lines += [escape(str(entry)) for entry in trace.explain().verdict]
    else:
        lines.append(f"peak {size(trace.peak_bytes)}, {size(trace.bytes_copied)} copied")
    return _card([*lines, "<code>kvviz.debug(trace)</code> steps through it"])


def graph_card(graph: Graph) -> str:
    """A graph: its kind, its ops, its inputs and how its caches are kept."""
    ops = Counter(node.qualified_op for _, node in graph.walk()) if len(graph.path) == 0 else Counter()
    common = ", ".join(f"{op} {times:,}" for op, times in ops.most_common(_OPS))
    lines = [f"<b>{escape(short(graph.name, 60))}</b> {escape(model_kind(graph).name)}"]
    lines.append(f"{len(graph.nodes):,} nodes, {count(len(graph.weights), 'weight')}: {escape(common)}")
    pairs = cache_pairs(graph)
    kinds = Counter(pair.protocol for pair in pairs)
    if kinds:
        lines.append("caches: " + escape(", ".join(f"{times} {kind}" for kind, times in kinds.items())))
    caches = {pair.input for pair in pairs}
    inputs = [f"{v.name} {list(v.shape) if v.shape is not None else ''}" for v in graph.inputs if v.name not in caches]
    more = f" and {len(inputs) - _INPUTS} more" if len(inputs) > _INPUTS else ""
    lines.append("inputs: " + escape(", ".join(inputs[:_INPUTS]) + more))
    return _card(lines)


def _card(lines: list[str]) -> str:
    rows = "".join(f"<div>{line}</div>" for line in lines)
    return f'<div style="font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);max-width:620px">{rows}</div>'


def _curve(trace: Trace) -> str:
    """Live bytes over the steps, as the data URI of a picture; each point is the maximum of a range of steps."""
    live = np.asarray(trace.log.column("live"), float)
    stretches = np.array_split(live, min(_POINTS, len(live)))
    highest = np.array([stretch.max() for stretch in stretches])
    low, high = float(live.min()), float(live.max())
    # The floor is mostly weights: the curve shows what moves above it.
    heights = (highest - low) / (high - low) if high > low else np.ones_like(highest)
    x = np.linspace(0, _WIDTH, len(heights))
    points = " ".join(f"{a:.1f},{_HEIGHT - 2 - b * (_HEIGHT - 6):.1f}" for a, b in zip(x, heights))
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">'
        f'<polygon points="0,{_HEIGHT} {points} {_WIDTH},{_HEIGHT}" fill="#1f5fbf" fill-opacity=".18"/>'
        f'<polyline points="{points}" fill="none" stroke="#1f5fbf" stroke-width="1.5"/></svg>'
    )
    return f"data:image/svg+xml;base64,{b64encode(picture.encode()).decode()}"


_NAME, _TEXT = 48, 400
_FACTS = (("what", "", False, 12), ("is", "", False, _TEXT))
_CACHES = (
    ("name", "cache", False, 28),
    ("protocol", "protocol", False, 9),
    ("input", "input", False, 36),
    ("output", "output", False, 36),
    ("runs", "runs", True, 7),
    ("valid", "valid", True, 9),
    ("capacity", "capacity", True, 9),
    ("copied", "copied", True, 12),
    ("written", "written", True, 12),
)
_CACHE_RUNS = (
    ("run", "run", True, 7),
    ("valid", "valid", True, 9),
    ("capacity", "capacity", True, 9),
    ("rows_written", "rows written", True, 12),
    ("rows_read", "rows read", True, 12),
    ("copied", "copied", True, 12),
    ("written", "written", True, 12),
    ("buffer", "buffer", False, 12),
)


def step_text(step: Step) -> str:
    head, *rest = _step_facts(step)
    return "\n".join([f"{head[0]}: {head[1]}", *(f"  {what}: {fact}" for what, fact in rest)])


def step_table(step: Step) -> Table:
    return Table([{"what": what, "is": fact} for what, fact in _step_facts(step)], _FACTS)


def cache_text(cache: Any) -> str:
    row = _cache_row(cache)
    axis = "" if cache.axis is None else f", axis {cache.axis}"
    rows = f"{row['valid']:,} of {row['capacity']:,} rows valid, " if cache.runs and cache.axis is not None else ""
    moved = f"{size(row['copied'])} copied, {size(row['written'])} written"
    runs = f"{count(len(cache.runs), 'run')}: {rows}{moved}" if cache.runs else "no run yet"
    carried = f"{short(cache.input, _NAME)} → {short(cache.output, _NAME)}"
    return f"<Cache {short(cache.name, _NAME)!r} ({cache.protocol}{axis}): {carried}; {runs}>"


def cache_table(cache: Any) -> Table:
    rows = [
        {
            "run": number,
            "valid": run.valid,
            "capacity": run.capacity,
            "rows_written": run.rows_written,
            "rows_read": run.rows_read,
            "copied": run.bytes_copied,
            "written": run.bytes_written,
            "buffer": "" if run.storage < 0 else buffer(run.storage),
        }
        for number, run in enumerate(cache.runs)
    ]
    return Table(rows, _CACHE_RUNS, f"cache {cache.name} ({cache.protocol})")


def caches_table(caches: Sequence[Any]) -> Table:
    """A table of caches: rows after the last run, bytes of all runs."""
    return Table([_cache_row(cache) for cache in caches], _CACHES)


def _step_facts(step: Step) -> list[tuple[str, str]]:
    where = f" in {' › '.join(step.frame)}" if step.frame else ""
    facts = [(f"step {step.index:,}", f"{step.op_type} {short(step.node, _NAME)}, run {step.run}{where}")]
    facts.append(("reads", ", ".join(short(name, _NAME) for name in step.inputs if name) or "nothing"))
    facts += [("makes", _output(out)) for out in step.outs]
    facts.append(("memory", sentence(step)))
    totals = (("allocated", step.allocated), ("copied", step.copied), ("written", step.written))
    facts.append(("bytes", f"{', '.join(f'{size(n)} {what}' for what, n in totals)}; {size(step.live_bytes)} live"))
    if step.freed:
        facts.append(("frees", short(", ".join(buffer(storage) for storage in step.freed), _TEXT)))
    return facts


def _output(out: Any) -> str:
    form = out.dtype if out.shape is None else f"{out.dtype}{list(out.shape)}"
    return f"{short(out.name, _NAME)} {form} in {out.label} ({out.how})"


def _cache_row(cache: Any) -> dict[str, Any]:
    last = cache.runs[-1] if cache.runs else None
    return {
        "name": cache.name,
        "protocol": cache.protocol,
        "input": cache.input,
        "output": cache.output,
        "runs": len(cache.runs),
        "valid": last.valid if last else 0,
        "capacity": last.capacity if last else 0,
        "copied": sum(run.bytes_copied for run in cache.runs),
        "written": sum(run.bytes_written for run in cache.runs),
    }
