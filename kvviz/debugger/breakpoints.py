"""Where to stop: at a node, an op type, a buffer, a decision, or when a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kvviz.debugger.conditions import read_condition
from kvviz.errors import KvvizError
from kvviz.graph.names import quoted
from kvviz.query.found_steps import matches
from kvviz.query.query_reader import read_query
from kvviz.trace.outcome import DECISIONS, endings
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step

KINDS = ("op", "node", "buffer", "decision", "condition", "query")
_read = lru_cache(maxsize=256)(read_condition)


@dataclass(slots=True)
class Breakpoint:
    """One reason to stop.

    By kind the value is: ``"node"``: its name; ``"op"``: the op type, in any case; ``"buffer"``: a storage's id (stop
    when it is written, shared or freed); ``"decision"``: one of `kvviz.trace.outcome.DECISIONS`; ``"query"``: what
    `Trace.find` takes, such as ``"op:Concat copied>1kB"``; ``"condition"``: a function of a `Step`, or text with
    comparisons over its fields such as ``"copied > 1000 and op_type == 'Concat'"`` (see `kvviz.debugger.conditions`).
    """

    kind: str
    value: Any
    enabled: bool = True
    ignore: int = 0  # hits to pass before the first stop
    hits: int = 0  # how often it matched so far

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise KvvizError(f"there is no breakpoint of kind {_shown(self.kind)}; choose one of {', '.join(KINDS)}")
        if self.kind == "decision" and self.value not in DECISIONS:
            raise KvvizError(f"there is no decision {_shown(self.value)}; choose one of {', '.join(DECISIONS)}")
        if self.kind in ("node", "op") and not isinstance(self.value, str):
            raise KvvizError(f"a breakpoint of kind {self.kind!r} takes a name, not {_shown(self.value)}")
        if self.kind == "buffer":
            number = str(self.value).removeprefix("B").split(".")[0]
            if not number.isdecimal() or len(number) > 18:
                raise KvvizError(f"{_shown(self.value)} is not a buffer; give its number, like B12")
            self.value = int(number)
        if self.kind == "condition" and not callable(self.value):
            if not isinstance(self.value, str):
                raise KvvizError(f"a condition is text or a function of a step, not {_shown(self.value)}")
            _read(self.value)
        if self.kind == "query":
            if not isinstance(self.value, str):
                raise KvvizError(f"a query is text, not {_shown(self.value)}")
            read_query(self.value)

    def matches(self, trace: Trace, index: int) -> bool:
        """Whether a step is one to stop at; counts hits."""
        if not self.enabled or not _MATCH[self.kind](self.value, trace, index):
            return False
        self.hits += 1
        return self.hits > self.ignore


def from_page(entries: Any) -> tuple[list[Breakpoint], list[dict[str, Any]]]:
    """Breakpoints from what a page sent, and all entries, with ``"error"``, one sentence, where they cannot be used.
    Entries are ``{"kind", "value", "enabled"}``; nothing is believed about them."""
    points, told = [], []
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
        told.append(known)
    return points, told


def _shown(value: Any) -> str:
    """A value as messages show it; what a page sends may be long."""
    return quoted(value) if isinstance(value, str) else repr(value)[:120]


def _node(value: str, trace: Trace, index: int) -> bool:
    return trace.log[index].op.node.name == value


def _op(value: str, trace: Trace, index: int) -> bool:
    node = trace.log[index].op.node
    return value.lower() in (node.op_type.lower(), node.qualified_op.lower())


def _buffer(value: int, trace: Trace, index: int) -> bool:
    row = trace.log[index]
    freed = value in row.freed and value not in trace.log.later
    return freed or any(where is not None and where.storage == value for where in row.outs)


def _decision(value: str, trace: Trace, index: int) -> bool:
    return value in endings(trace, trace.log[index])


def _condition(value: str | Callable[[Step], bool], trace: Trace, index: int) -> bool:
    step = trace.steps[index]
    if isinstance(value, str):
        return _read(value)(step)
    try:
        return bool(value(step))
    except Exception as error:
        name = getattr(value, "__name__", repr(value))
        raise KvvizError(f"the condition {name} failed at step {index}: {type(error).__name__}: {error}") from None


_MATCH: dict[str, Callable[[Any, Trace, int], bool]] = {
    "node": _node,
    "op": _op,
    "buffer": _buffer,
    "decision": _decision,
    "condition": _condition,
    "query": lambda value, trace, index: matches(trace, value, index),
}
