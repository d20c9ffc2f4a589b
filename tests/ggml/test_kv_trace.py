"""The history of a cache as a trace: every reader of traces answers for cells as it does for rows of other caches."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.ggml.cell_map import AHEAD, DIRTY, FREE
from kvviz.ggml.kv_cache import KVCache
from kvviz.trace.header_schema import ROWS, check
from kvviz.view import heat_cells
from kvviz.view.packed_columns import unpack
from kvviz.view.payload_cache_rows import cache_payload

ROW = 8 * 2  # bytes of a key


@pytest.fixture(scope="module")
def holes() -> KVCache:
    """Holes, scattered cells, a shift and its update."""
    cache = KVCache(8, n_seq_max=2)
    cache.append(4, seq=0)
    cache.append(2, seq=1)
    cache.seq_rm(0, 1, 3)
    cache.append(3, seq=1)
    cache.seq_add(0, 3, -1, -2)
    cache.append(1, seq=0)
    return cache


@pytest.fixture(scope="module")
def streams() -> KVCache:
    """A copy from stream to stream, and tokens behind it."""
    cache = KVCache(8, n_seq_max=2, unified=False)
    cache.append(3, seq=0)
    cache.seq_cp(0, 1)
    cache.append(2, seq=1)
    return cache


def test_every_call_is_a_run_and_its_ops_write_as_many_bytes_as_rows(holes: KVCache) -> None:
    trace = holes.trace
    assert [run.text for run in trace.runs] == ["new", *[change.call for change in holes.history[1:]]]
    stored = [step.written for step in trace.steps if step.op_type == "SET_ROWS"]
    assert stored == [4 * ROW, 2 * ROW, 3 * ROW, 1 * ROW]


def test_the_rotation_of_one_key_writes_all_of_k(holes: KVCache) -> None:
    (update,) = [run for run in holes.trace.runs if run.text == "update()"]
    assert update.bytes_written - 8 * 40 == 8 * ROW


def test_each_decode_hides_one_dependency_and_it_has_the_bytes_of_the_rows_written(holes: KVCache) -> None:
    found = [hazard for hazard in kvviz.hazards(holes.trace) if hazard.root == "cache_k_l0" and not hazard.ordered]
    assert [(hazard.kind, hazard.bytes) for hazard in found] == [("RAW", n * ROW) for n in (4, 2, 3, 1)]
    steps = holes.trace.steps
    assert {(steps[h.first].op_type, steps[h.second].op_type) for h in found} == {("SET_ROWS", "MUL_MAT")}
    assert not any(hazard.broken for hazard in found)


@pytest.mark.parametrize("which", ["holes", "streams"])
def test_the_rows_of_the_cache_view_say_what_the_cells_say(which: str, request: pytest.FixtureRequest) -> None:
    cache: KVCache = request.getfixturevalue(which)
    (shown,) = cache.trace.caches
    outside = 0
    for run, change in enumerate(cache.history):
        for stream in range(cache.n_stream):
            rows = heat_cells.cells(shown, run, stream)
            state = np.concatenate([np.full(stop - start, kind) for start, stop, kind, _, _ in rows])
            token = [(at + i if at >= 0 else -1) for start, stop, _, _, at in rows for i in range(stop - start)]
            cells = change.cells.states[stream]
            assert (state == heat_cells.RESERVED).tolist() == (cells == FREE).tolist()
            assert (state == heat_cells.STALE).tolist() == np.isin(cells, (DIRTY, AHEAD)).tolist()
            told = np.where(np.isin(cells, (FREE, DIRTY, AHEAD)), -1, change.cells.pos[stream])
            assert token == told.tolist()
            outside += int((state == heat_cells.OUTSIDE).sum())
    assert outside > 2


def test_a_row_that_no_token_of_a_call_sees_is_outside(holes: KVCache) -> None:
    (shown,) = holes.trace.caches
    last = heat_cells.cells(shown, len(holes.history) - 1)
    kinds = [heat_cells.STATES[kind] for start, stop, kind, _, _ in last for _ in range(start, stop)]
    assert kinds == ["valid", "outside", "outside", "valid", "outside", "outside", "outside", "written"]


def test_a_copy_between_streams_counts_as_copied_when_it_is_done(streams: KVCache) -> None:
    (shown,) = streams.trace.caches
    assert [run.bytes_copied for run in shown.runs] == [0, 0, 0, 8 * ROW, 0]
    assert streams.trace.bytes_copied == 8 * ROW


def test_a_saved_trace_tells_the_same(holes: KVCache, streams: KVCache, tmp_path: Path) -> None:
    for name, cache in (("holes", holes), ("streams", streams)):
        trace = cache.trace
        trace.save(tmp_path / name)
        again = kvviz.Trace.load(tmp_path / name)
        assert again.caches[0].runs == trace.caches[0].runs
        assert cache_payload(again) == cache_payload(trace)
        assert [str(one) for one in kvviz.hazards(again)] == [str(one) for one in kvviz.hazards(trace)]


def test_every_reader_takes_it(streams: KVCache, tmp_path: Path) -> None:
    trace = streams.trace
    assert "cache_k_l0" in str(kvviz.explain(trace))
    assert kvviz.cache_warnings(trace) == ()
    header, _ = unpack(cache_payload(trace))
    assert header["caches"][0]["streams"] == [0, 1]
    trace.to_html(tmp_path / "page.html")
    trace.to_perfetto(tmp_path / "perfetto.json")
    assert "SET_ROWS" in (tmp_path / "perfetto.json").read_text("utf-8")


def test_the_page_is_told_of_each_row_whose_it_is_and_what_is_wrong_with_its_bytes(
    holes: KVCache, streams: KVCache
) -> None:
    (shown,) = holes.trace.caches
    told = {change.call: heat_cells.notes(shown, run) for run, change in enumerate(holes.history)}
    freed = "of no sequence · freed: the old bytes are still there · key stored by decode 4 tokens"
    assert told["seq_rm(0, 1, 3)"][1] == (1, 3, freed)
    moved = "sequence 0 · shift pending: the key is not moved by -2 yet · key stored by decode 4 tokens"
    assert (3, 4, moved) in told["seq_add(0, 3, -1, -2)"]
    assert (3, 4, "sequence 0 · key stored by decode 4 tokens") in told["update()"]
    (shown,) = streams.trace.caches
    ahead = "sequence 1 · ahead of data: the key comes with the next update"
    assert heat_cells.notes(shown, 2, 1) == ((0, 3, ahead),)
    header, columns = unpack(cache_payload(streams.trace))
    at = 1 * (len(streams.history) + 1) + 2  # stream 1, run 2
    (place,) = range(columns["note.at"][at], columns["note.at"][at + 1])
    assert header["notes"][columns["note.text"][place]] == ahead


def test_a_file_without_notes_is_still_read() -> None:
    check([[[0, 1, 0]], [], None, 0], ROWS)
    check([[], [], None, 0, [[0, 3, "sequence 1"]]], ROWS)
    check([[], [], None, 0, [], [[0, 3, [0, 1], "freed, dirty"]]], ROWS)
    wrongs: list[list[Any]] = [
        [[], [], None],
        [[], [], None, 0, [[0, 3, 1]]],
        [[], [], None, 0, [], [[0, 3, [-1], ""]]],
        [[], [], None, 0, [], [], []],
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError):
            check(wrong, ROWS)


MODULES = [
    *("cell_map", "find_slot", "iswa_cache", "kq_mask", "kv_cache", "kv_cells", "recurrent_memory"),
    *("swa_mask", "ubatch_split"),
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_give_what_they_say(name: str) -> None:
    assert doctest.testmod(import_module(f"kvviz.ggml.{name}")).failed == 0
