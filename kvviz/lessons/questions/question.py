"""A question as a widget: the page takes the answer, and the kernel grades it.

Invariant: the page knows the answer only to show it on demand, also without a kernel; what is right is said here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import traitlets
from IPython.display import display

from kvviz.errors import KvvizError
from kvviz.lessons.questions.answer_kinds import CurveTask, Hint, OpTask, Task, Verdict, grade, write_number
from kvviz.view.page_modules import bundled
from kvviz.widget.page_widget import Listener
from kvviz.widget.still_image import stands_in


@dataclass(frozen=True, slots=True)
class Score:
    """What was answered in a lesson."""

    lesson: str
    asked: int  # questions so far
    right: int  # of them answered right, before the answer was shown
    first: int  # of these right at the first try
    shown: int  # questions whose answer was shown instead

    def __str__(self) -> str:
        counts = f"{self.right} of {self.asked} right, {self.first} at the first try"
        shown = f"; the answer of {self.shown} was shown" if self.shown else ""
        return f"{self.lesson + ': ' if self.lesson else ''}{counts}{shown}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


_lesson = ""
# By lesson and question, so that a cell that runs again asks the same one.
_asked: dict[tuple[str, str], Any] = {}


def begin(lesson: str) -> None:
    """Begin a lesson of this name: questions are counted anew from here."""
    global _lesson
    _lesson = lesson
    for key in [key for key in _asked if key[0] == lesson]:
        del _asked[key]


def present() -> str:
    """The name of the lesson that began last."""
    return _lesson


def enter(question: Any) -> None:
    """Note that a question is asked in its lesson. Questions are distinguished by their texts."""
    _asked[question.lesson, question.question] = question


def questions(lesson: str | None = None) -> list[Any]:
    """The questions of a lesson in the order in which they were asked; of the present one by default."""
    wanted = _lesson if lesson is None else lesson
    return [asked for (name, _), asked in _asked.items() if name == wanted]


def score(lesson: str | None = None) -> Score:
    """How many questions of a lesson were answered right; of the present one by default."""
    asked = questions(lesson)
    right = [one for one in asked if one.right]
    first = sum(one.tries == 1 for one in right)
    shown = sum(one.revealed and not one.right for one in asked)
    return Score(_lesson if lesson is None else lesson, len(asked), len(right), first, shown)


_MOST_NAMES = 3000  # that are offered while one types
_MARKS = (0.0, 0.25, 0.5, 0.75, 1.0)  # parts of a curve's scale that have a line
# `code`, *emphasis*, **strong**. A star opens before a letter and closes behind one: ``2**3`` and ``*.onnx`` are plain.
_STARRED = r"(?<![\w*]){0}([^*\s](?:[^*]*[^*\s])?){0}(?![\w*])"
_MARKUP = re.compile("|".join((r"`([^`]+)`", _STARRED.format(r"\*\*"), _STARRED.format(r"\*"))))


class Question(Listener):
    """A question that `kvviz.lessons.ask` asked. The last line of a cell displays it.

    ``tries``: answers until one was right. ``right``: answered right before the answer was shown, ``revealed``.
    """

    _esm = bundled("ask.js").decode()
    _css = bundled("ask.css").decode()

    question = traitlets.Unicode().tag(sync=True)
    kind = traitlets.Unicode().tag(sync=True)
    lesson = traitlets.Unicode().tag(sync=True)
    unit = traitlets.Unicode().tag(sync=True)
    choices: Any = traitlets.List().tag(sync=True)
    curve: Any = traitlets.Dict().tag(sync=True)
    # What the page sent last, and what is said of it: ``{"right": bool | None, "text": str, "number": int}``.
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
        self.tries = 0
        self.right = self.revealed = False
        self.lesson = present()
        self._answers = 0

    @property
    def task(self) -> Task:
        """The task, which is made when it is first looked at."""
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
        # What is right already stays right.
        if not self.right and not self.revealed:
            self.tries += 1
            self.right = verdict.right
        enter(self)  # also if its lesson has begun anew since it was asked
        with self.hold_sync():
            self._say(verdict.right, verdict.text)
            self.score = str(score(self.lesson))
        return verdict

    def _say(self, right: bool | None, text: str) -> None:
        """Send a verdict to the page, also one that was sent before: it may show something of its own by now."""
        self._answers += 1
        self.verdict = {"right": right, "text": text, "number": self._answers}

    def reveal(self) -> str:
        """The answer with its explanation. After that the question no longer counts for the score."""
        self.revealed = True
        self.score = str(score(self.lesson))
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
        """The question without a kernel: the answer folds out of HTML that needs neither scripts nor styles."""
        task = self.task
        listed = "".join(f"<li>{_rich(choice)}</li>" for choice in getattr(task, "choices", ()))
        body = f"<p><b>{_rich(task.shown())}</b></p>"
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
        """Show the question, and behind it in an output of its own what a reader sees where it cannot be."""
        bundle, metadata = self._repr_mimebundle_()
        page = {kind: data for kind, data in bundle.items() if kind != "text/html"}
        # Where the page cannot be shown, the text is: once is enough.
        display({**page, "text/plain": ""}, metadata=metadata, raw=True)
        display({"text/html": stands_in(self.still, self._fold(), "kv-ask"), "text/plain": repr(self)}, raw=True)


def _rich(text: str) -> str:
    """A text with the little markup of questions and captions, as HTML."""
    made, at = [], 0
    for found in _MARKUP.finditer(text):
        tag = {1: "code", 2: "b", 3: "em"}[found.lastindex or 1]
        made.append(f"{escape(text[at : found.start()])}<{tag}>{escape(found[found.lastindex or 1])}</{tag}>")
        at = found.end()
    return "".join([*made, escape(text[at:])])
