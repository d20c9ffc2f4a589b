"""Cells of a KV cache against llama.cpp, case by case, and as a chart; the rows that recorded graphs store and read."""

import base64
import doctest
import gzip
import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import kvviz
from kvviz.caches.cache_heat import attention
from kvviz.errors import KvvizError, ReplayError
from kvviz.ggml import Context, kv_cache
from kvviz.ggml.kv_cache import DIRTY, FREE, LIVE, SHIFTED, KVCache
from kvviz.trace.file.header_schema import ROWS, read
from kvviz.view.charts import heat_cells
from kvviz.view.charts.cell_plot import HATCHES
from kvviz.view.page_data.packed_columns import unpack
from kvviz.view.page_data.payload_cache_rows import cache_payload
from tests.ggml.recordings import recording

DATA = Path(__file__).resolve().parents[1] / "data" / "llama" / "kv_cells.json.gz"
SCRIPTS: list[dict[str, Any]] = json.loads(gzip.decompress(DATA.read_bytes()))


@pytest.fixture
def holes() -> KVCache:
    """Eight cells: four of sequence 0, two of sequence 1, and positions 1 and 2 of sequence 0 removed."""
    cache = KVCache(8, n_seq_max=2)
    cache.append(4, seq=0)
    cache.append(2, seq=1)
    cache.seq_rm(0, 1, 3)
    return cache


@pytest.fixture
def story(holes: KVCache) -> KVCache:
    """They are filled again, and a position is moved."""
    holes.append(3, seq=1)
    holes.seq_add(0, 3, -1, -2)
    return holes


@pytest.mark.parametrize("script", SCRIPTS, ids=["first", "second"])
def test_cells_and_positions_are_those_of_llama_cpp_after_every_call(script: dict[str, Any]) -> None:
    cache, many = KVCache(script["size"], script["n_seq_max"]), script["n_ubatch"]
    for number, told in enumerate(script["calls"]):
        kind, *arguments = told["call"]
        if kind != "decode":
            getattr(cache, kind)(*arguments)
        elif told["rc"]:
            with pytest.raises(KvvizError, match="no cells for"):
                cache.decode(arguments[0])
        else:
            tokens = arguments[0]
            found = [list(cache.decode(tokens[at : at + many])) for at in range(0, len(tokens), many)]
            assert found == told["cells"], number
        positions = [[cache.pos_min(seq), cache.pos_max(seq)] for seq in range(script["n_seq_max"])]
        assert positions == told["pos"], (number, kind)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: KVCache(0), "one cell, not 0"),
        (lambda: KVCache(8, n_seq_max=300), "n_seq_max is 300"),
        (lambda: KVCache(8).append(0), "0 tokens"),
        (lambda: KVCache(8).append(1, seq=1), "no sequence 1"),
        (lambda: KVCache(8).decode([(-1, (0,))]), "position -1"),
        (lambda: KVCache(8).decode([(0, ())]), "0 sequences"),
        (lambda: KVCache(8).seq_div(0, 0, -1, 0), "not by 0"),
    ],
)
def test_what_cannot_be_is_refused(call: Any, text: str) -> None:
    with pytest.raises(KvvizError, match=text):
        call()


def test_each_call_says_what_it_did_and_a_moved_position_changes_no_key_before_the_next_tokens(holes: KVCache) -> None:
    assert doctest.testmod(kv_cache).failed == 0
    assert [change.call for change in holes.history] == ["", "decode 4 tokens", "decode 2 tokens", "seq_rm(0, 1, 3)"]
    assert [change.cells.text() for change in holes.history] == ["........", "0000....", "000011..", "0..011.."]
    holes.seq_cp(0, 1, 3)
    assert holes.cells.text() == "0..M11.."
    holes.seq_add(0, 3, -1, -2)
    assert (holes.pos[3], holes.turned[3], holes.cells.states[3]) == (1, 3, SHIFTED)
    with pytest.raises(KvvizError, match="no cells for 5 tokens: 4 of 8 are empty"):
        holes.append(5)
    assert len(holes.history) == 6 and holes.cells.text() == "0..M11.."
    holes.append(1, seq=1)
    assert (holes.pos[3], holes.turned[3], holes.cells.states[3]) == (1, 1, LIVE)
    assert "rotates the keys of cell 3 first" in holes.history[-1].text


SEQ, POS = st.integers(0, 2), st.integers(-1, 12)
CALL = st.one_of(
    *[st.tuples(st.just("append"), st.integers(1, 5), SEQ)] * 2,
    st.tuples(st.just("seq_rm"), st.integers(-1, 2), POS, POS),
    st.tuples(st.just("seq_cp"), SEQ, SEQ),
    st.tuples(st.just("seq_keep"), SEQ),
    st.tuples(st.just("seq_add"), SEQ, POS, POS, st.integers(-4, 4)),
)


