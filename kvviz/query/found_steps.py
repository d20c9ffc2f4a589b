"""The steps that a query finds, in its order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, overload

from kvviz.late import late
from kvviz.query.query_parts import Order, Query
from kvviz.query.query_reader import read_query
from kvviz.query.step_facts import Scene, first_of, value_of
from kvviz.query.step_tests import test_of
from kvviz.trace.records import Step

_read = lru_cache(maxsize=256)(read_query)
_CHUNKS = re.compile(r"[0-9]+|[^0-9]+")


@dataclass(frozen=True, slots=True, repr=False)
class Found(Sequence[Step]):
    """What a query found: steps, as a sequence and as a table.

    Attributes
    ----------
    trace : Trace
    query : str
    numbers : tuple of int
        Of the steps, in the order that the query asks for.
    """

    trace: Any
    query: str
    numbers: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        steps = self.trace.steps
        return [steps[i] for i in self.numbers[index]] if isinstance(index, slice) else steps[self.numbers[index]]

    def __iter__(self) -> Iterator[Step]:
        return (self.trace.steps[i] for i in self.numbers)

    def table(self) -> Any:
        """The steps as `Trace.table` shows them."""
        return late("report.steps_table:steps_table")(self.trace, self.numbers)

    def __repr__(self) -> str:
        told = f"{len(self):,} of {len(self.trace.steps):,} steps: {self.query}"
        gone = sum(run.last == run.first for run in self.trace.runs)
        if gone and not self.numbers:
            told += f"; the steps of {gone:,} of {len(self.trace.runs):,} runs were not kept"
        return f"{told}\n{self.table()!r}" if self.numbers else told

    def _repr_html_(self) -> str:
        html: str = self.table()._repr_html_()
        return html


def find(trace: Any, text: str) -> Found:
    """The steps of a trace that a query asks for; see `Trace.find`."""
    query = _read(text)
    return Found(trace, text, tuple(steps_of(trace, query)))


def _hazards(trace: Any) -> Any:
    return late("explain.hazards:find_hazards")(trace)


def steps_of(trace: Any, query: Query) -> list[int]:
    """Numbers of the steps that a query asks for, in its order."""
    scene = Scene(trace, _hazards)
    test = test_of(scene, query.part)
    found = [step for step in range(len(trace.log)) if test(step)]
    for order in reversed(query.orders):
        found = _ordered(scene, found, order)
    return found if query.limit is None else found[: query.limit]


def matches(trace: Any, text: str, step: int) -> bool:
    """Whether a step is one that a query asks for; orders and limits say nothing of a single step."""
    return test_of(Scene(trace, _hazards), _read(text).part)(step)


def _ordered(scene: Scene, steps: Iterable[int], order: Order) -> list[int]:
    """Steps in the order of a field; those that say nothing of it come last."""
    keys = {step: first_of(value_of(scene, order.field, step)) for step in steps}
    known = [step for step, key in keys.items() if key is not None]
    known.sort(key=lambda step: _key(keys[step]), reverse=order.down)
    return known + [step for step, key in keys.items() if key is None]


def _key(value: Any) -> Any:
    """Numbers inside texts count as numbers: layer 2 comes before layer 10."""
    if not isinstance(value, str):
        return value
    chunks = _CHUNKS.findall(value.lower())
    return [(0, float(chunk), "") if chunk[0] in "0123456789" else (1, 0.0, chunk) for chunk in chunks]
