"""Caches, block tables and stories in steps: what a line touches, who has which block, what a load leaves empty; every
frame is what the recording says, also where no script runs."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_heat import attention
from kvviz.demo.storyteller import BEGINNING, model, vocabulary
from kvviz.lessons import recompute, serving, step_blocks, step_code, step_load
from kvviz.lessons.stepping import Cell, Frame, Group, Stepping
from kvviz.lessons.story_steps import step_decodes, step_story
from tests.lessons.story import ROW

SIZE = 4
RNG = np.random.default_rng(0)
TOKENS = RNG.normal(size=(5, SIZE))
W_Q, W_K, W_V = RNG.normal(size=(3, SIZE, SIZE))


def attend(q: Any, K: Any, V: Any) -> Any:
    scores = K @ q / np.sqrt(SIZE)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ V


def with_room(x: Any, cache: Any) -> Any:
    K, V, n = cache
    K[n] = x @ W_K
    V[n] = x @ W_V
    return attend(x @ W_Q, K[: n + 1], V[: n + 1]), (K, V, n + 1)


def without_room(x: Any, cache: Any) -> Any:
    K = np.vstack([cache[0], x @ W_K])
    V = np.vstack([cache[1], x @ W_V])
    return attend(x @ W_Q, K, V), (K, V)


def row_by_row(x: Any, cache: Any) -> Any:
    K, V, n = cache
    K[n : n + 1], V[n, :] = x @ W_K, x @ W_V
    scores = np.array([sum(k[at] * x[at] for at in range(SIZE)) for k in K[: n + 1]])
    return V.T[:, : n + 1] @ scores, (K, V, n + 1)


def shown(stepping: Stepping, text: str, group: int) -> list[str]:
    """The states of a cache's rows in the frames of a line."""
    frames = [frame for frame in stepping.frames if f": {text}" in frame.caption]
    return ["".join(cell.state[:2] or ".." for cell in frame.cells[group]) for frame in frames]


def test_each_line_shows_the_rows_that_it_writes_and_reads() -> None:
    room = step_code(with_room, TOKENS, (np.zeros((6, SIZE)), np.zeros((6, SIZE)), 0), also=[attend], words=["once"])
    tokens = range(len(TOKENS))
    assert shown(room, "K[n] =", 2) == ["he" * n + "ne" + "ro" * (5 - n) for n in tokens]
    assert shown(room, "V[n] =", 3) == ["he" * n + "ne" + "ro" * (5 - n) for n in tokens]
    assert shown(room, "scores =", 2) == ["re" * (n + 1) + "ro" * (5 - n) for n in tokens]
    assert shown(room, "return weights", 3) == ["re" * (n + 1) + "ro" * (5 - n) for n in tokens]
    assert room.frames[1].caption == "“once”: K[n] = x @ W_K  → writes row 0 of K"
    # one line is marked in each frame, and what it touches is that of the real run
    marked = [[c.state for cells in frame.cells[:2] for c in cells].count("now") for frame in room.frames]
    assert set(marked) == {1} and len(marked) == 7 * len(TOKENS)


def test_rows_that_are_read_number_by_number_are_noted_and_no_others() -> None:
    room = step_code(row_by_row, TOKENS[:3], (np.zeros((4, SIZE)), np.zeros((4, SIZE)), 0))
    assert (
        shown(room, "K[n : n + 1], V", 2) == shown(room, "K[n : n + 1], V", 1) == ["nerororo", "heneroro", "hehenero"]
    )
    assert shown(room, "scores =", 1) == ["rerororo", "rereroro", "rererero"]


def test_without_room_the_line_that_grows_the_cache_copies_all_old_rows() -> None:
    grown = step_code(without_room, TOKENS, (np.zeros((0, SIZE)), np.zeros((0, SIZE))), also=[attend])
    assert shown(grown, "K = np.vstack", 2) == ["co" * n + "ne" + ".." * (4 - n) for n in range(5)]
    assert shown(grown, "scores =", 2) == ["re" * (n + 1) + ".." * (4 - n) for n in range(5)]