@settings(max_examples=150, deadline=None)
@given(st.integers(6, 14), st.lists(CALL, max_size=14), st.integers(1, 6))
def test_cells_agree_with_each_other_and_a_slot_is_the_first_that_is_free(
    size: int, calls: list[Any], wanted: int
) -> None:
    cache = KVCache(size, 3)
    for name, *arguments in calls:
        if name == "append" and cache.pos.count(-1) < arguments[0]:
            continue
        getattr(cache, name)(*arguments)
        assert [pos >= 0 for pos in cache.pos] == [bool(seqs) for seqs in cache.seqs]
        for state, pos, turned in zip(cache.cells.states, cache.pos, cache.turned):
            written = LIVE if pos == turned else SHIFTED if pos >= 0 else DIRTY
            assert state == (written if turned >= 0 else FREE)
    used = sum(pos >= 0 for pos in cache.pos)
    start = 0 if cache.head > used + 2 * wanted else cache.head
    free = [cell for cell in (*range(start, size), *range(start)) if not cache.seqs[cell]]
    assert cache.find_slot(wanted) == (tuple(free[:wanted]) if len(free) >= wanted else None)
    together = cache.find_slot(wanted, contiguous=True)
    runs = [range(a, a + wanted) for a in range(size - wanted + 1) if {*range(a, a + wanted)} <= {*free}]
    assert (together is None) == (not runs)
    assert together is None or range(together[0], together[-1] + 1) in runs


def test_the_trace_has_a_run_for_each_call_and_rows_with_the_positions_and_sequences_of_the_cells(
    story: KVCache, tmp_path: Path
) -> None:
    trace = story.trace
    assert [run.text for run in trace.runs] == ["new", *[change.call for change in story.history[1:]]]
    assert [step.written for step in trace.steps if step.op_type == "SET_ROWS"] == [4 * 16, 2 * 16, 3 * 16]
    (shown,) = trace.caches
    for run, change in enumerate(story.history):
        found = {row: at + row - a for a, b, _, _, at in heat_cells.cells(shown, run) if at >= 0 for row in range(a, b)}
        assert found == {cell: pos for cell, pos in enumerate(change.cells.pos) if pos >= 0}
    whose = {row: (seqs, state) for a, b, seqs, state in heat_cells.owners(shown, 5) for row in range(a, b)}
    assert (whose[3], whose[6]) == (((0,), "shift pending"), ((1,), ""))
    pending = "sequence 0 · shift pending: the position has moved, the key is not rotated yet"
    assert (3, 4, pending) in heat_cells.notes(shown, 5)
    header = unpack(cache_payload(trace))[0]
    assert "owners" in header and pending in header["notes"]
    trace.save(tmp_path / "cells")
    assert kvviz.Trace.load(tmp_path / "cells").caches[0].runs == shown.runs


def test_a_file_without_notes_is_still_read() -> None:
    read([[[0, 1, 0]], [], None, 0], ROWS)
    read([[], [], None, 0, [[0, 3, "sequence 1"]]], ROWS)
    read([[], [], None, 0, [], [[0, 3, [0, 1], "freed, dirty"]]], ROWS)
    wrongs: list[list[Any]] = [
        [[], [], None],
        [[], [], None, 0, [[0, 3, 1]]],
        [[], [], None, 0, [], [[0, 3, [-1], ""]]],
        [[], [], None, 0, [], [], []],
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError):
            read(wrong, ROWS)


STORED: dict[str, Any] = json.loads(DATA.with_name("kv_rows.json").read_text("utf-8"))


def rows(spans: Any) -> list[int]:
    return [row for start, stop, *_ in spans for row in range(start, stop)]


@pytest.mark.parametrize("name", STORED)
def test_a_recorded_cache_has_the_rows_that_llama_cpp_stored_and_reads_as_many_as_attention_was_given(
    name: str,
) -> None:
    trace = recording(f"{name}.jsonl.gz").trace
    assert {cache.name[:8] for cache in trace.caches} == {"cache_k_", "cache_v_"}
    for cache in trace.caches:
        held: set[int] = set()
        for run, known in zip(cache.runs, STORED[name], strict=True):
            if known is None:  # the K-shift rotates what is there
                assert run.valid == len(held)
                continue
            held.update(known["written"])
            assert rows(run.items[0].wrote) == sorted(known["written"])
            assert (rows(run.items[0].held), run.valid) == (sorted(held), len(held))
            assert (run.rows_written, run.rows_read) == (len(known["written"]), known["read"])


