"""A trace as the bytes that the page reads: graphs, drawings, runs and caches in a header, steps in columns.

Invariant: equal traces give equal bytes. The format is numbered; the page refuses numbers that it does not know.
The payload of a long recording has the totals of all runs, but only some of the steps. Frames and steps are then
numbered by their place among those that are sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Any

from kvviz.errors import KvvizError
from kvviz.query.grammar import header as query_header
from kvviz.report.explain import Report, explain
from kvviz.report.faces.markdown_text import FIGURES, TEMPLATES, about, again
from kvviz.report.palette import OWNERS, STATES
from kvviz.trace.outcome import DECISIONS, OUTCOMES
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import BINDINGS, HOW, ORIGINS
from kvviz.trace.units import run_label
from kvviz.view.page_data.packed_columns import Columns, Sent, Strings, change, sent, unpack, written
from kvviz.view.page_data.payload_graphs import Drawings, GraphTable, add_tables
from kvviz.view.page_data.payload_report import HazardColumns, report_header
from kvviz.view.page_data.payload_runs import (
    FrameColumns,
    caches_header,
    few_runs,
    runs_header,
    storage_columns,
    story_header,
)
from kvviz.view.page_data.payload_steps import FLAGS, StepColumns, Values
from kvviz.view.page_data.payload_tour import tour_header, tour_runs

FORMAT = 6
# The meaning of numbers in columns. The page has no such tables of its own.
CODES = {
    "flag": FLAGS,
    "how": HOW,
    "binding": BINDINGS,
    "origin": ORIGINS,
    "owner": [OWNERS[origin].about for origin in ORIGINS],
    "state": [(look.name, look.letter, look.about) for look in STATES.values()],
    "decision": DECISIONS,
    "outcome": OUTCOMES,
    "figure": FIGURES,
    "markdown": TEMPLATES,
}
# How many of the runs that the page requested are kept.
_MOST_ASKED = 4
# A change is sent up to this share of the payload, and a change on top of that up to this many bytes.
_SHARE, _SMALL = 0.25, 3000

decode = unpack


def payload(trace: Trace, *, detail: Collection[int] | None = None) -> bytes:
    """The trace as compressed bytes in the layout of `kvviz.view.page_data.packed_columns`; `decode` reads them back.
    ``detail``: runs whose steps are sent; by default all, or those of `few_runs` in a long recording. Of the others
    only the totals are sent."""
    return Payloads(trace, detail).encode()


class Payloads:
    """Payloads of a growing trace: finished runs are encoded once, the unfinished run each time. ``detail``: as in
    `payload`. ``kept``: numbers of the steps in the last payload, ascending."""

    def __init__(self, trace: Trace, detail: Collection[int] | None = None) -> None:
        self.trace = trace
        self.detail = detail
        self._asked: list[int] = []
        self._tables: dict[int, GraphTable] = {}
        self._frames_of: dict[int, list[Any]] = {}
        self._seen = 0
        self._shapes: dict[int, str] = {}
        self._drawings = Drawings(self._tables)
        self._hazards = HazardColumns(trace)
        self._report: tuple[int, Report] | None = None
        # The page's state: the payload, and the payload with the edge applied, with their encoded sizes.
        self._bases: list[tuple[Sent, int]] = []
        self._begin()

    def encode(self, level: int = 6, lazy: bool = False, cures: bool = True) -> bytes:
        """The current payload. ``level``: of zlib. ``lazy``: leave out the diagnosis if not all steps are sent and it
        was not made before; the page requests it. ``cures``: as in `report`; the page requests them."""
        content = self._content(lazy, cures)
        whole = written(content, level)
        self._bases = [(content, len(whole))]
        return whole

    def change(self, level: int = 1, lazy: bool = False, cures: bool = True) -> tuple[bytes | None, bytes] | None:
        """What changed since, see `kvviz.view.page_data.packed_columns.change`; None if a new payload is hardly larger.
        ``level, lazy, cures``: as in `encode`. Returns ``edge``: the change from the last payload (None: the last edge
        still holds), and ``latest``: the change from both together, empty if there is none."""
        content = self._content(lazy, cures)
        if len(self._bases) > 1:
            latest = change(self._bases[1][0], content, level)
            if latest is not None and len(latest) < _SMALL:
                return None, latest
        if self._bases:
            whole, size = self._bases[0]
            edge = change(whole, content, level)
            if edge is not None and len(edge) < max(size * _SHARE, _SMALL):
                self._bases[1:] = [(content, len(edge))]
                return edge, b""
        return None

    def _content(self, lazy: bool, cures: bool = True) -> Sent:
        trace, columns = self.trace, Columns()
        self._look_at_frames()
        self._take_in()
        whole = len(self.kept) == len(trace.log)
        # The diagnosis of an unfinished trace would be out of date at every step: the page requests it.
        diagnosed = trace.live is None and self.kept and (whole or self._report is not None or not lazy)
        self._frames.write(columns)
        self._steps.write(self.kept, trace.runs[self._sent[-1]].first if self._sent else 0, columns)
        used = None if whole else self._frames.storages() | self._steps.storages()
        storage_columns(trace.storages, self.kept, used, trace.log.later, self._strings, columns)
        time_columns(trace.log.declared, self.kept, self._strings, columns)
        graphs, drawings = self._drawings.headers(self._shapes, [cache.input for cache in trace.caches])
        header = {
            "format": FORMAT,
            "codes": CODES,
            "query": query_header(),
            "title": trace.title,
            "policy": {"name": trace.policy.name, "about": trace.policy.about, **({"dry": True} if trace.dry else {})},
            "share": {**about(trace), "again": again(trace, "{step}")},
            "total": len(trace.log),
            "graphs": graphs,
            "drawings": drawings,
            "runs": runs_header(trace, self.kept),
            "story": story_header(trace),
            "caches": caches_header(trace),
            **self._hazards.write(self._sent, self.kept, self._strings, columns),
            **tour_header(trace),
            "live": self._live(),
            "report": self.report(cures=cures) if diagnosed else None,
            "strings": self._strings.table(columns),
        }
        return sent(header, columns)

    def show(self, run: int) -> bool:
        """Send the steps of one more run from now on; returns whether that changes anything. The last few requested
        runs are kept. Raises `KvvizError`: if there is no such run, or its steps were not recorded."""
        runs = self.trace.runs
        if not 0 <= run < len(runs):
            raise KvvizError(f"run {run} does not exist; there are {len(runs)}, numbered from 0")
        if runs[run].first == runs[run].last:
            raise KvvizError(f"the steps of {run_label(self.trace, run)} were not recorded, only its totals")
        if run in self._wanted():
            return False
        self._asked = [*self._asked, run][-_MOST_ASKED:]
        return True

    def look_for_hazards(self) -> bool:
        """Send hidden pairs from now on, even if they follow from the table of operators and take longer to find;
        returns whether that changes anything."""
        known, self._hazards.wanted = self._hazards.wanted, True
        return not known

    def runs(self) -> frozenset[int] | None:
        """Runs whose steps are sent; None: all."""
        sent = self._wanted()
        with_steps = sum(run.last > run.first for run in self.trace.runs)
        return None if len(sent) == with_steps else frozenset(sent)

    def report(self, cures: bool = True) -> dict[str, Any]:
        """The findings so far, as the page reads them. ``cures``: include the changes that help, which take time to
        find."""
        self._look_at_frames()
        steps = len(self.trace.log)
        kept = range(steps) if self.runs() is None else self.kept
        return report_header(self.diagnosis(), self.trace, self._tables, kept, cures)

    def diagnosis(self) -> Report:
        """The report of `kvviz.explain` so far, made once for each length of the trace."""
        steps = len(self.trace.log)
        if self._report is None or self._report[0] != steps:
            self._report = (steps, explain(self.trace))
        return self._report[1]

    def _begin(self) -> None:
        self._strings = Strings()
        values = Values(self._strings)
        self._frames = FrameColumns(self._tables, self._strings, values)
        self._steps = StepColumns(self.trace, self._tables, self._strings, values, self._frames.number, self._shapes)
        self.kept: list[int] = []
        self._sent: list[int] = []
        self._cuts = 0

    def _look_at_frames(self) -> None:
        frames = self.trace.frames
        add_tables(self._tables, frames, self._seen)
        for frame in frames[self._seen :]:
            self._frames_of.setdefault(frame.run, []).append(frame)
        self._seen = len(frames)

    def _wanted(self) -> list[int]:
        runs = self.trace.runs
        detail = few_runs(runs) if self.detail is None else self.detail
        chosen = range(len(runs)) if detail is None else {*detail, *self._asked, *tour_runs(self.trace)}
        # The unfinished run is needed, and the one before it.
        live = len(runs) - 2 if self.trace.live is not None else len(runs)
        return [run.index for run in runs if run.last > run.first and (run.index in chosen or run.index >= live)]

    def _take_in(self) -> None:
        """Note which steps are sent, and encode the frames of finished runs once, and those of the last run again."""
        wanted, over = self._wanted(), self._sent[:-1]
        if wanted[: len(over)] != over:
            self._begin()
            over = []
        again, runs, cuts = wanted[len(over) :], self.trace.runs, self.trace.log.cuts
        if cuts != self._cuts:
            self._steps.forget(runs[again[0]].first if again else len(self.trace.log))
        self._frames.rewind(again[0] if again else len(runs))
        for run in again:
            self._frames.add(self._frames_of.get(run, ()))
        begun = len(runs) - 1
        if begun not in wanted and self.trace.live is not None:
            self._frames.add(self._frames_of.get(begun, ()))
        self.kept = [step for run in wanted for step in range(runs[run].first, runs[run].last)]
        self._sent, self._cuts = wanted, cuts

    def _live(self) -> dict[str, Any] | None:
        trace, live = self.trace, self.trace.live
        if live is None:
            return None
        table = self._tables[id(trace.frames[live.frame].graph)]
        costs = live.costs or ((None, 0),) * len(live.frontier)
        return {
            "frame": self._frames.number[live.frame],
            "frontier": [
                {"node": table.node_at[id(node)], "alloc": allocates, "frees": frees}
                for node, (allocates, frees) in zip(live.frontier, costs)
            ],
        }


# Declarations of a producer: when and on which lane steps ran, refused frees, sizes of arenas, and other events.


def time_columns(declared: Any, kept: Sequence[int], strings: Strings, columns: Columns) -> None:
    """Add the columns ``time``, ``refused``, ``arena`` and ``mark``, each only if it has entries. ``kept``: numbers of
    the steps that are sent, ascending."""
    place = {step: at for at, step in enumerate(kept)}
    parts: dict[tuple[str, str], list[tuple[Any, ...]]] = {
        ("time", "step i, lane i, start d, end d"): [
            (place[step], strings(timing.lane), timing.start, timing.end)
            for step, timing in sorted(declared.times.items())
            if step in place
        ],
        ("refused", "step i, storage i, why i"): [
            (bisect_left(kept, free.after), free.storage, strings(free.why)) for free in declared.frees if not free.done
        ],
        ("arena", "space i, name i, bytes d, banks i"): [
            (strings(space), strings(name), size, banks) for space, name, size, banks in declared.arenas
        ],
        ("mark", "step i, time d, kind i, value i, storage i, bytes d, text i, line i"): [
            (
                *(bisect_left(kept, mark.after) if mark.after >= 0 else -1, mark.time),
                *(strings(mark.kind), strings(mark.value), mark.storage, mark.nbytes),
                *(strings(mark.text), strings(mark.line)),
            )
            for mark in declared.marks
        ],
    }
    for (name, fields), rows in parts.items():
        if rows:
            columns.rows(name, fields, rows)
