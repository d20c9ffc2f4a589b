"""Questions of the lessons by their number: a cell says ``ask("05-2")``, and has neither the answer nor the hints.

``kvviz/demo/questions.txt`` holds them: a line ``# 05-2``, the code that asks it, which may use names of the lesson's
earlier cells, and after a line ``---`` the text shown after the answer, in Markdown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from kvviz.errors import KvvizError

_NUMBER = re.compile(r"(\d\d|class)-\d+")


def is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text))


@cache
def all_numbers() -> Mapping[str, str]:
    """The code and the text after it of each question, by number, in the order of the lessons."""
    text = files("kvviz.demo").joinpath("questions.txt").read_text("utf-8")
    parts = re.split(rf"^# ({_NUMBER.pattern.replace('(', '(?:')})\n", text, flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def numbered(number: str, names: Mapping[str, Any], ask: Callable[..., Any]) -> Any:
    """Ask the question of a number, about names of the lesson; the question's own names stay local. Raises
    `KvvizError`: if there is no such question, or the cells that define these names have not run."""
    if number not in all_numbers():
        raise KvvizError(f"there is no question {number!r}; give the text of one, or a number such as '05-2'")
    source, _, after = all_numbers()[number].partition("\n---\n")
    *made, asked = ast.parse(source).body
    assert isinstance(asked, ast.Expr)
    scope = {"np": np, **names, "ask": ask}
    try:
        exec(compile(ast.Module(made, []), f"<question {number}>", "exec"), scope)
        question = eval(compile(ast.Expression(asked.value), f"<question {number}>", "eval"), scope)
        question.number, question.after = number, after.strip() or question.after
        question.task  # noqa: B018 - what is missing shows when the answer is worked out
    except NameError as error:
        raise KvvizError(f"question {number} is about what the cells above it make: run them first ({error})") from None
    return question
