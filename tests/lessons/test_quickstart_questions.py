"""The quickstart's questions take their own answers and hint at wrong ones; its still picture shows the cache."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from kvviz.lessons import Question
from kvviz.lessons.questions.score import questions
from kvviz.widget.still_image import still_bundle

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "00_quickstart.ipynb"


@pytest.fixture(scope="module")
def cells() -> Iterator[dict[str, Any]]:
    """The names of the notebook's cells that need no chart, with its questions by their order under ``asked``."""
    made: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(NOTEBOOK.parent)
        for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
            if cell.cell_type == "code" and not re.search(r"plt|step_decodes", cell.source):
                exec(cell.source, made)
        yield {**made, "asked": questions()}


def test_it_asks_three_questions(cells: dict[str, Any]) -> None:
    assert len(cells["asked"]) == 3


@pytest.mark.parametrize(
    ("number", "right", "wrong"),
    [
        # the prompt and one row for each run behind the prefill
        (0, 13 + 3, {17: "run 0 reads the prompt", 3: "the rows of the prompt"}),
        # keys and values of three layers, two heads of 16 floats of 4 bytes
        (1, 2 * 3 * 2 * 16 * 4, {128: "one of the 6", 384: "keys and values"}),
        (2, "Reshape", {"Concat": "writes one row and copies nothing", "MatMul": "no copy"}),
    ],
)
def test_a_question_takes_its_answer_and_hints_at_what_is_wrong(
    cells: dict[str, Any], number: int, right: Any, wrong: dict[Any, str]
) -> None:
    question: Question = cells["asked"][number]
    for given, hint in wrong.items():
        verdict = question.grade(given)
        assert not verdict and hint in verdict.text.replace("*", ""), verdict.text
    assert question.grade(right), question.answer
    assert question.right and question.tries == len(wrong) + 1


def test_the_debugger_stands_on_a_cache_and_its_still_picture_shows_the_rows(cells: dict[str, Any]) -> None:
    debugger = cells["debugger"]
    chosen = debugger.trace.caches[debugger.selection["id"]]
    step = debugger.trace.steps[debugger.cursor]
    assert debugger.selection["kind"] == "cache" and chosen.output in step.outputs
    told = f"rows of the cache {chosen.name} after every run"
    assert told in still_bundle(debugger.trace, debugger.cursor, debugger.selection)["text/html"]
    # the step alone says it too, and one that makes no cache does not
    assert told in still_bundle(debugger.trace, debugger.cursor)["text/html"]
    assert "rows of the cache" not in still_bundle(debugger.trace, 0)["text/html"]
    assert "cache 0.key" in still_bundle(debugger.trace, 0, {"kind": "cache", "id": 0})["text/html"]
