"""A trace as the bytes that the page reads: graphs, drawings, runs and caches in a header, steps in columns.

Invariant: equal traces give equal bytes. The format is numbered; the page refuses numbers that it does not know.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from typing import Any

from kvviz.explain.diagnose import Report, explain
from kvviz.view.columns import Columns, Strings, pack, unpack
from kvviz.view.wire_graphs import Drawings, GraphTable, add_tables
from kvviz.view.wire_report import report_header
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
    return Payloads(trace, detail).tell()


class Payloads:
    """Payloads of a trace that grows: what is over is worked out once, the run that goes on each time.

    Parameters
    ----------
    trace : Trace
    detail : collection of int, optional
        As in `payload`.
    """

    def __init__(self, trace: Any, detail: Collection[int] | None = None) -> None:
        self.trace = trace
        self.detail = detail
        self._strings = Strings()
        self._values = Values(self._strings)
        self._tables: dict[int, GraphTable] = {}
        self._frames = FrameColumns(self._tables, self._strings, self._values)
        self._steps = StepColumns(trace, self._tables, self._strings, self._values)
        self._drawings = Drawings(self._tables)
        self._kept: list[int] = []
        self._report: tuple[int, Report] | None = None

    def tell(self, level: int = 6) -> bytes:
        """The payload as of now, compressed at a zlib level."""
        trace, columns = self.trace, Columns()
        add_tables(self._tables, trace.frames, self._frames.told)
        self._frames.add(trace.frames)
        self._frames.write(columns)
        self._take_in()
        self._steps.write(columns)
        _storage_columns(trace.storages, self._kept, self._strings, columns)
        graphs, drawings = self._drawings.headers(self._steps.shapes)
        header = {
            "format": FORMAT,
            "title": trace.title,
            "policy": {"name": trace.policy.name, "about": trace.policy.about},
            "graphs": graphs,
            "drawings": drawings,
            "runs": _runs(trace, self._kept),
            "story": _story(trace),
            "caches": _caches(trace),
            "live": _live(trace, self._tables),
            # While a trace still goes on, its diagnosis would be out of date at every step: the page asks for it.
            "report": self.report() if trace.live is None and self._kept else None,
            "breakpoint_kinds": BREAKPOINT_KINDS,
            "strings": self._strings.table(),
        }
        return pack(header, columns, level)

    def report(self, start: int = 0) -> dict[str, Any]:
        """The diagnosis of what has run so far, as the page reads it; entries of its missed list from ``start`` on."""
        add_tables(self._tables, self.trace.frames, self._frames.told)
        steps = len(self.trace.recorder.rows)
        kept = self._kept if self.detail is not None else range(steps)
        return report_header(self.diagnosis(), self.trace, self._tables, kept, start)

    def diagnosis(self) -> Report:
        """What `kvviz.explain` says of what has run so far; worked out once for each length of the trace."""
        steps = len(self.trace.recorder.rows)
        if self._report is None or self._report[0] != steps:
            self._report = (steps, explain(self.trace))
        return self._report[1]

    def _take_in(self) -> None:
        """Tell the steps of runs that are over once, and those of the last run anew: its blockers may name other
        culprits now, and its last step may have freed more."""
        rows, frames = self.trace.recorder.rows, self.trace.frames
        kept = self._kept
        del kept[self._steps.rewind() :]
        last = max((run.first for run in self.trace.runs if run.last > run.first), default=0)
        for index in range(kept[-1] + 1 if kept else 0, len(rows)):
            if index == last:
                self._steps.mark()
            if self.detail is None or frames[rows[index][0]].run in self.detail:
                kept.append(index)
                self._steps.add(index, rows[index])


def run_label(trace: Any, run: int) -> str:
    """``"prefill"``, ``"decode 3"``; ``"run"`` or ``"run 3"`` where there are no tokens."""
    if trace.prompt:
        return f"decode {run}" if run else "prefill"
    return f"run {run}" if len(trace.runs) > 1 else "run"


class FrameColumns:
    """Frames and the values that they start with, as columns; a frame that was told does not change."""

    def __init__(self, tables: dict[int, GraphTable], strings: Strings, values: Values) -> None:
        self._tables = tables
        self._strings = strings
        self._values = values
        self._rows: list[tuple] = []
        self._bound: list[tuple] = []
        self._bind_at = [0]

    @property
    def told(self) -> int:
        """How many frames were taken in."""
        return len(self._rows)

    def add(self, frames: list[Any]) -> None:
        """Take in the frames that are new."""
        for frame in frames[self.told :]:
            table = self._tables[id(frame.graph)]
            node = -1
            if frame.parent is not None:
                node = self._tables[id(frames[frame.parent].graph)].node_at[id(frame.node)]
            parent = -1 if frame.parent is None else frame.parent
            iteration = -1 if frame.iteration is None else frame.iteration
            label = self._strings(frame.path[-1] if frame.path else "main")
            self._rows.append((table.index, parent, node, iteration, frame.run, label))
            for b in frame.bindings:
                info, nbytes, _ = self._values(b.shape, b.dtype)
                how = BINDINGS.index(b.how)
                self._bound.append((table.value(b.name), b.storage, b.generation, how, b.offset, nbytes, info))
            self._bind_at.append(len(self._bound))

    def write(self, columns: Columns) -> None:
        """Add the columns of all frames."""
        columns.rows("frame", "graph i, parent i, node i, iteration i, run i, label i", self._rows)
        columns.ints("frame.bind", self._bind_at)
        columns.rows("bind", "value i, storage i, gen i, how i, offset d, bytes d, info i", self._bound)


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
