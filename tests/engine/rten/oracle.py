"""Run what rten ran, the way it ran, and hold the traces against its recordings."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

import kvviz
from kvviz import KvvizError, Policy, Trace
from kvviz.graph.model import Graph
from tests.engine.rten.compare import facts
from tests.engine.rten.fact import BESIDES, CORE, Fact
from tests.engine.rten.records import Recording, recordings, sources

Feeds = dict[str, np.ndarray]


def run_like(recording: Recording, policy: str | Policy = "rten") -> tuple[Trace, Feeds]:
    """Run a recorded graph with the recorded inputs, owners, room and outputs; what was lent is read-only."""
    graph = _session(recording, policy)
    feeds = {}
    for given in recording.given:
        array = given.array if given.rows is None else kvviz.reserve(given.array, given.axis, given.rows)
        array.flags.writeable = given.owned
        feeds[given.name] = array
    donate = [given.name for given in recording.given if given.owned]
    return kvviz.run(graph, feeds, recording.outputs, donate, policy, poison=True), feeds


def _session(recording: Recording, policy: str | Policy) -> Graph:
    """The graph, loaded anew for each session of a scenario, as plans are kept as long as a session lives."""
    if recording.before is not None:
        return run_like(recording.before, policy)[0].graph
    return _model(recording.model) if recording.stated is None else kvviz.load(recording.model)


@lru_cache(maxsize=2)
def _model(path: Path) -> Graph:
    return kvviz.load(path)


@dataclass(slots=True)
class Row:
    """What was compared in the runs of one source and mode, and what they did not agree in."""

    source: str
    mode: str
    runs: int = 0
    ops: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[Recording, Fact]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def add(self, recording: Recording, found: Iterable[Fact]) -> None:
        """Take in the facts of one run."""
        self.ops += len(recording.ops)
        for fact in found:
            self.compared[fact.kind] += 1
            if not fact.agrees:
                self.wrong.append((recording, fact))

    def cell(self, kind: str) -> str:
        """How many facts of a kind agree, of how many."""
        total = self.compared[kind]
        wrong = sum(fact.kind == kind for _, fact in self.wrong)
        return f"{total - wrong}/{total}" if wrong else f"{total}"


def agreement(names: Iterable[str] | None = None, policy: str | Policy = "rten", mode: str = "") -> list[Row]:
    """Compare all runs of some sources (all of them by default), one row for each source and mode."""
    rows: dict[tuple[str, str], Row] = {}
    for source in sources() if names is None else names:
        for recording in recordings(source):
            if mode in ("", recording.mode):
                row = rows.setdefault((source, recording.mode), Row(source, recording.mode))
                row.runs += 1
                try:
                    trace, feeds = run_like(recording, policy)
                except KvvizError as error:
                    row.failed.append(f"run {recording.run}: {error}")
                else:
                    row.add(recording, facts(trace, recording, feeds))
    return list(rows.values())


def total(rows: Iterable[Row], name: str) -> Row:
    """The sum of some rows."""
    found = Row(name, "")
    for row in rows:
        found.runs += row.runs
        found.ops += row.ops
        found.compared += row.compared
        found.wrong += row.wrong
        found.failed += row.failed
    return found


def fidelity(row: Row) -> float:
    """Percentage of decisions (order, dispatch, positions taken, identity) that are the recorded ones."""
    compared = sum(row.compared[kind] for kind in CORE)
    wrong = sum(fact.kind in CORE for _, fact in row.wrong)
    return 100 * (compared - wrong) / compared if compared else 0.0


def print_table(rows: Sequence[Row], details: bool = True) -> None:
    """One line a row: the number of facts compared, or how many agree of how many."""
    kinds = CORE + BESIDES
    print(f"{'':<30}{'mode':<22}{'runs':>5}{'ops':>6}" + "".join(f"{kind:>12}" for kind in kinds) + f"{'core %':>8}")
    sums = [total(rows, "all")] if len(rows) > 1 else []
    for row in [*(rows if details else ()), *sums]:
        cells = "".join(f"{row.cell(kind):>12}" for kind in kinds)
        print(f"{row.source:<30}{row.mode[:21]:<22}{row.runs:>5}{row.ops:>6}{cells}{fidelity(row):>8.2f}")
        for message in row.failed if row.source != "all" else ():
            print(f"    failed: {message}")
