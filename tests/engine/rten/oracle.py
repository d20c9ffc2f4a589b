"""Run what rten ran, the way it ran, and count what the traces and its recordings agree in."""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np

import kvviz
from kvviz import Policy, Trace
from kvviz.graph.model import Graph
from tests.engine.rten.compare import facts
from tests.engine.rten.records import Recording, recordings

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


def agreement(sources: Iterable[str]) -> Counter[tuple[str, bool]]:
    """How many facts of each kind agree in all runs of some models or scenarios, and how many do not."""
    found = Counter[tuple[str, bool]]()
    for recording in (recording for source in sources for recording in recordings(source)):
        trace, feeds = run_like(recording)
        found.update((fact.kind, fact.agrees) for fact in facts(trace, recording, feeds))
    return found
