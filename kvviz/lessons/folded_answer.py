"""A question as a reader without a kernel sees it: the answer folds out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kvviz.lessons.answer_kinds import CurveTask
from kvviz.lessons.grading import Task
from kvviz.lessons.number_text import write_number
from kvviz.lessons.rich_text import rich_html


def folded(question: str, task: Task, choices: Sequence[str], explanation: str) -> str:
    """HTML that needs neither scripts nor styles."""
    listed = "".join(f"<li>{rich_html(choice)}</li>" for choice in choices)
    body = f"<p><b>{rich_html(task.shown())}</b></p>"
    if isinstance(task, CurveTask):
        cells = "".join(
            f"<tr><td>{escape(label)}</td><td>{escape(write_number(value, task.unit))}</td></tr>"
            for label, value in zip(task.labels, task.answer)
        )
        body += f"<table>{cells}</table>"
    if explanation:
        body += f"<p>{rich_html(explanation)}</p>"
    asked = f"<p><b>Question.</b> {rich_html(question)}</p>" + (f"<ul>{listed}</ul>" if listed else "")
    return f"{asked}<details><summary>Answer</summary>{body}</details>"
