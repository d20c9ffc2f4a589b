"""Holds an answer against what is asked for: right, or by what it is wrong, and the hint for it. No Jupyter here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Hint = str | Mapping[Any, str] | Callable[[Any], str | None] | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the engine says of an answer.

    Attributes
    ----------
    right : bool
    text : str
        What is wrong, and the hint for it.
    """

    right: bool
    text: str

    def __bool__(self) -> bool:
        return self.right


class Task(Protocol):
    """One kind of question."""

    @property
    def kind(self) -> str: ...
    def read(self, given: Any) -> Any: ...  # as the kind has it; KvvizError where it cannot be one
    def distance(self, given: Any) -> str | None: ...  # None: right; else by what it is wrong, maybe empty
    def alike(self, given: Any, other: Any) -> bool: ...  # whether a hint for the other one is meant
    def shown(self) -> str: ...  # the answer in words


def grade(task: Task, given: Any, hint: Hint = None) -> Verdict:
    """Hold an answer against what is asked for.

    Raises `KvvizError`: if it is no answer of that kind.
    """
    said = task.read(given)
    wrong = task.distance(said)
    if wrong is None:
        return Verdict(True, "right")
    return Verdict(False, ": ".join(part for part in (wrong, _hint(task, said, hint)) if part) or "not that")


def _hint(task: Task, said: Any, hint: Hint) -> str:
    if hint is None or isinstance(hint, str):
        return hint or ""
    if isinstance(hint, Mapping):
        return next((text for wrong, text in hint.items() if task.alike(said, wrong)), "")
    try:
        return hint(said) or ""
    except Exception as error:  # a teacher's function; the answer is wrong all the same
        return f"(the hint of this question failed: {type(error).__name__}: {error})"
