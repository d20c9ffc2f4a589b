"""Limits on the cost of a run, for checks in a pipeline: ``peak>120MB``, ``copied_per_token>0``, ``peak>+5%``.

A limit is a comparison, as in a query, on a figure of the whole trace. If it holds, the limit is exceeded. With a plus
sign it is a comparison with an earlier trace: the bytes, or the percentage, by which the figure has grown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.query.found_steps import holds
from kvviz.query.grammar import Field
from kvviz.query.query_reader import Compare, read_comparison
from kvviz.report.diagnosis import Diagnosis
from kvviz.trace.units import size


def _past_copied(report: Diagnosis, first: int = 0) -> int:
    """Bytes of past that caches copied from a run on, also under rules that can never append to one."""
    return sum(run.bytes_copied for cache in report.trace.caches for run in cache.runs[first:])


def _per_token(report: Diagnosis) -> float:
    return _past_copied(report, 1) / max(len(report.trace.runs) - 1, 1)


_FIGURES: tuple[tuple[Field, Callable[[Diagnosis], float]], ...] = (
    (Field("peak", "bytes", "most bytes alive at a time"), lambda r: r.trace.peak_bytes),
    (Field("allocated", "bytes", "bytes of new storages"), lambda r: r.trace.bytes_allocated),
    (Field("written", "bytes", "bytes that kernels stored"), lambda r: r.trace.bytes_written),
    (Field("copied", "bytes", "bytes that kernels only moved"), lambda r: r.trace.bytes_copied),
    (Field("past_copied", "bytes", "bytes of past that caches copied"), _past_copied),
    (Field("copied_per_token", "bytes", "the same for each run after the first"), _per_token),
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

_PERCENT = {name: Field(name, "number", field.about) for name, field in FIELDS.items()}
_GROWTH = re.compile(r"([^+]*[<>=:]\s*)\+\s*([^%]*?)\s*(%?)\s*$")


@dataclass(frozen=True, slots=True)
class Limit:
    """A comparison of a figure, or of its growth. ``growth``: ``""``, or the unit of the growth: ``"+"`` for that of
    the figure, ``"%"`` for percent."""

    compare: Compare
    growth: str = ""


def figures_of(report: Diagnosis) -> dict[str, float]:
    return {field.name: figure(report) for field, figure in _FIGURES}


def read_budget(text: str) -> Limit:
    """Parse a limit; raises `KvvizError` with the reason if the text is not one."""
    grown = _GROWTH.match(text)
    if grown is None:
        return Limit(read_comparison(text, FIELDS))
    start, amount, percent = grown.groups()
    return Limit(read_comparison(start + amount, _PERCENT if percent else FIELDS), percent or "+")


def over(limit: Limit, figures: Mapping[str, float], before: Mapping[str, float] | None = None) -> str | None:
    """A sentence on an exceeded limit, with the figure; None if the limit is kept. ``before``: earlier figures; without
    them, a limit on growth is kept."""
    name = limit.compare.field
    bound: Any = limit.compare.values[0]
    figure, field = figures[name], FIELDS[name]
    if not limit.growth:
        if not holds(limit.compare.sign, limit.compare.values, figure):
            return None
        limited = f"{name}{limit.compare.sign}{_amount(field, bound.low)}"
        return f"{name} is {_amount(field, figure)} ({field.about}), so the limit {limited} fails"
    if before is None:
        return None
    grown = figure - before[name]
    part = 100 * grown / before[name] if before[name] else 100.0 * (grown > 0)
    if not holds(limit.compare.sign, limit.compare.values, part if limit.growth == "%" else grown):
        return None
    allowed = f"{bound.low:g}%" if limit.growth == "%" else _amount(field, bound.low)
    change = f"from {_amount(field, before[name])} to {_amount(field, figure)} ({part:+.1f}%)"
    return f"{name} changed {change}, so the limit {name}{limit.compare.sign}+{allowed} fails"


def _amount(field: Field, number: float) -> str:
    return size(number) if field.kind == "bytes" else f"{number:,.0f}"
