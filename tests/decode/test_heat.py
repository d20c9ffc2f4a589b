"""Caches row by row for a picture: states of rows, and the attention that a query gave to them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.caches.cache_heat import OUTSIDE, READ, RESERVED, STALE, VALID, WRAPPED, WRITTEN, Heat, attention, heat
from kvviz.errors import ReplayError
from tests.decode.small import DECODERS, HEADS, ROWS, SIZE, WINDOW, Small, grouped, projected, small, tensor_scatter
from tests.graph.build import MODELS, value

PROMPT, COUNT = [3, 7, 1, 9], 9
TOTAL = len(PROMPT) + COUNT - 1


def decode(one: Small, **options: Any) -> Trace:
    return kvviz.decode(kvviz.load(one.proto), PROMPT, COUNT, progress=False, **{**one.options, **options})


def shown(trace: Trace, run: int) -> Heat:
    found = heat(trace, trace.caches[0], run)
    assert found is not None
    return found


def states(trace: Trace, run: int) -> list[int]:
    """States of the rows, which are alike for all heads."""
    found = shown(trace, run).states
    assert found.dtype == np.uint8 and found.shape == (HEADS, trace.caches[0].runs[run].capacity)
    assert (found == found[0]).all()
    return [int(state) for state in found[0]]


# States of rows


def test_rows_beyond_a_window_are_stale_or_valid_outside_of_it_and_nothing_wraps() -> None:
    trace = decode(small("grouped_window"))
    last = states(trace, COUNT - 1)
    assert not any(state & WRAPPED for run in range(COUNT) for state in states(trace, run))
    assert all(state & 3 == VALID for state in last[:WINDOW]) and last[WINDOW:] == [STALE] * 2
    trace = decode(grouped(local_window_size=WINDOW))
    last = states(trace, COUNT - 1)
    assert last == [VALID | OUTSIDE] * (TOTAL - WINDOW) + [VALID | READ] * (WINDOW - 1) + [VALID | READ | WRITTEN]
    assert trace.caches[0].runs[-1].rows_read == WINDOW


@pytest.mark.parametrize("name", DECODERS)
def test_the_states_say_what_the_meter_counts(name: str, tmp_path: Path) -> None:
    trace = decode(small(name))
    trace.save(tmp_path / "trace")
    loaded = Trace.load(tmp_path / "trace")
    for cache, other in zip(trace.caches, loaded.caches, strict=True):
        for number, run in enumerate(cache.runs):
            found, again = heat(trace, cache, number), heat(loaded, other, number)
            assert found is not None and again is not None
            row = found.states[0]
            assert (row & 3 == VALID).sum() == run.valid and (row & 3 == STALE).sum() == run.stale
            assert (row & WRITTEN != 0).sum() == run.rows_written and (row & READ != 0).sum() == run.rows_read
            assert (row & 3 == RESERVED).sum() == run.capacity - run.valid - run.stale
            assert ((found.positions >= 0) == (row & 3 == VALID)).all()
            np.testing.assert_array_equal(found.states, again.states)
            np.testing.assert_array_equal(found.positions, again.positions)


def test_a_state_has_no_rows_to_show() -> None:
    graph = kvviz.load(MODELS / "o08_silero_vad_sequence" / "model.onnx")
    trace = kvviz.stream(graph, [{"input": np.zeros((4, 576), np.float32)}])
    assert all(heat(trace, cache, 0) is None for cache in trace.caches)


# Attention


def expected(tokens: list[int], query: int, seen: range) -> np.ndarray:
    """Probabilities of one query by head, straight from the weights."""
    q, k = (projected(tokens, name) for name in ("Wq", "Wk"))
    scores = np.einsum("hs,ths->ht", q[query], k) * SIZE**-0.5
    scores[:, [t not in seen for t in range(len(tokens))]] = -np.inf
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("name", ["concat", "merged", "scatter_nd", "scatter_elements", "window"])
@pytest.mark.parametrize("run", [0, 2, COUNT - 1])
def test_the_attention_of_a_query_falls_on_the_rows_of_its_tokens(name: str, run: int) -> None:
    trace = decode(small(name))
    tokens = (PROMPT + trace.tokens)[: len(PROMPT) + run]
    for cache in trace.caches:
        found = attention(trace, cache, run)
        assert found is not None and found.dtype == np.float32
        assert found.shape == (HEADS, cache.runs[run].capacity)
        last = len(tokens) - 1
        want = expected(tokens, last, range(max(0, last - WINDOW + 1 if name == "window" else 0), last + 1))
        places = shown(trace, run).positions
        for row, position in enumerate(places):
            np.testing.assert_allclose(found[:, row], want[:, position] if position >= 0 else 0, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


def test_any_query_of_a_prompt_may_be_asked_for() -> None:
    trace = decode(small("concat"))
    for query in range(len(PROMPT)):
        found = attention(trace, trace.caches[0], 0, query)
        assert found is not None
        np.testing.assert_allclose(found, expected(PROMPT, query, range(query + 1)), rtol=1e-4, atol=1e-5)
    assert attention(trace, trace.caches[0], 0, len(PROMPT)) is None


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_scores_of_attention_become_probabilities_from_every_stage(mode: int) -> None:
    one = tensor_scatter(outputs="y - - qk", qk_matmul_output_mode=mode)
    # A value that nobody takes is gone before it can be read.
    one.proto.graph.output.append(value(f"qk float batch {HEADS} length {ROWS}"))
    trace = decode(one)
    want = expected((PROMPT + trace.tokens)[: len(PROMPT) + 3], len(PROMPT) + 2, range(len(PROMPT) + 3))
    found = attention(trace, trace.caches[0], 3)
    assert found is not None
    np.testing.assert_allclose(found[:, : want.shape[1]], want, rtol=1e-4, atol=1e-5)
    assert not found[:, want.shape[1] :].any()


def test_attention_inside_of_an_operator_or_of_a_saved_trace_is_not_guessed(tmp_path: Path) -> None:
    for name in ("attention", "grouped", "multi_head", "tensor_scatter"):
        trace = decode(small(name))
        assert attention(trace, trace.caches[0], 1) is None
    decode(small("concat")).save(tmp_path / "trace")
    trace = Trace.load(tmp_path / "trace")
    with pytest.raises(ReplayError, match="attention was not recorded"):
        attention(trace, trace.caches[0], 1)
