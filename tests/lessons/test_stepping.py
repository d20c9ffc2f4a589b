"""Pictures in steps: every frame is what the recording says, and they are readable where no script runs."""

import re
from html import unescape

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_heat import attention
from kvviz.demo.storyteller import BEGINNING, model, vocabulary
from kvviz.lessons import recompute
from kvviz.lessons.stepping import Cell, Frame, Group, Stepping
from kvviz.lessons.story_steps import step_decodes, step_story

RUNS, PROMPT = 10, 13
# Three layers, keys and values, two heads of 16 floats.
ROW = 3 * 2 * 2 * 16 * 4


def decode(**how: object) -> kvviz.Trace:
    return kvviz.decode(model(), BEGINNING, RUNS, tokenizer=vocabulary(), progress=False, **how)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    return decode()


def states(cells: object) -> str:
    return "".join(cell.state[:1] or "." for cell in cells)  # type: ignore[attr-defined]


def test_a_story_writes_one_row_a_run_reads_the_others_and_weighs_what_the_recording_weighs(trace: kvviz.Trace) -> None:
    frames = step_story(trace, layer=1, head=2).frames
    for k, (_, words) in enumerate(frame.cells for frame in frames):
        held = PROMPT + k
        expected = "n" * PROMPT if not k else "r" * (held - 1) + "n"
        assert states(words) == expected + "n" + "." * (RUNS - k - 1)  # the last n: the word that is next
        weights = attention(trace, trace.caches[2], k)
        assert weights is not None
        assert np.array_equal([cell.weight for cell in words[:held]], weights[2, :held])
    assert f"reads {PROMPT}" in frames[1].caption and "“rosa” (89%)" in step_story(trace).frames[8].caption


def test_without_a_cache_all_rows_are_computed_again(trace: kvviz.Trace) -> None:
    without = recompute(model(), BEGINNING, RUNS, vocabulary())
    frames = step_story(trace, without, weights=False).frames
    assert [states(frame.cells[1]).count("a") for frame in frames] == [0, *range(PROMPT, PROMPT + RUNS - 1)]
    assert frames[-1].cells[0][2].text == f"so far: {sum(range(PROMPT, PROMPT + RUNS))}"
    with pytest.raises(kvviz.KvvizError, match="another story"):
        step_story(trace, recompute(model(), BEGINNING, 2, vocabulary()))
    with pytest.raises(kvviz.KvvizError, match="head=4: a layer has 4 heads"):
        step_story(trace, head=4)


def test_two_decodes_copy_all_old_rows_or_none(trace: kvviz.Trace) -> None:
    frames = step_decodes(trace, decode(kv_capacity=30)).frames
    for k, frame in enumerate(frames):
        without, told, _, room, calm, _ = frame.cells
        held = PROMPT + k
        assert states(without).rstrip(".") == ("n" * PROMPT if not k else "c" * (held - 1) + "n")
        assert states(room) == ("n" * PROMPT if not k else "r" * (held - 1) + "n") + "r" * (30 - held)
        assert told[0].text == f"run {k} copies {ROW * (held - 1) * (k > 0):,} B, adds {ROW * (1 if k else PROMPT):,} B"
        assert calm[1].text == "copied so far: 0 B"


def test_without_scripts_one_frame_is_there_and_the_text_of_all(trace: kvviz.Trace) -> None:
    shown = step_story(trace, weights=False)
    html = re.sub(r"<(script|style).*?</\1>", "", shown._repr_html_(), flags=re.DOTALL)
    text = unescape(re.sub(r"<[^>]*>", "", html))
    assert all(frame.caption in text for frame in shown.frames)
    # each word with the mark of its row
    assert "once= upon= a= time= " in text and "= read from the cache" in text
    assert not re.search(r"(src|href)=|@import|url\(", shown._repr_html_())


@pytest.mark.parametrize(
    ("group", "cells", "said"),
    [
        (Group("", "words", ["a"]), [Cell("nev")], "a state is one of"),
        (Group("", "wrods", ["a"]), [Cell()], "a group has one of"),
        (Group("", "words", ["a"]), [], "does not have the"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(group: Group, cells: list[Cell], said: str) -> None:
    with pytest.raises(kvviz.KvvizError, match=said):
        Stepping("", [group], [Frame("", [cells])], {})
