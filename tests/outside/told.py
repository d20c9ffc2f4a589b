"""Everything that readers say of a trace, as plain values: a trace that went through a file says the same."""

import io
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from typing import Any
from unittest.mock import patch

import matplotlib.pyplot as plt
import numpy as np

import kvviz
from kvviz.caches.cache_heat import heat
from kvviz.caches.cache_warnings import cache_warnings
from kvviz.debugger.cursor import Cursor
from kvviz.fixes import lower_peak
from kvviz.trace.index.value_index import index_of
from kvviz.view.charts.plots import lifetimes, memory
from kvviz.view.compare import Comparison
from kvviz.view.page_data.payload import payload

CURSORS = 200
QUERIES = ("missed sort:-missed", "copied>0", "why:NO_CAPACITY", "B3", "live>=1kB sort:block")


def loaded(trace: Any) -> Any:
    place = io.BytesIO()
    trace.save(place)
    place.seek(0)
    return kvviz.Trace.load(place)


def differences(trace: Any, other: Any, pictures: bool = True) -> list[str]:
    """What two traces that should be one recording say differently; ``pictures`` take most of the time.

    A file does not hold the model, so another order is not tried here: what a model of the recording says is compared.
    """
    readers = {**READERS, **PICTURES} if pictures else READERS
    for one in (trace, other):
        index_of(one).notes.pop("other order", None)
    with patch.object(lower_peak, "_tried", return_value=None):
        return [line for name, tell in readers.items() for line in _apart(name, tell, trace, other)]


def _apart(name: str, tell: Callable[[Any], Any], trace: Any, other: Any) -> Iterator[str]:
    one, two = tell(trace), tell(other)
    if one == two:
        return
    if isinstance(one, (bytes, str)) and isinstance(two, type(one)):
        at = next((i for i, (a, b) in enumerate(zip(one, two)) if a != b), min(len(one), len(two)))
        yield f"{name}: {one[max(at - 40, 0) : at + 60]!r} became {two[max(at - 40, 0) : at + 60]!r}"
        return
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)) and len(one) == len(two):
        one, two = next((a, b) for a, b in zip(one, two) if a != b)
    yield f"{name}: {str(one)[:300]} became {str(two)[:300]}"


def _steps(trace: Any) -> list[Any]:
    return [_fields(step, "graph_node", "decision") for step in trace.steps]


def _fields(record: Any, *but: str) -> tuple[Any, ...]:
    return tuple(getattr(record, f.name) for f in fields(record) if f.name not in but)


def _records(trace: Any) -> list[Any]:
    frames = [(f.path, f.parent, f.iteration, f.run, f.bindings) for f in trace.frames]
    runs = [asdict(run) for run in trace.runs]
    plain = trace.label, trace.branch, trace.prompt, trace.tokens, trace.words, trace.interrupted
    return [repr(trace), frames, trace.storages, runs, *plain]


def _decisions(trace: Any) -> list[Any]:
    told = []
    for step in trace.steps:
        d = step.decision
        told.append((step.index, d.dispatch, d.taken, d.shares, [_blocker(b) for b in d.blockers]))
    return told


def _blocker(b: Any) -> tuple[Any, ...]:
    return b.code.value, b.input, b.position, b.culprit, b.message, b.bytes, _fix(b.fix)


def _fix(fix: Any) -> Any:
    return fix and (fix.kind, fix.label, fix.sentence, fix.code, fix.changes, fix.picked, fix.saves)


def _caches(trace: Any) -> list[Any]:
    told: list[Any] = [(c.name, c.input, c.output, c.protocol, c.axis, c.runs) for c in trace.caches]
    for cache in trace.caches:
        for run in range(len(cache.runs)):
            picture = heat(trace, cache, run)
            told.append(picture and (picture.states.tolist(), picture.positions.tolist()))
    return [*told, cache_warnings(trace)]


def _debugged(trace: Any) -> list[Any]:
    cursor, told = Cursor(trace), []
    for at in range(-1, len(trace.steps), max(len(trace.steps) // CURSORS, 1)):
        cursor.position = at
        told.append((at, [node.index for node in cursor.frontier()], cursor.frame()))
    return told


def _plotted(trace: Any) -> list[Any]:
    told = []
    for plot in (memory, lifetimes, kvviz.plot.cache, kvviz.plot.copies):
        if not trace.caches and plot not in (memory, lifetimes):
            continue
        axes = plot(trace)
        told += [line.get_xydata().tolist() for line in axes.lines]
        told += [np.asarray(path.vertices).tolist() for c in axes.collections for path in c.get_paths()]
        told += [patch.get_path().vertices.tolist() for patch in axes.patches]
        told += [text.get_text() for text in (axes.title, *axes.texts, *axes.get_yticklabels())]
        plt.close(axes.figure)
    return told


def _perfetto(trace: Any) -> bytes:
    place = io.BytesIO()
    trace.to_perfetto(place)
    return place.getvalue()


def _compared(trace: Any) -> list[Any]:
    found = Comparison.of({"one": trace, "two": trace})
    # A file does not hold results, which only a live trace can be compared in.
    return [_fields(row, "equal", "difference") for row in found.rows]


def _other_order(trace: Any) -> Any:
    order = kvviz.explain(trace).other_order
    return order and (order.name, order.bytes, _fix(order.fix))


READERS: dict[str, Callable[[Any], Any]] = {
    "records": _records,
    "steps": _steps,
    "decisions and fixes": _decisions,
    "report's text": lambda trace: repr(kvviz.explain(trace)),
    "report as a page": lambda trace: kvviz.explain(trace)._repr_html_(),
    "report as data": lambda trace: kvviz.explain(trace).to_dict(),
    "other order": _other_order,
    "hazards": lambda trace: [kvviz.hazards(trace)],
    "table": lambda trace: repr(trace.table()),
    "table as a page": lambda trace: trace.table()._repr_html_(),
    "caches": _caches,
    "debugger": _debugged,
    "comparison": _compared,
    "step as Markdown": lambda trace: [trace.to_markdown(at) for at in range(0, len(trace.steps), CURSORS)],
    "queries": lambda trace: [trace.find(text).numbers for text in QUERIES],
}
PICTURES: dict[str, Callable[[Any], Any]] = {
    "plots": _plotted,
    "perfetto": _perfetto,
    "payload": payload,
    "page": lambda trace: trace.to_html(),
    "drawing": lambda trace: trace.to_graphviz(len(trace.steps) - 1).source if trace.steps else "",
}
