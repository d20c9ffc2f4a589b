"""A trace as Chrome trace JSON, which Perfetto and chrome://tracing open.

Without recorded times, one microsecond represents one step: time is the order of ops, not their duration. Ops with
times are on the track of their lane.
"""

from __future__ import annotations

import json
import os
from typing import Any

from kvviz.atomic_write import write_text
from kvviz.explain.sentences import sentence
from kvviz.report.faces.steps_table import memory_word
from kvviz.trace.recording import Trace
from kvviz.trace.units import buffer, run_label, short

_PROCESS = 1
_RUNS = 0
_LANES = 1000  # tracks of lanes come after those of frames


def export_perfetto(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace for Perfetto: a slice for every op, a track for each depth of frames, counters for bytes and
    rows."""
    content = {"traceEvents": perfetto_events(trace), "displayTimeUnit": "ms"}
    write_text(path, json.dumps(content, separators=(",", ":")))


def perfetto_events(trace: Trace) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [_name("process_name", 0, f"kvviz: {short(trace.title, 80)}")]
    events.append(_name("thread_name", _RUNS, "runs"))
    frames = trace.frames
    depths = sorted({len(frame.path) for frame in frames})
    events += [_name("thread_name", depth + 1, f"depth {depth}" if depth else "main graph") for depth in depths]
    for run in trace.runs:
        if run.last > run.first and not trace.log.declared.times:
            totals = {
                "peak bytes": run.peak_bytes,
                "bytes copied": run.bytes_copied,
                "bytes written": run.bytes_written,
            }
            events.append(_slice(run_label(trace, run.index), _RUNS, run.first, run.last - run.first, totals))
    starts = _body_starts(trace)
    times = trace.log.declared.times
    lanes = {lane: _LANES + i for i, lane in enumerate(dict.fromkeys(timing.lane for timing in times.values()))}
    events += [_name("thread_name", track, lane or "ops") for lane, track in lanes.items()]
    for step in trace.steps:
        # A control node is logged after the ops of its body; its slice begins with the first of them.
        start = starts.get((step.frame_id, id(step.graph_node)), step.index)
        args = {
            "node": short(step.node, 200),
            "memory": memory_word([out.how for out in step.outs]),
            "buffers": ", ".join(buffer(o.storage, o.generation) for o in step.outs),
            "written": step.written,
            "copied": step.copied,
            "what": sentence(step, trace),
        }
        timing = times.get(step.index)
        if timing is None:
            events.append(_slice(step.op_type, len(step.frame) + 1, start, step.index + 1 - start, args))
        else:
            events.append(_slice(step.op_type, lanes[timing.lane], timing.start, timing.end - timing.start, args))
        at = step.index if timing is None else timing.start
        events.append(_counter("live bytes", at, {"bytes": step.live_bytes}))
    for cache in trace.caches:
        for run, rows in zip(trace.runs, cache.runs):
            events.append(
                _counter(f"cache {short(cache.name, 60)}", run.first, {"reserved": rows.capacity, "valid": rows.valid})
            )
    return events


def _body_starts(trace: Trace) -> dict[tuple[int, int], int]:
    """First step inside the bodies of a control node, by (frame, ``id`` of the node)."""
    frames = trace.frames
    starts: dict[tuple[int, int], int] = {}
    seen: set[int] = set()
    for index, row in enumerate(trace.log):
        frame = frames[row.frame]
        while frame.parent is not None and frame.id not in seen:
            seen.add(frame.id)
            starts.setdefault((frame.parent, id(frame.node)), index)
            frame = frames[frame.parent]
    return starts


def _name(kind: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": _PROCESS, "tid": track, "name": kind, "args": {"name": name}}


def _slice(name: str, track: int, start: float, length: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "pid": _PROCESS, "tid": track, "name": name, "ts": start, "dur": length, "args": args}


def _counter(name: str, at: float, values: dict[str, int]) -> dict[str, Any]:
    return {"ph": "C", "pid": _PROCESS, "tid": _RUNS, "name": name, "ts": at, "args": values}
