"""Breakpoints: queries that can be switched off and that count their hits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kvviz.errors import KvvizError, quoted
from kvviz.query.found_steps import Test, test_for
from kvviz.query.query_reader import Buffer, Compare, Part, Some, read_query
from kvviz.trace.outcome import DECISIONS
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step

KINDS = ("op", "node", "buffer", "decision", "condition", "query")


@dataclass(slots=True)
class Breakpoint:
    """A condition to stop at.

    By kind the value is: ``"node"``: its name; ``"op"``: the op type, in any case; ``"buffer"``: a storage's id (stop
    when it is written, shared or freed); ``"decision"``: one of `kvviz.trace.outcome.DECISIONS`; ``"query"``: what
    `Trace.find` takes, such as ``"op:Concat copied>1kB"``; ``"condition"``: a function of a `Step`.
    """

    kind: str
    value: Any
    enabled: bool = True
    ignore: int = 0  # hits to pass before the first stop
    hits: int = 0  # number of matches so far
    _tests: Callable[[Trace], Test] = field(init=False, repr=False, compare=False)
    _test: Test | None = field(init=False, repr=False, compare=False, default=None)
    _trace: Trace | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise KvvizError(f"there is no breakpoint of kind {_shown(self.kind)}; choose one of {', '.join(KINDS)}")
        if self.kind == "buffer":
            number = str(self.value).removeprefix("B").split(".")[0]
            if not number.isdecimal() or len(number) > 18:
                raise KvvizError(f"{_shown(self.value)} is not a buffer; give its number, like B12")
            self.value = int(number)
        elif self.kind == "decision" and self.value not in DECISIONS:
            raise KvvizError(f"there is no decision {_shown(self.value)}; choose one of {', '.join(DECISIONS)}")
        elif self.kind == "condition":
            if not callable(self.value):
                raise KvvizError(f"a condition is a function of a step; write {_shown(self.value)} as a query")
        elif not isinstance(self.value, str):
            raise KvvizError(f"a breakpoint of kind {self.kind!r} takes text, not {_shown(self.value)}")
        self._tests = _tests_of(self.kind, self.value)

    def matches(self, trace: Trace, index: int) -> bool:
        """Whether to stop at a step; counts the hit."""
        if not self.enabled:
            return False
        if self._test is None or self._trace is not trace:
            self._test, self._trace = self._tests(trace), trace
        if not self._test(index):
            return False
        self.hits += 1
        return self.hits > self.ignore


def from_page(entries: Any) -> tuple[list[Breakpoint], list[dict[str, Any]]]:
    """Breakpoints from the entries that a page sent, and all entries, those that cannot be used with an ``"error"``.

    Entries are ``{"kind", "value", "enabled"}``; they are not trusted.
    """
    points, checked = [], []
    for entry in entries:
        given = entry if isinstance(entry, Mapping) else {"value": entry}
        kind, value, enabled = given.get("kind", ""), given.get("value"), bool(given.get("enabled", True))
        known = {
            "kind": str(kind)[:20],
            "value": value if isinstance(value, (str, int)) else _shown(value),
            "enabled": enabled,
        }
        try:
            points.append(Breakpoint(kind, value, enabled))
        except KvvizError as error:
            known["error"] = str(error)
        checked.append(known)
    return points, checked


def _shown(value: Any) -> str:
    """A value as messages show it, shortened."""
    return quoted(value) if isinstance(value, str) else repr(value)[:120]


def _tests_of(kind: str, value: Any) -> Callable[[Trace], Test]:
    """What tests the steps of a trace for a breakpoint."""
    if kind == "node":
        # Exactly this node; a query would ignore case.
        return lambda trace: lambda index: trace.log[index].op.node.name == value
    if kind == "condition":
        return lambda trace: partial(_holds, value, trace)
    part = _part(kind, value)
    return lambda trace: test_for(trace, part)


def _part(kind: str, value: Any) -> Part | None:
    """The breakpoint as a query."""
    if kind == "query":
        return read_query(value).part
    if kind == "buffer":
        return Some(tuple(Compare(name, ":", (Buffer(value, -1),)) for name in ("writes", "frees")))
    return Compare(kind, "=" if kind == "op" else ":", (value,))


def _holds(condition: Callable[[Step], Any], trace: Trace, index: int) -> bool:
    try:
        return bool(condition(trace.steps[index]))
    except Exception as error:
        name = getattr(condition, "__name__", repr(condition))
        raise KvvizError(f"the condition {name} failed at step {index}: {type(error).__name__}: {error}") from None
