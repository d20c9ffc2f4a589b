"""Limits on the cost of a run, for checks in a pipeline: ``peak>120MB``, ``copied_per_token>0``.

A limit is a comparison, as in a query, on a figure of the whole trace. If it holds, the limit is exceeded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvviz.query.found_steps import holds
from kvviz.query.grammar import Field
from kvviz.query.query_reader import Compare, read_comparison
from kvviz.report.diagnosis import Diagnosis
from kvviz.trace.units import size


def _past_copied(report: Diagnosis) -> int:
    return sum(found.bytes for found in report.caches if found.kind == "copied")


def _per_token(report: Diagnosis) -> float:
    """Bytes of past copied to make caches longer, for each run after the first."""
    return _past_copied(report) / max(len(report.trace.runs) - 1, 1)


_FIGURES: tuple[tuple[Field, Callable[[Diagnosis], float]], ...] = (
    (Field("peak", "bytes", "most bytes alive at a time"), lambda r: r.trace.peak_bytes),
    (Field("allocated", "bytes", "bytes of new storages"), lambda r: r.trace.bytes_allocated),
    (Field("written", "bytes", "bytes that kernels stored"), lambda r: r.trace.bytes_written),
    (Field("copied", "bytes", "bytes that kernels only moved"), lambda r: r.trace.bytes_copied),
    (Field("past_copied", "bytes", "bytes of past that growing caches copied"), _past_copied),
    (Field("copied_per_token", "bytes", "the same for each token after the first"), _per_token),
    (
        Field("missed", "bytes", "bytes spent by ops that could run in place but did not"),
        lambda r: sum(g.bytes for g in r.groups),
    ),
    (Field("missed_ops", "number", "nodes that could run in place but did not"), lambda r: len(r.missed)),
    (
        Field("cache_warnings", "number", "warnings about caches, by cache, kind and cause"),
        lambda r: len(r.cache_warnings),
    ),
    (Field("steps", "number", "ops run"), lambda r: len(r.trace.steps)),
)
FIELDS = {field.name: field for field, _ in _FIGURES}
"""The figures that a limit can be set on, by name."""

_OF = {field.name: figure for field, figure in _FIGURES}


def read_budget(text: str) -> Compare:
    """Parse a limit. Raises `KvvizError`: if the text is not one, with the reason."""
    return read_comparison(text, FIELDS)


def over(limit: Compare, found: Diagnosis) -> str | None:
    """A sentence on an exceeded limit, with the figure; None if the limit is kept."""
    figure = _OF[limit.field](found)
    if not holds(limit.sign, limit.values, figure):
        return None
    bound: Any = limit.values[0]
    field = FIELDS[limit.field]
    actual, asked = (_amount(field, number) for number in (figure, bound.low))
    return f"{field.name} is {actual} ({field.about}), so the limit {field.name}{limit.sign}{asked} fails"


def _amount(field: Field, number: float) -> str:
    return size(number) if field.kind == "bytes" else f"{number:,.0f}"