def test_rows_that_defragmentation_moved_are_counted_once() -> None:
    trace = recording("old_smollm2_cpy_fa_off_defrag.jsonl.gz").trace
    assert len(trace.caches) == 60
    for cache in trace.caches:
        assert [run.valid + run.stale for run in cache.runs] == [6, 7, 7, 7]
        assert cache.runs[2].valid == 5
        assert cache.runs[2].bytes_copied == cache.runs[2].bytes_written == 2 * 192 * 2
    # memory that is not known to the byte, and the states of recurrent layers, are no caches
    for name in ("seed_set_rows.dot", "tiny_mamba_2seq.jsonl.gz"):
        assert not recording(name).trace.caches


def test_a_graph_that_was_run_has_its_cache_too_and_a_saved_trace_says_the_same(tmp_path: Path) -> None:
    ctx = Context()
    k, cur = ctx.new_tensor("f32", 4, 8, name="k", data=0), ctx.new_tensor("f32", 4, 2, name="cur", data=np.ones(8))
    graph = ctx.new_graph().expand(ctx.set_rows(k, cur, ctx.new_tensor("i64", 2, name="at", data=[5, 2])))
    trace = kvviz.ggml.run(graph.expand(ctx.mul_mat(ctx.view_2d(k, 4, 6, 16, 0), cur)))
    (cache,) = trace.caches
    (run,) = cache.runs
    assert (cache.name, run.capacity, run.valid, run.rows_read, run.bytes_written) == ("k", 8, 2, 6, 32)
    assert run.items[0].held == ((2, 3, 0), (5, 6, 1))
    trace.save(tmp_path / "one")
    assert kvviz.Trace.load(tmp_path / "one").caches[0].runs == cache.runs
    with pytest.raises(ReplayError, match="attention was not recorded"):
        attention(trace, cache, 0)
    session = graph.session()
    session.run_to_end()
    assert session.trace.caches[0].runs == cache.runs


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def texts(ax: Any) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in ax.texts]


def labels(ax: Any) -> list[str]:
    return [tick.get_text() for tick in ax.get_yticklabels()]


def test_rows_are_the_calls_with_what_they_did_and_every_state_has_a_hatch_of_its_own(story: KVCache) -> None:
    ax = kvviz.plot.cells(story)
    assert labels(ax) == ["new", *[change.call for change in story.history[1:]]]
    assert "find_slot 3 tokens → cells 1, 2, 6; head 7" in texts(ax)
    assert not any("find_slot" in text for text in texts(kvviz.plot.cells(story, words=False)))
    last = kvviz.plot.cells(story, last=2)
    assert labels(last) == ["decode 3 tokens", "seq_add(0, 3, -1, -2)"]
    assert "last 2 calls" in last.get_title(loc="left")
    story.seq_cp(0, 1, 0, 1)
    names = [text.get_text() for text in kvviz.plot.cells(story).get_legend().get_texts()]
    assert names[:4] == ["sequence 0", "sequence 1", "freed, dirty", "shift pending"]
    marked = [hatch for hatch in HATCHES.values() if hatch]
    assert len(set(marked)) == len(marked) == 2
    with pytest.raises(KvvizError, match="last 0 calls"):
        kvviz.plot.cells(story, last=0)


def test_a_wide_cache_is_cut_to_its_last_used_cells_or_to_those_that_are_asked_for() -> None:
    cache = KVCache(256, n_seq_max=2)
    cache.append(60, seq=0)
    cache.append(30, seq=1)
    ax = kvviz.plot.cells(cache)
    assert "the first 91 of 256" in ax.get_title(loc="left") and {"s0", "s1"} <= set(texts(ax))
    cache = KVCache(1024)
    cache.append(500)
    assert "181 to 500 of 1,024" in kvviz.plot.cells(cache, words=False).get_title(loc="left")
    ax = kvviz.plot.cells(cache, first=480, words=False)
    assert "480 to 500 of 1,024" in ax.get_title(loc="left")
    assert "499" in texts(ax) and "479" not in texts(ax)
    with pytest.raises(KvvizError, match="cells 0 to 1023"):
        kvviz.plot.cells(cache, first=1024)


def test_a_notebook_shows_the_chart_with_what_the_last_call_did_as_its_text(story: KVCache) -> None:
    page = story._repr_html_()
    assert escape(story.history[-1].text) in page
    picture = base64.b64decode(page.partition("base64,")[2].rstrip('">'))
    assert picture.startswith(b"\x89PNG") and len(picture) < 200_000
    assert plt.get_fignums() == [], "no figure stays open"
    assert "</script>" not in KVCache(8, name='</script><b>"k"')._repr_html_()
