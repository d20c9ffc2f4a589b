"""What a trace comes to, on one screen of text, and the same numbers as plain data.

Invariant: the text is made of the data; both depend on what was recorded only.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kvviz.engine.blockers import Blocker
from kvviz.explain.peak import Peak, PeakPart, peak
from kvviz.explain.summary import Missed, counts, missed, nearest
from kvviz.explain.words import buffer, count, short, size
from kvviz.view.table import Table
from kvviz.view.wire import run_label

# What fits on one screen; the data has all of it.
_RUNS, _MISSED, _PARTS, _CACHES, _WIDTH = 5, 5, 5, 8, 118
_INDENT = " " * 12
_INDENTED = {"initial_indent": _INDENT, "subsequent_indent": _INDENT}


def report(trace: Any) -> str:
    """The model, its runs, how its ops ran, what was missed, what was alive at the peak, and the caches, as text.

    Parameters
    ----------
    trace : Trace

    Examples
    --------
    >>> print(report(trace))                                                # doctest: +SKIP
    main_graph: 400 nodes, 242 weights of 131 kB, opset 18; policy ideal
    6,400 steps in 16 runs: peak 143 kB, 337 kB allocated, 434 kB written, 139 kB copied
    ops: 1,104 in place, 2,414 views, 912 missed, 1,970 cannot
    …
    """
    found, top = missed(trace), peak(trace)
    blocks = [
        [_model_line(trace), *_totals(trace), *_numbers(trace)],
        _runs(trace),
        _missed_lines(trace, found),
        _peak_lines(trace, top),
        _cache_lines(trace),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def report_data(trace: Any) -> dict[str, Any]:
    """The report as plain values that JSON can hold; nothing is cut.

    Parameters
    ----------
    trace : Trace
    """
    return {
        "model": _model(trace),
        "policy": trace.policy.name,
        "interrupted": trace.interrupted,
        "steps": len(trace.steps),
        "totals": _totals_data(trace),
        "in_place": asdict(counts(trace)),
        "runs": [
            {
                "label": run_label(trace, run.index),
                "steps": run.last - run.first,
                "token": run.token,
                "text": run.text,
                "peak_bytes": run.peak_bytes,
                "bytes_allocated": run.bytes_allocated,
                "bytes_written": run.bytes_written,
                "bytes_copied": run.bytes_copied,
            }
            for run in trace.runs
        ],
        "prompt": trace.prompt,
        "tokens": trace.tokens,
        "missed": [_missed_data(entry) for entry in missed(trace)],
        "peak": asdict(peak(trace)),
        "caches": [asdict(cache) for cache in trace.caches],
    }


def _model(trace: Any) -> dict[str, Any]:
    graph = trace.graph
    weights = [storage.capacity for storage in trace.storages if storage.origin == "weights"]
    return {
        "title": trace.title,
        "nodes": len(graph.nodes),
        "nodes_with_bodies": sum(1 for _ in graph.walk()) if _has_bodies(graph) else len(graph.nodes),
        "weights": len(weights),
        "weight_bytes": sum(weights),
        "opsets": {domain or "ai.onnx": version for domain, version in graph.opsets.items()},
    }


def _has_bodies(graph: Any) -> bool:
    return any(node.subgraphs or node.function is not None for node in graph.nodes)


def _model_line(trace: Any) -> str:
    facts = _model(trace)
    nodes = count(facts["nodes"], "node")
    if facts["nodes_with_bodies"] > facts["nodes"]:
        nodes += f" ({facts['nodes_with_bodies']:,} with those of bodies)"
    opsets = ", ".join(str(v) if d == "ai.onnx" else f"{d} {v}" for d, v in facts["opsets"].items())
    parts = [nodes, f"{count(facts['weights'], 'weight')} of {size(facts['weight_bytes'])}"]
    parts += [f"opset {opsets}"] if opsets else []
    return f"{short(facts['title'])}: {', '.join(parts)}; policy {trace.policy.name}"


def _totals_data(trace: Any) -> dict[str, int]:
    return {
        "peak_bytes": trace.peak_bytes,
        "bytes_allocated": trace.bytes_allocated,
        "bytes_written": trace.bytes_written,
        "bytes_copied": trace.bytes_copied,
    }


def _totals(trace: Any) -> list[str]:
    told = [f"{size(value)} {key.split('_')[1]}" for key, value in _totals_data(trace).items() if key != "peak_bytes"]
    line = f"{count(len(trace.steps), 'step')} in {count(len(trace.runs), 'run')}: peak {size(trace.peak_bytes)}, "
    return [line + ", ".join(told)] + (
        ["stopped from the keyboard: only what ran is counted"] if trace.interrupted else []
    )


def _numbers(trace: Any) -> list[str]:
    c = counts(trace)
    parts = [f"{c.in_place:,} in place", count(c.views, "view"), f"{c.missed:,} missed", f"{c.cannot:,} cannot"]
    parts += [count(c.bodies, "control node")] if c.bodies else []
    return [f"ops: {', '.join(parts)}"]


def _runs(trace: Any) -> list[str]:
    """Runs, of many the first and the last ones."""
    rows = [
        {
            "run": run_label(trace, run.index),
            "token": " ".join(short(part, 24) for part in _told_token(run)),
            "steps": f"{run.last - run.first:,}",
            "peak": size(run.peak_bytes),
            "allocated": size(run.bytes_allocated),
            "written": size(run.bytes_written),
            "copied": size(run.bytes_copied),
        }
        for run in trace.runs
    ]
    if len(rows) < 2:
        return []
    keys = ["run", "token", "steps", "peak", "allocated", "written", "copied"]
    if all(run.token is None for run in trace.runs):
        keys.remove("token")
    return _lines(rows, keys, {"run", "token"}, _RUNS)


def _told_token(run: Any) -> list[str]:
    if run.token is None:
        return []
    return [str(run.token)] if run.text in ("", str(run.token)) else [str(run.token), repr(run.text)]


def _missed_lines(trace: Any, found: Sequence[Missed]) -> list[str]:
    if not found:
        return ["nothing missed: every op that could run in place did, or had nothing to spare"]
    total = sum(entry.bytes for entry in found)
    lines = [f"missed in place: {size(total)} in {count(len(found), 'node')}"]
    for entry in found[:_MISSED]:
        times = f" in {len(entry.steps):,} steps" if len(entry.steps) > 1 else ""
        lines.append(f"  {size(entry.bytes):>8}  {entry.op_type} {_where(entry.frame, entry.node)}{times}")
        reason = nearest(entry.blockers)
        if reason is not None:
            lines += textwrap.wrap(
                _message(entry.step, reason), _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT
            )
    return lines + ([f"{_INDENT}… {count(len(found) - _MISSED, 'more node')}"] if len(found) > _MISSED else [])


def _message(step: int, blocker: Blocker) -> str:
    """A blocker's sentence with long names cut."""
    text = blocker.message
    for name in (blocker.input, blocker.culprit):
        if len(name) > 60:
            text = text.replace(name, short(name))
    return short(f"step {step:,}: {text}", 2 * _WIDTH)


