"""Breakpoints: queries that can be switched off and that count their hits."""

from __future__ import annotations

import re
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
    `Trace.find` takes, such as ``"op:Concat copied>1kB"``; ``"condition"``: a function of a `Step`. Conditions as text,
    such as ``"copied > 1000 and op_type == 'Concat'"``, come from earlier versions and are translated to queries.
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
        elif not isinstance(self.value, str) and not (self.kind == "condition" and callable(self.value)):
            raise KvvizError(f"a breakpoint of kind {self.kind!r} takes text, not {_shown(self.value)}")
        self._tests = _READ[self.kind](self.value)

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
    """Breakpoints from the entries of a page, and all entries, unusable ones with an ``"error"``. Entries are
    ``{"kind", "value", "enabled"}``; they are not trusted."""
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


def _by_query(part: Part | None) -> Callable[[Trace], Test]:
    return lambda trace: test_for(trace, part)


def _by_name(name: str) -> Callable[[Trace], Test]:
    """Exactly this node; a query would ignore case."""
    return lambda trace: lambda index: trace.log[index].op.node.name == name


def _by_function(condition: Callable[[Step], Any]) -> Callable[[Trace], Test]:
    def holds(trace: Trace, index: int) -> bool:
        try:
            return bool(condition(trace.steps[index]))
        except Exception as error:
            name = getattr(condition, "__name__", repr(condition))
            raise KvvizError(f"the condition {name} failed at step {index}: {type(error).__name__}: {error}") from None

    return lambda trace: partial(holds, trace)


# Conditions as text, from earlier versions.

_FIELDS = {
    "index": "step",
    "run": "run",
    "frame": "frame",
    "node": "name",
    "op_type": "op",
    "live_bytes": "live",
    "allocated": "allocated",
    "copied": "copied",
    "written": "written",
    "outcome": "decision",
    "decision.dispatch": "decision",
    "decision.blockers": "blocker",
    "outs.how": "how",
    "outs.dtype": "dtype",
    "outs.nbytes": "bytes",
}
_NAME = rf"(?:step\.)?({'|'.join(map(re.escape, _FIELDS))})"
_TEXT = r"'[^']+'|\"[^\"]+\""
_PIECE = re.compile(
    rf"(?:((?:and|or|not)(?!\w)|[()])|(?:step\.)?foreign(?!\w)|({_TEXT})\s+in\s+{_NAME}(?![\w.])"
    rf"|{_NAME}\s*(==|!=|<=|>=|<|>)\s*({_TEXT}|\d[\d.]*(?!\w)))\s*"
)
_JOINED = {"and": " ", "or": " or ", "not": "-"}


def _by_text(text: str) -> Callable[[Trace], Test]:
    query, at, rest = "", 0, text.strip()
    while at < len(rest) or not query:
        piece = _PIECE.match(rest, at)
        if piece is None:
            raise KvvizError(
                f"the condition {quoted(text)} cannot be read: {quoted(rest[at:])} is not understood; write it as a "
                "query, as Trace.find takes them"
            )
        word, member, holder, name, sign, value = piece.groups()
        if word is not None:
            query += _JOINED.get(word, word)
        elif member is not None:
            # A query finds whole op types, and parts of other texts.
            found = f"{member[0]}*{member[1:-1]}*{member[0]}" if holder == "op_type" else member
            query += f"{_FIELDS[holder]}:{found}"
        else:
            query += f"{_FIELDS[name]}{sign}{value}" if name is not None else "is:foreign"
        at = piece.end()
    return _by_query(read_query(query).part)


_READ: dict[str, Callable[[Any], Callable[[Trace], Test]]] = {
    "node": _by_name,
    "op": lambda value: _by_query(Compare("op", "=", (value,))),
    "buffer": lambda value: _by_query(
        Some(tuple(Compare(name, ":", (Buffer(value, -1),)) for name in ("writes", "frees")))
    ),
    "decision": lambda value: _by_query(Compare("decision", ":", (value,))),
    "condition": lambda value: _by_function(value) if callable(value) else _by_text(value),
    "query": lambda value: _by_query(read_query(value).part),
}
