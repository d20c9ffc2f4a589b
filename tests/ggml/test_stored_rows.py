"""Caches that a graph does not name: rows written and read, against the index tensors of llama.cpp's own graphs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_heat import attention
from kvviz.errors import ReplayError
from kvviz.ggml import Context
from tests.ggml.recordings import recording

DATA = Path(__file__).resolve().parents[1] / "data"
ROWS: dict[str, Any] = json.loads((DATA / "llama" / "kv_rows.json").read_text("utf-8"))


def rows(spans: Any) -> list[int]:
    return [row for start, stop, *_ in spans for row in range(start, stop)]


@pytest.mark.parametrize("name", ROWS)
def test_a_recorded_cache_has_the_rows_that_llama_cpp_stored_and_reads_as_many_as_attention_was_given(
    name: str,
) -> None:
    trace = recording(f"{name}.jsonl.gz").trace
    assert {cache.name[:8] for cache in trace.caches} == {"cache_k_", "cache_v_"}
    for cache in trace.caches:
        held: set[int] = set()
        for run, known in zip(cache.runs, ROWS[name], strict=True):
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


def test_memory_that_is_not_known_to_the_byte_and_states_of_recurrent_layers_are_no_caches() -> None:
    assert not recording("seed_set_rows.dot").trace.caches
    assert not recording("tiny_mamba_2seq.jsonl.gz").trace.caches


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
