"""A question as a widget: the page takes the answer, and the kernel grades it.

Invariant: the page knows the answer only to show it on demand, also without a kernel; the verdict comes from here.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from numbers import Integral, Real
from typing import Any

import traitlets
from IPython.display import display, update_display

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
    Verdict,
    grade,
)
from kvviz.lessons.questions.by_number import is_number, numbered
from kvviz.lessons.questions.score import enter, present, score
from kvviz.lessons.questions.written_numbers import is_whole, write_number
from kvviz.view.page_modules import bundled
from kvviz.widget.page_widget import Listener, stands_in

READ = "KVVIZ_READ"  # set while a notebook is executed to be read: texts after a question stand there at once
_MOST_NAMES = 3000  # that are offered while one types
_MARKS = (0.0, 0.25, 0.5, 0.75, 1.0)  # parts of a curve's scale that have a line
# `code`, *emphasis*, **strong**. A star opens before a letter and closes after one: ``2**3`` and ``*.onnx`` are plain.
_STARRED = r"(?<![\w*]){0}([^*\s](?:[^*]*[^*\s])?){0}(?![\w*])"
_MARKUP = re.compile("|".join((r"`([^`]+)`", _STARRED.format(r"\*\*"), _STARRED.format(r"\*"))))


class Question(Listener):
    """A question that `kvviz.lessons.ask` asked. The last line of a cell displays it.

    ``tries``: answers until one was right. ``right``: answered right before the answer was ``revealed``.
    """

    _esm = bundled("ask.js").decode()
    _css = bundled("ask.css").decode()

    question = traitlets.Unicode().tag(sync=True)
    kind = traitlets.Unicode().tag(sync=True)
    lesson = traitlets.Unicode().tag(sync=True)
    unit = traitlets.Unicode().tag(sync=True)
    choices: Any = traitlets.List().tag(sync=True)
    curve: Any = traitlets.Dict().tag(sync=True)
    # The page's last answer, and the verdict: ``{"right": bool | None, "text": str, "number": int}``.
    given: Any = traitlets.Any(None, allow_none=True).tag(sync=True)
    verdict: Any = traitlets.Dict().tag(sync=True)
    solution: Any = traitlets.Dict().tag(sync=True)
    score = traitlets.Unicode().tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)

    def __init__(self, question: str, make: Callable[[], Task], hint: Hint = None, explanation: str = "") -> None:
        super().__init__(question=question)
        self._make = make
        self._task: Task | None = None
        self.hint, self.explanation = hint, explanation
        self.number = self.after = ""  # of a question of the lessons, and the text for those who have answered it
        self._place = ""
        self.tries = 0
        self.right = self.revealed = False
        self.lesson = present()
        self._answers = 0

    @property
    def task(self) -> Task:
        """The task, made on first use."""
        task = self._task
        if task is None:
            self._task = task = self._make()
            with self.hold_sync():
                self.kind, self.unit = task.kind, getattr(task, "unit", "")
                self.choices = list(getattr(task, "choices", ()))
                if isinstance(task, OpTask):
                    self.choices = list(dict.fromkeys(name for node in task.nodes[:_MOST_NAMES] for name in node[::-1]))
                self.solution = {"answer": task.shown(), "explanation": self.explanation}
                if isinstance(task, CurveTask):
                    marks = [(task.top * part, write_number(task.top * part, task.unit)) for part in _MARKS]
                    self.curve = {"labels": task.labels, "top": task.top, "marks": marks}
                    self.solution = {**self.solution, "series": task.answer}
        return task

    @property
    def answer(self) -> str:
        """The answer in words, as `reveal` shows it."""
        return self.task.shown()

    def grade(self, answer: Any) -> Verdict:
        """Grade an answer, and count it: true if it is right, else its ``text`` says what is wrong.

        ``answer``: a number or a text that says one, a choice or its number, an op, a series: as the question asks.

        Raises `KvvizError`: if it is not an answer to this kind of question; that does not count as a try.
        """
        verdict = grade(self.task, answer, self.hint)
        # A right answer stays right.
        if not self.right and not self.revealed:
            self.tries += 1
            self.right = verdict.right
        enter(self)  # also if its lesson has begun anew since it was asked
        with self.hold_sync():
            self._say(verdict.right, verdict.text)
            self.score = str(score(self.lesson))
        self._go_on()
        return verdict

    def _go_on(self) -> None:
        if self._place and (self.right or self.revealed):
            update_display(_text(self.after), raw=True, display_id=self._place)
            self._place = ""

    def _say(self, right: bool | None, text: str) -> None:
        """Send a verdict to the page, even a repeated one: the page may show something else by now."""
        self._answers += 1
        self.verdict = {"right": right, "text": text, "number": self._answers}

    def reveal(self) -> str:
        """The answer with its explanation. After that the question no longer counts for the score."""
        self.revealed = True
        self.score = str(score(self.lesson))
        self._go_on()
        return f"{self.answer}\n{self.explanation}".strip()

    def _receive(self, _widget: Any, message: Mapping[str, Any], _buffers: Any) -> None:
        try:
            if message.get("do") == "grade":
                self.given = message.get("given")
                self.grade(self.given)
            elif message.get("do") == "reveal":
                self.reveal()
        except KvvizError as error:
            self._say(None, str(error))
        except Exception as error:  # of what a lesson's own function raises
            self._say(None, f"{type(error).__name__}: {error}")

    def __repr__(self) -> str:
        return f"<Question: {self.question}>"

    def _fold(self) -> str:
        """The question without a kernel: the answer unfolds in HTML without scripts or styles."""
        task = self.task
        listed = "".join(f"<li>{_rich(choice)}</li>" for choice in getattr(task, "choices", ()))
        body = f"<p style='white-space: pre-wrap'><b>{_rich(task.shown())}</b></p>"
        if isinstance(task, CurveTask):
            points = [(label, write_number(value, task.unit)) for label, value in zip(task.labels, task.answer)]
            cells = "".join(f"<tr><td>{escape(label)}</td><td>{escape(value)}</td></tr>" for label, value in points)
            body += f"<table>{cells}</table>"
        body += f"<p>{_rich(self.explanation)}</p>" if self.explanation else ""
        asked = f"<p><b>Question.</b> {_rich(self.question)}</p>" + (f"<ul>{listed}</ul>" if listed else "")
        return f"{asked}<details><summary>Answer</summary>{body}</details>"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        html = self._fold()
        bundle = super()._repr_mimebundle_(**options)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {"text/html": html, **data, "text/plain": repr(self)}, metadata

    def _ipython_display_(self) -> None:
        """Show the question, and after it in a separate output its form for readers that cannot show it."""
        bundle, metadata = self._repr_mimebundle_()
        page = {kind: data for kind, data in bundle.items() if kind != "text/html"}
        # The text is shown once, where the page cannot be.
        display({**page, "text/plain": ""}, metadata=metadata, raw=True)
        display(
            {"text/html": stands_in(self.still, _PAPER + self._fold(), "kv-ask"), "text/plain": repr(self)}, raw=True
        )
        if self.after:
            answered = self.right or self.revealed or os.environ.get(READ)
            self._place = f"after-{self.model_id}"
            display(_text(self.after if answered else ""), raw=True, display_id=self._place)


# On paper code and wide tables are not cut, and answers are open.
_PAPER = (
    "<style>@media print{"
    ".jp-InputArea :is(pre,.cm-line),.kv-code{white-space:pre-wrap!important;overflow-wrap:anywhere}"
    "details::details-content{content-visibility:visible;block-size:auto}"
    ".jp-RenderedHTMLCommon table{font-size:70%}.jp-RenderedHTMLCommon :is(th,td){padding:.3em}}</style>"
)


def _text(markdown: str) -> dict[str, str]:
    return {"text/plain": markdown, **({"text/markdown": markdown} if markdown else {})}


def _rich(text: str) -> str:
    """A text with the simple markup of questions and captions, as HTML."""
    made, at = [], 0
    for found in _MARKUP.finditer(text):
        tag = {1: "code", 2: "b", 3: "em"}[found.lastindex or 1]
        made.append(f"{escape(text[at : found.start()])}<{tag}>{escape(found[found.lastindex or 1])}</{tag}>")
        at = found.end()
    return "".join([*made, escape(text[at:])])


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
        Its text, or the number of one of the lessons, such as ``"05-2"``, and nothing else. Words between backticks
        are set as code, ``*these*`` are stressed.
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
        ``answer`` is then only shown, and ``unit`` the line that grades. With ``curve``: what else one that is near
        enough has to be.
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
    if answer is None and is_number(question):
        return numbered(question, sys._getframe(1).f_globals, ask)
    forms = {"choices": choices, "among": among, "curve": curve, "accept": accept if curve is None else None}
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
        if accept is not None and curve is None:
            task = OwnTask(accept, str(known), *([unit] if unit else []))
        elif choices is not None:
            task = ChoiceTask(str(known), tuple(str(one) for one in choices))
            if task.answer not in task.choices:
                raise KvvizError(f"the answer {known!r} is none of the choices {list(task.choices)}")
        elif among is not None:
            task = _op(known, among)
        elif curve is not None:
            task = _curve(known, tuple(str(label) for label in curve), unit, _accepted(tolerance, _DRAWN), top)
            task = replace(task, accept=accept)
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