def test_code_that_fails_or_never_ends_is_refused() -> None:
    with pytest.raises(kvviz.KvvizError, match="fails at token 2: IndexError"):
        step_code(with_room, TOKENS, (np.zeros((2, SIZE)), np.zeros((2, SIZE)), 0))
    with pytest.raises(kvviz.KvvizError, match="more than 400 lines"):
        step_code(with_room, TOKENS[[0] * 101], (np.zeros((200, SIZE)), np.zeros((200, SIZE)), 0))
    with pytest.raises(kvviz.KvvizError, match="is not there to be shown"):
        step_code(max, TOKENS, ())


def test_block_tables_are_shared_copied_before_a_write_and_given_back() -> None:
    stepping = step_blocks()
    tables = [
        {
            group.title[-1]: [int(c.text or "-1") for c in cells if c.state]
            for group, cells in zip(stepping.groups[1:], frame.cells[1:])
        }
        for frame in stepping.frames
    ]
    assert tables[3] == {"A": [0, 1], "B": [2], "C": [0, 1]}
    assert tables[4] == {"A": [0, 1], "B": [2], "C": [0, 3]} and "gets a copy" in stepping.frames[4].caption
    assert tables[9] == {"A": [0, 1, 4], "B": [2, 3], "C": []} and "is evicted" in stepping.frames[9].caption
    assert tables[11] == {"A": [], "B": [2, 3], "C": [0, 1, 4]}
    # three rows go along with the copy, and one is new
    assert [cell.state for cell in stepping.frames[4].cells[0][12:16]] == ["copied"] * 3 + ["new"]
    # rows of a free block hold nothing, and a row is somebody's as long as it is there
    for table, frame in zip(tables, stepping.frames):
        for block in range(6):
            users = "".join(name for name, blocks in table.items() if block in blocks)
            assert {cell.text for cell in frame.cells[0][4 * block : 4 * block + 4]} <= {users, ""}
    crowded = step_blocks([("admit", "A", 9), ("admit", "B", 9), ("admit", "C", 8)])
    assert crowded.frames[2].caption.startswith("No block is free: B, which came last, is evicted")
    with pytest.raises(kvviz.KvvizError, match="more blocks than there are"):
        step_blocks([("admit", "A", 25)])
    with pytest.raises(kvviz.KvvizError, match="write and end who is"):
        step_blocks([("write", "A", 1)])


def test_a_realistic_load_leaves_least_empty_in_blocks_and_serves_most_at_once() -> None:
    load = serving.request_load()
    runs = {way: serving.serve_load(load, way) for way in serving.WAYS}
    for run in runs.values():
        assert all(sum(parts) == 16384 and min(parts) >= 0 for parts, _ in run.history)
    # the longest sequence has 4,096 rows: four fit, whatever they hold
    assert {running for _, running in runs["longest"].history} == {4}
    assert all(parts[2] == 0 for parts, _ in runs["exact"].history)
    # in blocks at most 15 rows of a request are empty, and nothing lies in gaps
    assert all(parts[1] + parts[2] <= 15 * running and parts[3] == 0 for parts, running in runs["blocks"].history)
    shares = [run.shares()["tokens"] for run in runs.values()]
    assert shares == sorted(shares) and shares[0] < 0.4 and shares[-1] > 0.9
    assert runs["blocks"].evicted and not runs["exact"].evicted
    last = step_load(list(runs.values())).frames[-1]
    assert [round(cells[0].weight, 9) for cells in last.cells[::2]] == [round(share, 9) for share in shares]
    with pytest.raises(kvviz.KvvizError, match="needs 4096 rows, and there are 512"):
        serving.serve_load(load, "longest", rows=512)


def test_the_lengths_of_the_load_are_those_of_the_trace() -> None:
    """Medians of the conversation trace: 1,020 tokens of a prompt, 129 of an answer."""
    load = np.array(serving.request_load(20_000, longest=16_384))
    assert np.median(load, 0) == pytest.approx([1020, 129], rel=0.03)
    assert load.max(0).tolist() <= [14050, 1000]


RUNS, PROMPT = 10, 13


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


def test_a_frame_that_does_not_fit_is_refused() -> None:
    for group, cells, said in [
        (Group("", "words", ["a"]), [Cell("nev")], "a state is one of"),
        (Group("", "wrods", ["a"]), [Cell()], "a group has one of"),
        (Group("", "words", ["a"]), [], "does not have the"),
    ]:
        with pytest.raises(kvviz.KvvizError, match=said):
            Stepping("", [group], [Frame("", [cells])], {})
