"""The meter of a cache: which rows hold what, which are written and read, at which step, and the cost in bytes."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvviz
from kvviz import Trace
from kvviz.caches.row_contents import NO_TOKEN, both, count, live, stale
from kvviz.caches.stored_rows import row_steps
from kvviz.decode.token_loop import DecodeSession
from kvviz.graph.model import Graph
from kvviz.trace.records import Cache, CacheRun, Rows
from tests.decode.oracle import Watched
from tests.decode.small import DECODERS, HEADS, NAMES, ROWS, SIZE, WINDOW, projected, small
from tests.engine.graphs import graph_of
from tests.ort_session import session_of
from tests.view.conftest import STORYTELLER

PROMPT, COUNT = [3, 7, 1, 9], 12
ROW = HEADS * SIZE * 4


@cache
def loaded(name: str) -> Graph:
    return kvviz.load(small(name).proto)


def decode(name: str, prompt: Any = PROMPT, tokens: int = COUNT, **options: Any) -> Trace:
    return kvviz.decode(loaded(name), prompt, tokens, progress=False, **{**small(name).options, **options})


@cache
def watched(name: str) -> Watched:
    session = Watched(loaded(name), PROMPT, max_new_tokens=COUNT, poison=True, **small(name).options)
    session.run_to_end()
    return session


def kept(trace: Trace, kind: str = "key") -> Cache:
    return next(cache for cache in trace.caches if cache.output == f"present.0.{kind}")


def item(run: CacheRun) -> Rows:
    (only,) = run.items
    return only


def positions(rows: Rows) -> dict[int, int]:
    """Row to the position of its token, -1 where it holds no live one."""
    return {
        row: first if first == NO_TOKEN else first + row - start
        for start, stop, first in rows.held
        for row in range(start, stop)
    }


# What the rows hold: the numbers themselves are the judge


@pytest.mark.parametrize("name", DECODERS)
def test_each_row_holds_the_key_of_the_token_that_the_meter_says(name: str) -> None:
    session = watched(name)
    want = projected(PROMPT + session.trace.tokens, "Wk")
    for run, made in zip(kept(session.trace).runs, session.made, strict=True):
        held, present = positions(item(run)), made["present.0.key"][0]
        for row in range(present.shape[1]):
            position = held.get(row)
            if position is None:
                assert not present[:, row].any()
            elif position == NO_TOKEN:
                assert present[:, row].any()
            else:
                np.testing.assert_allclose(present[:, row], want[position], rtol=1e-4, atol=1e-4)
        assert run.valid == sum(position != NO_TOKEN for position in held.values())
        assert run.stale == sum(position == NO_TOKEN for position in held.values())


@pytest.mark.parametrize("name", DECODERS)
def test_attention_reads_just_the_rows_that_change_its_result(name: str) -> None:
    session, oracle = watched(name), session_of(small(name).proto)
    runs = kept(session.trace).runs
    rng = np.random.default_rng(2)
    for number in (1, 4, COUNT - 1):
        fed, before, after = session.fed[number], positions(item(runs[number - 1])), item(runs[number])
        assert after.read is not None
        seen = {position for row, position in positions(after).items() if both(after.read, [(row, row + 1)])}
        (plain,) = oracle.run(["logits"], fed)
        for row in range(fed["past_key_values.0.key"].shape[2]):
            position = before.get(row, NO_TOKEN)
            if position == NO_TOKEN:
                # Rows of a window that slides have other numbers after the run; without a token they stay hidden.
                overwritten = name.startswith("window") or bool(both(after.wrote, [(row, row + 1)]))
                expected = bool(both(after.read, [(row, row + 1)])) and not overwritten
            elif position in positions(after).values():
                expected = position in seen
            else:
                # It makes way in this run, and has no number after it.
                continue
            found = False
            for _ in range(8):
                changed = {past: fed[past].copy() for past in NAMES}
                for past in NAMES:
                    # Large enough for one of them to get all of the attention.
                    changed[past][:, :, row] += 20 * rng.standard_normal((1, HEADS, SIZE)).astype(np.float32)
                (other,) = oracle.run(["logits"], {**fed, **changed})
                found = found or not np.array_equal(plain, other)
            assert found is expected, (number, row)


# Invariants of all decodes


def resident(name: str, tokens: int, capacity: int) -> int:
    """Rows that hold a token after so many of them; GroupQueryAttention's window by onnxruntime 1.31's own words."""
    if name == "grouped_window" and tokens > capacity:
        step = capacity - WINDOW + 1
        return tokens - step * -(-(tokens - capacity) // step)
    return min(tokens, WINDOW) if name in ("circular", "window", "window_fixed") else tokens


@given(
    name=st.sampled_from(sorted(DECODERS)),
    prompt=st.lists(st.integers(0, 23), min_size=1, max_size=WINDOW),
    tokens=st.integers(1, 9),
    policy=st.sampled_from(["ideal", "never", "rten", "onnxruntime"]),
    room=st.sampled_from([None, ROWS]),
    growth=st.sampled_from(["start", "after"]),
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_numbers_of_a_meter_fit_together(
    name: str, prompt: list[int], tokens: int, policy: str, room: int | None, growth: str
) -> None:
    if room is not None and name == "grouped_window":
        room = WINDOW + 2
    options: dict[str, Any] = {"policy": policy, "growth": growth} | ({"kv_capacity": room} if room else {})
    trace = decode(name, prompt, tokens, **options)
    assert {len(cache.runs) for cache in trace.caches} == {len(trace.runs)}
    for one in trace.caches:
        for number, run in enumerate(one.runs):
            rows = item(run)
            total = len(prompt) + number
            assert run.stale >= 0 and run.valid > 0 and run.valid + run.stale <= run.capacity
            assert run.slack == run.capacity - run.valid >= 0
            assert run.valid == resident(name, total, run.capacity)
            assert run.rows_written * ROW <= run.bytes_written
            assert 0 < run.rows_read <= run.valid and rows.lost == 0
            if one.protocol != "window":
                # A window may move to the front inside of its own storage.
                assert run.generations >= 1 + (run.bytes_copied > 0)
                assert run.reallocations > 0 or run.bytes_copied == 0
            assert count(live(rows.held)) == run.valid and count(stale(rows.held)) == run.stale
            assert run.bytes_copied <= run.bytes_written
            if one.protocol in ("growing", "shared") and run.reallocations == 0:
                # In place: the new rows and nothing else.
                assert (run.bytes_written, run.bytes_copied) == (run.rows_written * ROW, 0)
        if one.protocol != "window":
            assert sum(run.rows_written for run in one.runs) == one.runs[-1].valid
    moved = [sum(one.runs[i].bytes_moved_outside for one in trace.caches) for i in range(len(trace.runs))]
    assert moved == [run.bytes_moved_outside for run in trace.runs]
    for i, whole in enumerate(trace.runs):
        assert sum(one.runs[i].bytes_copied for one in trace.caches) <= whole.bytes_copied
        assert sum(one.runs[i].bytes_written for one in trace.caches) <= whole.bytes_written


# Batches, given caches, and what else may come


def test_padding_takes_rows_that_hold_no_token() -> None:
    trace = kvviz.decode(kvviz.load(STORYTELLER / "concat" / "model.onnx"), [[5, 6, 7, 8], [9]], 3, progress=False)
    for one in trace.caches:
        for number, run in enumerate(one.runs):
            first, second = run.items
            assert first.held == ((0, 4 + number, 0),)
            assert second.held == ((0, 3, NO_TOKEN), (3, 4 + number, 3))
            assert (first.read, second.read) == (((0, 4 + number),), ((3, 4 + number),))
            # The fullest entry counts for rows that are valid, the emptiest for those that are not.
            assert (run.valid, run.stale) == (4 + number, 3)


def test_meters_are_the_same_whenever_they_are_looked_at(tmp_path: Path) -> None:
    for name in ("concat", "merged", "circular", "grouped_window"):
        options: dict[str, Any] = {"growth": "after"} if name == "merged" else {}
        late = decode(name, **options)
        session = DecodeSession(loaded(name), PROMPT, max_new_tokens=COUNT, **{**small(name).options, **options})
        session.on_run_end = lambda session=session: [cache.runs for cache in session.trace.caches]
        early = session.run_to_end()
        late.save(tmp_path / "trace")
        assert late.caches == early.caches == Trace.load(tmp_path / "trace").caches


def test_an_output_with_fewer_axes_than_its_cache_has_no_rows(tmp_path: Path) -> None:
    # A model whose outputs declare no shapes, so that a pair is found that turns out to be none.
    graph = graph_of("""g (float[2, 3, 4] x, float[3, 4] w, int64[3, 4] at) => (float[] y) {
        last, all = Scan <num_scan_inputs = 1, body = b (float[3, 4] s, float[3, 4] p) => (float[3, 4] o, float[3, 4] q)
            { o = Identity(p) q = Neg(p) }> (w, x) y = ScatterElements <axis = -1> (last, at, last) }""")
    feeds = {"x": np.ones((2, 3, 4), np.float32), "w": np.ones((3, 4), np.float32), "at": np.zeros((3, 4), np.int64)}
    trace = kvviz.run(graph, feeds)
    (one,) = trace.caches
    assert one.axis is not None and trace.outputs[one.output].ndim <= one.axis
    (run,) = one.runs
    assert (run.capacity, run.valid, run.items) == (1, 1, ())
    trace.save(tmp_path / "trace")
    assert Trace.load(tmp_path / "trace").caches == [one]


FORMS = ("concat", "gqa", "static_scatter_nd", "tensor_scatter", "merged_if", "attention_24")


@pytest.mark.parametrize("policy", ["ideal", "never"])
@pytest.mark.parametrize("form", FORMS)
def test_every_row_that_a_run_writes_is_written_by_one_of_its_ops(form: str, policy: str) -> None:
    graph = kvviz.load(STORYTELLER / form / "model.onnx")
    trace = kvviz.decode(graph, [1, 77, 108], 4, policy=policy, progress=False)
    for run in trace.runs:
        for one, told in zip(trace.caches, row_steps(trace, run.index), strict=True):
            rows = [row for step in told for span in step.rows for row in range(*span)]
            wrote = {row for item in one.runs[run.index].items for span in item.wrote for row in range(*span)}
            assert sorted(rows) == sorted(wrote) and wrote, (one.name, run.index)
            for step in told:
                # the op stores into the block in which the cache leaves the run
                outs = [out.storage for out in trace.steps[step.step].outs if out.how not in ("view", "passed")]
                assert one.runs[run.index].storage in outs
    if policy == "never" or form not in ("concat", "static_scatter_nd"):
        return
    # the cache of a later layer waits while that of an earlier one has its row
    steps = [told[-1].step for told in row_steps(trace, 2)]
    assert steps == sorted(steps)
    # when the cursor stands between the layers
    between = trace.caches_at(steps[1])
    row = ((4, 5),)
    assert [one.written for one in between] == [row, row, (), (), (), ()]
    assert [one.pending for one in between] == [(), (), row, row, row, row]
    assert [one.written for one in trace.caches_at(steps[0] - 1)] == [()] * 6
    assert [one.pending for one in trace.caches_at(trace.runs[2].last - 1)] == [()] * 6
