"""Ask a question whose answer the engine knows: what lessons call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.lessons.questions.answer_kinds import (
    ChoiceTask,
    CurveTask,
    Hint,
    NumberTask,
    OpTask,
    OwnTask,
    Task,
    is_whole,
)
from kvviz.lessons.questions.question import Question, enter

_ROUNDED, _DRAWN = 0.005, 0.1  # the usual tolerance of a number that is not a whole one, and of a curve


def ask(
    question: str,
    answer: Any = None,
    hint: Hint = None,
    *,
    why: str = "",
    choices: Sequence[Any] | None = None,
    among: Any = None,
    curve: Sequence[Any] | None = None,
    accept: Callable[[Any], bool | str] | None = None,
    unit: str = "",
    tolerance: float | None = None,
    top: float | None = None,
) -> Question:
    """Ask a question; the last line of a cell displays it. Without a kernel, the reader can unfold the answer.

    Parameters
    ----------
    question : str
        Words between backticks are set as code, ``*these*`` are stressed.
    answer : number, str, step, sequence or callable
        The right answer; of several ops, any is right. A callable is called without arguments when the question is
        first shown or answered, to compute the answer.
    hint : str, mapping or callable, optional
        Shown after a wrong answer: one text for all, a mapping from wrong answers to texts, or a function of the
        answer.
    why : str
        The explanation that is shown with the answer.
    choices : sequence, optional
        Asks for one of them.
    among : Graph or Trace, optional
        Asks for an op of it, by its name or, where the answer is one, by its kind.
    curve : sequence, optional
        Asks for a curve, with a point for each of these labels.
    accept : callable, optional
        Asks for any object, given with `Question.grade`. The callable returns True, or a text that says what is wrong.
        ``answer`` is then only shown.
    unit : str
        Unit of a number or a curve. With ``"B"`` an answer may also be in kB or KiB.
    tolerance : float, optional
        Accepted relative error of a number: by default 0 for whole numbers, and half a percent for others. For a curve:
        the mean distance of its points as a share of the largest true value, 0.1 by default.
    top : float, optional
        Upper end of a curve's scale; by default a round number above the largest value.

    Raises `KvvizError`: if the answer does not fit the question: is none of the choices, no op of the graph.

    Examples
    --------
    >>> ask("How many bytes is one row of one cache?", 128, unit="B", hint={64: "4 bytes a float"})  # doctest: +SKIP
    """
    forms = {"choices": choices, "among": among, "curve": curve, "accept": accept}
    asked = [f"{name}=" for name, given in forms.items() if given is not None]
    if len(asked) > 1:
        raise KvvizError(f"a question asks for one thing: it was given {' and '.join(asked)}")
    for name, text in (("question", question), ("why=", why), ("unit=", unit)):
        if not isinstance(text, str):
            raise KvvizError(f"{name} of a question is a text, not {text!r}")
    if answer is None:
        raise KvvizError(f"this question has no answer=: {question[:80]!r}")
    if not (hint is None or callable(hint) or isinstance(hint, (str, Mapping))):
        raise KvvizError(f"hint= is a text, a mapping from wrong answers to texts, or a function, not {hint!r}")

    def make() -> Task:
        known = answer() if callable(answer) else answer
        task: Task
        if accept is not None:
            task = OwnTask(accept, str(known))
        elif choices is not None:
            task = ChoiceTask(str(known), tuple(str(one) for one in choices))
            if task.answer not in task.choices:
                raise KvvizError(f"the answer {known!r} is none of the choices {list(task.choices)}")
        elif among is not None:
            task = _op(known, among)
        elif curve is not None:
            task = _curve(known, tuple(str(label) for label in curve), unit, _accepted(tolerance, _DRAWN), top)
        else:
            task = _number(known, unit, tolerance)
        for wrong in hint if isinstance(hint, Mapping) else ():
            try:
                task.read(wrong)
            except KvvizError as error:  # nobody would ever see this hint
                raise KvvizError(f"hint= has a text for {wrong!r}, which is no answer to this: {error}") from None
        return task

    made = Question(question, make, hint, why)
    if not callable(answer):
        made.task  # noqa: B018 - a wrong answer= is said in the cell that has it
    enter(made)
    return made


def _accepted(tolerance: float | None, usual: float) -> float:
    if tolerance is not None and not 0 <= tolerance < math.inf:
        raise KvvizError(f"tolerance={tolerance!r}: give the share that an answer may be off, from 0 on")
    return usual if tolerance is None else float(tolerance)


def _number(answer: Any, unit: str, tolerance: float | None) -> NumberTask:
    if isinstance(answer, bool) or not isinstance(answer, Real):
        raise KvvizError(f"the answer {answer!r} is not a number; for others set choices=, among= or curve=")
    number = float(answer)
    if not math.isfinite(number):
        raise KvvizError(f"the answer {answer!r} is not a finite number")
    usual = 0.0 if isinstance(answer, Integral) or is_whole(number) else _ROUNDED
    return NumberTask(number, unit, _accepted(tolerance, usual))


def _op(answer: Any, among: Any) -> OpTask:
    graph = getattr(among, "graph", among)
    if not isinstance(graph, Graph):
        raise KvvizError(f"among= is a graph or a trace, not {among!r}")
    task = OpTask((), tuple((node.name, node.op_type) for node in graph.nodes))
    several = [answer] if isinstance(answer, str) or not isinstance(answer, Sequence) else answer
    if not several:
        raise KvvizError("the answer names no op")
    return OpTask(tuple(dict.fromkeys(task.read(one) for one in several)), task.nodes)


def _curve(answer: Any, labels: tuple[str, ...], unit: str, tolerance: float, top: float | None) -> CurveTask:
    try:
        true = tuple(float(value) for value in answer)
    except (TypeError, ValueError):
        raise KvvizError(f"the answer {answer!r} is no curve: give a number for each label") from None
    if len(true) != len(labels) or not true:
        raise KvvizError(f"the curve has {len(labels)} labels and its answer {len(true)} values")
    # It is drawn on a scale that begins at 0.
    if not all(0 <= value < math.inf for value in true):
        raise KvvizError("the values of a curve are finite, and not below 0")
    high = max(true)
    scale = (_round_above(1.15 * high) if high > 0 else 1.0) if top is None else float(top)
    if not (high <= scale < math.inf and scale > 0):
        raise KvvizError(f"top={top!r}: the scale has to reach to {high:g}, the largest value")
    return CurveTask(true, unit, labels, scale, tolerance)


def _round_above(value: float) -> float:
    scale: float = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * scale >= value)
