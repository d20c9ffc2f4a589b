"""Markdown of a step: what it says is what the trace says, GitHub's tables hold, and what it tells to run gives it."""

import hashlib
import re

import numpy as np
import pytest

import kvviz
from kvviz.explain.sentences import sentence
from kvviz.report.faces.markdown_text import code, filled, text
from kvviz.trace.units import size
from tests.graph.build import MODELS, model, node

STORY = MODELS / "storyteller" / "concat" / "model.onnx"


@pytest.fixture(scope="module")
def story() -> kvviz.Trace:
    return kvviz.decode(kvviz.load(STORY), [1, 77, 108], 4, progress=False)


def rows(markdown: str) -> list[list[str]]:
    """Cells of the rows of all tables, as GitHub splits them: a pipe with a backslash in front is none."""
    lines = [line for line in markdown.split("\n") if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_a_step_tells_decision_bytes_blockers_and_fix(story: kvviz.Trace) -> None:
    report = kvviz.explain(story)
    missed = next(m for m in report.missed if m.fix is not None and m.op_type == "Concat")
    step = story.steps[missed.step]
    told = report.to_markdown(missed.step)
    cells = {row[0]: row[1] for row in rows(told) if len(row) == 2}
    assert cells["node"] == f"`{step.node}`"
    assert (cells["copied"], cells["allocated"]) == (size(step.copied), size(step.allocated))
    assert cells["live while the op ran"] == size(step.live_bytes)
    assert cells["SHA-256 of the file"] == f"`{hashlib.sha256(STORY.read_bytes()).hexdigest()[:16]}`"
    assert cells["kvviz"] == kvviz.__version__
    assert text(sentence(step, story)) in told
    reasons = [row for row in rows(told) if len(row) == 3 and row[0].startswith("`")]
    assert [row[0] for row in reasons] == [f"`{blocker.code}`" for blocker in missed.blockers]
    fix = missed.fix
    assert fix is not None and f"```python\n{fix.code}\n```" in told


def test_the_three_lines_make_the_same_step_again(story: kvviz.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(STORY.parent)
    lines = story.to_markdown(700).rpartition("```python\n")[2].rpartition("\n```")[0].split("\n")
    assert len(lines) == 3
    names: dict[str, kvviz.Trace] = {}
    exec("\n".join(lines[:2]), names)
    assert sentence(names["trace"].steps[700], names["trace"]) == sentence(story.steps[700], story)
    assert lines[2] == "kvviz.debug(trace, step=700)"
    trace = kvviz.decode(kvviz.load(STORY), [1, 77], 3, policy="rten", kv_capacity=8, progress=False)
    assert "[1, 77], max_new_tokens=3, policy='rten', kv_capacity=8)" in trace.to_markdown(5)
    assert "| policy | rten, c7f7bad9 (after v0.25.0) |" in trace.to_markdown(5)


def test_the_same_miss_is_counted_by_layers_and_tokens(story: kvviz.Trace) -> None:
    missed = next(m for m in kvviz.explain(story).missed if m.node == "/model/layers.1/self_attn/Concat_5")
    alike = [m for m in kvviz.explain(story).missed if re.fullmatch(r"/model/layers\.\d/self_attn/Concat_5", m.node)]
    cells = {row[0]: row[1] for row in rows(story.to_markdown(missed.step)) if len(row) == 2}
    # then of the past that it copied, which the first run does not have
    copied = [story.steps[step].copied for m in alike for step in m.steps if story.steps[step].run]
    assert len(copied) == 9 and all(copied)
    assert cells["the same miss"] == f"Concat × 3 layers × 3 tokens: {size(sum(copied))}"


def test_what_is_held_after_a_step_is_what_the_next_one_finds(story: kvviz.Trace) -> None:
    # a step's live bytes are what was held before it and what it allocated
    told = [dict(row for row in rows(story.to_markdown(i)) if len(row) == 2) for i in (100, 101)]
    free = story.steps[100].live_bytes - sum(story.storages[s].capacity for s in story.steps[100].freed)
    assert told[0]["held after"] == size(free)
    assert story.steps[101].live_bytes == free + story.steps[101].allocated


def test_names_stay_in_their_cells_and_become_no_markup() -> None:
    evil = "a|b`c`<img src=x>\n| x | @someone #12 _y_ [z](http://z)"
    proto = model([node("Add", "x x", "y", name=evil)], ["x float 4"], ["y float 4"])
    trace = kvviz.run(kvviz.load(proto), {"x": np.ones(4, np.float32)})
    told = trace.to_markdown(0)
    assert all(len(row) in (2, 3) for row in rows(told))
    assert "``a\\|b`c`<img src=x>·\\| x \\| @someone #12 _y_ [z](http://z)``" in told
    assert "SHA-256" not in told
    assert text(evil) == "a\\|b\\`c\\`\\<img src=x\\>·\\| x \\| @<!-- -->someone #<!-- -->12 \\_y\\_ \\[z\\](http://z)"
    assert (code("`a"), code("a``"), code(" ")) == ("`` `a ``", "``` a`` ```", "`   `")


def test_a_line_without_its_fact_and_a_table_without_lines_are_left_out() -> None:
    template = [
        ("", ("| a |",), ("| {x} |", "| {y} {x} |")),
        ("", ("| b |",), ("| {y} |",)),
        ("z", ("h",), ("{n|code}",)),
    ]
    assert filled(template, {"x": "1", "y": "", "z": [{"n": "p"}, {"n": ""}]}) == "| a |\n| 1 |\n\nh\n`p`\n\n"


def test_the_report_lists_the_findings_with_their_changes_and_the_code_of_three(story: kvviz.Trace) -> None:
    text = story.to_markdown()
    assert size(story.peak_bytes) in text
    listed = [row for row in rows(text) if len(row) == 4 and row[0] not in ("bytes", "---:")]
    found = story.explain().findings
    assert [row[1] for row in listed] == [one.title for one in found[:12]]
    changes = {row[3] for row in listed} - {""}
    assert any(change.startswith("kv_capacity=6 (saves ") for change in changes)
    assert text.count("**Fix:") == min(len({one.fix.label for one in found[:12] if one.fix}), 3)
