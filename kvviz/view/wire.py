"""A trace as the bytes that the page reads: graphs, drawings, runs and caches in a header, steps in columns.

Invariant: equal traces give equal bytes. The format is numbered; the page refuses numbers that it does not know.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from typing import Any

from kvviz.view.columns import Columns, Strings, pack, unpack
from kvviz.view.wire_graphs import GraphTable, draw_tables, graph_tables
from kvviz.view.wire_steps import StepColumns, Values

__all__ = ["FORMAT", "decode", "payload"]

FORMAT = 1
BREAKPOINT_KINDS = ("node", "op", "buffer", "decision", "condition")
BINDINGS = ("weight", "borrowed", "donated", "captured by reference", "captured by value", "passed")
ORIGINS = ("weights", "caller", "donated", "run", "pool")

decode = unpack


def payload(trace: Any, *, detail: Collection[int] | None = None) -> bytes:
    """The trace as compressed bytes.

    Parameters
    ----------
    trace : Trace
    detail : collection of int, optional
        Runs whose steps are told; all by default. Of the others only the totals are kept.

    Returns
    -------
    bytes
        See `kvviz.view.columns` for the layout; `decode` reads it back.
    """
    rows, frames = trace.recorder.rows, trace.frames
    if detail is None:
        kept = list(range(len(rows)))
    else:
        kept = [i for i, row in enumerate(rows) if frames[row[0]].run in detail]
    strings, columns = Strings(), Columns()
    values = Values(strings)
    tables = graph_tables(frames)
    _frame_columns(frames, tables, strings, values, columns)
    _storage_columns(trace.storages, kept, strings, columns)
    steps = StepColumns(trace, tables, strings, values)
    for index in kept:
        steps.add(index, rows[index])
    steps.write(columns)
    graphs, drawings = draw_tables(list(tables.values()), steps.shapes)
    header = {
        "format": FORMAT,
        "title": trace.title,
        "policy": {"name": trace.policy.name, "about": trace.policy.about},
        "graphs": graphs,
        "drawings": drawings,
        "runs": _runs(trace, kept),
        "story": _story(trace),
        "caches": _caches(trace),
        "live": _live(trace, tables),
        "breakpoint_kinds": BREAKPOINT_KINDS,
        "strings": strings.table(),
    }
    return pack(header, columns)


def run_label(trace: Any, run: int) -> str:
    """``"prefill"``, ``"decode 3"``; ``"run"`` or ``"run 3"`` where there are no tokens."""
    if trace.prompt:
        return f"decode {run}" if run else "prefill"
    return f"run {run}" if len(trace.runs) > 1 else "run"


def _frame_columns(
    frames: list[Any], tables: dict[int, GraphTable], strings: Strings, values: Values, columns: Columns
) -> None:
    rows, bound, bind_at = [], [], [0]
    for frame in frames:
        table = tables[id(frame.graph)]
        node = -1
        if frame.parent is not None:
            node = tables[id(frames[frame.parent].graph)].node_at[id(frame.node)]
        rows.append(
            (
                table.index,
                -1 if frame.parent is None else frame.parent,
                node,
                -1 if frame.iteration is None else frame.iteration,
                frame.run,
                strings(frame.path[-1] if frame.path else "main"),
            )
        )
        for b in frame.bindings:
            info, nbytes, _ = values(b.shape, b.dtype)
            bound.append((table.value(b.name), b.storage, b.generation, BINDINGS.index(b.how), b.offset, nbytes, info))
        bind_at.append(len(bound))
    columns.rows("frame", "graph i, parent i, node i, iteration i, run i, label i", rows)
    columns.ints("frame.bind", bind_at)
    columns.rows("bind", "value i, storage i, gen i, how i, offset d, bytes d, info i", bound)


def _storage_columns(storages: list[Any], kept: list[int], strings: Strings, columns: Columns) -> None:
    def moved(step: int) -> int:
        # Where steps were left out, what happened there is told of the next step that was kept.
        return bisect_left(kept, step)

    columns.rows(
        "storage",
        "capacity d, origin i, name i, born i, freed i",
        [
            (
                s.capacity,
                ORIGINS.index(s.origin),
                strings(s.name),
                -1 if s.born < 0 else moved(s.born),
                -1 if s.freed is None else moved(s.freed),
            )
            for s in storages
        ],
    )


def _runs(trace: Any, kept: list[int]) -> list[dict[str, Any]]:
    return [
        {
            "first": bisect_left(kept, run.first),
            "last": bisect_left(kept, run.last),
            "label": run_label(trace, run.index),
            "token": run.token,
            "text": run.text,
            "peak": run.peak_bytes,
            "copied": run.bytes_copied,
            "written": run.bytes_written,
            "allocated": run.bytes_allocated,
        }
        for run in trace.runs
    ]


def _story(trace: Any) -> list[dict[str, Any]]:
    """Words of the prompt, then of every token with the run that produced it."""
    tokens = [*trace.prompt, *trace.tokens]
    words = list(trace.words or ())
    words += [str(token) for token in tokens[len(words) :]]
    makers = [run.index for run in trace.runs if run.token is not None]
    return [
        {
            "text": word,
            "run": makers[i - len(trace.prompt)] if 0 <= i - len(trace.prompt) < len(makers) else None,
            "prompt": i < len(trace.prompt),
        }
        for i, word in enumerate(words[: len(tokens)])
    ]


def _caches(trace: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": cache.name,
            "input": cache.input,
            "output": cache.output,
            "protocol": cache.protocol,
            "axis": cache.axis,
            "capacity": [r.capacity for r in cache.runs],
            "valid": [r.valid for r in cache.runs],
            "copied": [r.bytes_copied for r in cache.runs],
            "written": [r.bytes_written for r in cache.runs],
            "storage": [r.storage for r in cache.runs],
        }
        for cache in trace.caches
    ]


def _live(trace: Any, tables: dict[int, GraphTable]) -> dict[str, Any] | None:
    live = trace.live
    if live is None:
        return None
    table = tables[id(trace.frames[live.frame].graph)]
    costs = live.costs or ((None, 0),) * len(live.frontier)
    return {
        "frame": live.frame,
        "frontier": [
            {"node": table.node_at[id(node)], "alloc": allocates, "frees": frees}
            for node, (allocates, frees) in zip(live.frontier, costs)
        ],
    }