def _where(frame: tuple[str, ...], node: str) -> str:
    return " › ".join([*(short(part, 32) for part in frame), short(node)])


def _peak_lines(trace: Any, top: Peak) -> list[str]:
    if top.step is not None:
        step = trace.steps[top.step]
        label, place = run_label(trace, step.run), _where(step.frame, step.node)
        when = f"at step {top.step:,} of {len(trace.steps):,} ({label}, {step.op_type} {place})"
    elif top.run is not None:
        when = f"before the first op of {run_label(trace, top.run)}"
    else:
        when = "of nothing"
    weights = [part for part in top.parts if part.origin == "weights"]
    others = [part for part in top.parts if part.origin != "weights"]
    lines = [f"peak: {size(top.bytes)} {when}"]
    if weights:
        lines.append(f"  {size(sum(part.bytes for part in weights)):>8}  weights")
    lines += [f"  {size(part.bytes):>8}  {_part(part)}" for part in others[:_PARTS]]
    rest = sum(part.bytes for part in others[_PARTS:])
    return lines + (
        [f"  {size(rest):>8}  {count(len(others) - _PARTS, 'more')}".replace("mores", "more")] if rest else []
    )


def _part(part: PeakPart) -> str:
    if part.storage is None:
        return part.name
    origin = {"caller": ", borrowed from the caller", "donated": ", donated by the caller"}.get(part.origin, "")
    return f"{buffer(part.storage)} {short(part.name)}{origin}"


def _cache_lines(trace: Any) -> list[str]:
    """Caches with their first and last run; copied and written are bytes of that one run."""
    rows = []
    for cache in trace.caches:
        if cache.runs:
            first, last = cache.runs[0], cache.runs[-1]
            alone = len(cache.runs) == 1
            rows.append(
                {
                    "cache": short(cache.name, 32),
                    "protocol": cache.protocol,
                    "capacity": f"{last.capacity:,}",
                    "valid": _ends(f"{first.valid:,}", f"{last.valid:,}", alone),
                    "copied a run": _ends(size(first.bytes_copied), size(last.bytes_copied), alone),
                    "written a run": _ends(size(first.bytes_written), size(last.bytes_written), alone),
                }
            )
    return _lines(rows, list(rows[0]), {"cache", "protocol"}, _CACHES) if rows else []


def _ends(first: str, last: str, alone: bool) -> str:
    return last if alone else f"{first} … {last}"


def _lines(rows: list[dict[str, str]], keys: Sequence[str], words: set[str], limit: int) -> list[str]:
    columns = tuple((key, key, key not in words, 60) for key in keys)
    # To leave out a single row would save nothing.
    return Table(rows, columns).text(limit if len(rows) > limit + 1 else len(rows)).split("\n")


def _missed_data(entry: Missed) -> dict[str, Any]:
    data = asdict(entry)
    data["blockers"] = [
        {"code": str(b.code), "input": b.input, "culprit": b.culprit, "message": b.message, "bytes": b.bytes}
        for b in entry.blockers
    ]
    return data
