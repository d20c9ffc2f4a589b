"""Where to stop: at a node, an op type, a buffer, a decision, or when a Python condition holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvviz.engine.reasons import is_missed
from kvviz.engine.records import Step
from kvviz.engine.trace import Trace
from kvviz.errors import KvvizError

KINDS = ("node", "op", "buffer", "decision", "condition")
DECISIONS = ("missed", "in_place", "run", "copied", "view", "foreign")
_NAMES: dict[str, Any] = {"abs": abs, "all": all, "any": any, "len": len, "max": max, "min": min, "sum": sum}


@dataclass(slots=True)
class Breakpoint:
    """One reason to stop.

    Attributes
    ----------
    kind : str
        ``"node"`` (value: its name), ``"op"`` (op type), ``"buffer"`` (storage id: stop when it is written, shared or
        freed),
        ``"decision"`` (``"missed"``, ``"in_place"``, ``"run"``, ``"copied"``, ``"view"``, ``"foreign"``) or
        ``"condition"``
        (a function of a `Step`, or a Python expression over ``step``).
    value : object
    enabled : bool
    ignore : int
        Hits to pass before the first stop.
    hits : int
        How often it matched so far.
    """

    kind: str
    value: Any
    enabled: bool = True
    ignore: int = 0
    hits: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise KvvizError(f"there is no breakpoint of kind {self.kind!r}; choose one of {', '.join(KINDS)}")
        if self.kind == "decision" and self.value not in DECISIONS:
            raise KvvizError(f"there is no decision {self.value!r}; choose one of {', '.join(DECISIONS)}")
        if self.kind in ("node", "op") and not isinstance(self.value, str):
            raise KvvizError(f"a breakpoint of kind {self.kind!r} takes a name, not {self.value!r}")
        if self.kind == "buffer":
            number = str(self.value).removeprefix("B").split(".")[0]
            if not number.isdecimal():
                raise KvvizError(f"{self.value!r} is not a buffer; give its number, like B12")
            self.value = int(number)
        if self.kind == "condition" and not callable(self.value):
            _check_condition(self.value)

    def matches(self, trace: Trace, index: int) -> bool:
        """Whether a step is one to stop at; counts hits."""
        if not self.enabled or not _MATCH[self.kind](self.value, trace, index):
            return False
        self.hits += 1
        return self.hits > self.ignore


def _check_condition(text: Any) -> None:
    if not isinstance(text, str):
        raise KvvizError(f"a condition is a Python expression or a function of a step, not {text!r}")
    try:
        compile(text, "<breakpoint>", "eval")
    except (SyntaxError, ValueError) as error:
        detail = error.msg if isinstance(error, SyntaxError) else error
        raise KvvizError(f"the condition {text!r} is not a Python expression: {detail}") from None


def _node(value: str, trace: Trace, index: int) -> bool:
    return trace.recorder.rows[index][1].node.name == value


def _op(value: str, trace: Trace, index: int) -> bool:
    node = trace.recorder.rows[index][1].node
    return value in (node.op_type, node.qualified_op)


def _buffer(value: int, trace: Trace, index: int) -> bool:
    row = trace.recorder.rows[index]
    return value in row[5] or any(where is not None and where[0] == value for where in row[4])


def _decision(value: str, trace: Trace, index: int) -> bool:
    row = trace.recorder.rows[index]
    if value == "missed":
        return is_missed(trace, row)
    if value == "copied":
        return row[7] > 0
    if value == "view":
        return any(where is not None and where[2] == 2 for where in row[4])
    if value == "foreign":
        return bool(row[1].foreign)
    return bool(row[2]) == (value == "in_place")


def _condition(value: str | Callable[[Step], bool], trace: Trace, index: int) -> bool:
    step = trace.steps[index]
    try:
        if callable(value):
            return bool(value(step))
        return bool(eval(value, {"__builtins__": {}, **_NAMES}, {"step": step, "trace": trace}))
    except Exception as error:
        name = repr(value) if isinstance(value, str) else getattr(value, "__name__", repr(value))
        raise KvvizError(f"the condition {name} failed at step {index}: {type(error).__name__}: {error}") from None


_MATCH: dict[str, Callable[[Any, Trace, int], bool]] = {
    "node": _node,
    "op": _op,
    "buffer": _buffer,
    "decision": _decision,
    "condition": _condition,
}
