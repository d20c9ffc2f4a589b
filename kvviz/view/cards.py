"""How a notebook displays a trace and a graph: a few figures, a small picture, the verdict.

Untrusted notebooks strip scripts and inline SVG, so the picture goes in as a data URI and the rest is plain HTML.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from html import escape

import numpy as np

from kvviz.decode.model_kind import model_kind
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from kvviz.trace.recording import Trace
from kvviz.trace.units import count, short, size

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
    live = np.fromiter((row.live for row in trace.log), np.float64, len(trace.log))
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
