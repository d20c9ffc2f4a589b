"""How growing caches get their room: at the start, or by the caller after a run as rten-generate does it."""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.errors import InputError
from tests.decode.test_decode import TOKENS, decode, form

# One past that every run makes longer; the token decides nothing.
FIVE = TOKENS[:5]


def capacities(trace: Trace) -> list[int]:
    """Rows of the block that each run finds its first cache in."""
    cache = trace.caches[0]
    found = []
    for frame in trace.log.frames:
        for bound in frame.bindings if frame.parent is None else ():
            if bound.name == cache.input:
                shape = [n for axis, n in enumerate(bound.shape or ()) if axis != cache.axis]
                row = int(np.prod(shape)) * np.dtype(bound.dtype).itemsize
                found.append(trace.storages[bound.storage].capacity // row)
    return found


def test_a_cache_that_is_full_doubles_after_the_run() -> None:
    """The rule of rten-generate (commit c7f7bad9): a prompt of 5 tokens gives 5 rows, then blocks of 10 and 20."""
    trace = decode(FIVE, 9, growth="after")
    assert capacities(trace) == [1, 10, 10, 10, 10, 10, 20, 20, 20]
    moved = {run.index: run.bytes_moved_outside for run in trace.runs if run.bytes_moved_outside}
    row = trace.outputs["present.0.key"][:, :, :1].nbytes
    assert moved == {0: 5 * row * len(trace.caches), 5: 10 * row * len(trace.caches)}


@pytest.mark.parametrize("name", ["concat", "attention_23", "gqa", "merged_if"])
@pytest.mark.parametrize("capacity", [None, 16])
def test_the_way_of_growing_changes_no_token(name: str, capacity: int | None) -> None:
    plain, grown = decode(FIVE, 9, name), decode(FIVE, 9, name, growth="after", kv_capacity=capacity, poison=True)
    assert grown.tokens == plain.tokens
    for first, second in zip(plain.logits, grown.logits, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-5)


def test_what_the_caller_moves_is_counted_apart_from_what_kernels_copy() -> None:
    plain, grown = decode(FIVE, 9), decode(FIVE, 9, growth="after")
    pasts = [sum(run.bytes_copied for run in cache.runs) for cache in (plain.caches[0], grown.caches[0])]
    assert pasts[0] > 0 and pasts[1] == 0
    assert sum(run.bytes_copied for run in grown.runs) == grown.bytes_copied < plain.bytes_copied
    for cache in grown.caches:
        outside = [run.bytes_moved_outside for run in cache.runs]
        assert outside[0] and outside[5] and sum(map(bool, outside)) == 2
    per_run = [sum(cache.runs[i].bytes_moved_outside for cache in grown.caches) for i in range(9)]
    assert per_run == [run.bytes_moved_outside for run in grown.runs]


def test_a_merged_decoder_keeps_its_room_only_if_it_grows_after_the_run() -> None:
    at_start, after = (decode(FIVE, 6, "merged_if", kv_capacity=32, growth=way) for way in ("start", "after"))
    assert all(run.bytes_copied for run in at_start.caches[0].runs[1:])
    assert not any(run.bytes_copied for run in after.caches[0].runs)


def test_the_policy_says_how_caches_grow_unless_the_caller_does() -> None:
    assert capacities(decode(FIVE, 2, policy="rten")) == [1, 10]
    assert capacities(decode(FIVE, 2, policy="rten", growth="start", kv_capacity=8)) == [8, 8]
    assert capacities(decode(FIVE, 2)) == [0, 5]
    with pytest.raises(InputError, match="growth must be 'start' or 'after', not 'never'"):
        decode(FIVE, 2, growth="never")


def test_a_capacity_that_is_too_small_is_an_error_only_at_the_start() -> None:
    with pytest.raises(InputError, match="prompt and new tokens need 13"):
        decode(FIVE, 9, kv_capacity=8)
    assert decode(FIVE, 9, kv_capacity=8, growth="after").tokens == decode(FIVE, 9).tokens


def test_bytes_moved_outside_survive_saving(tmp_path: Any) -> None:
    trace = decode(FIVE, 7, growth="after")
    trace.save(tmp_path / "trace")
    loaded = Trace.load(tmp_path / "trace")
    assert loaded.runs == trace.runs and loaded.caches == trace.caches


def test_inputs_that_every_run_is_fed_cannot_be_donated() -> None:
    graph = form("concat")
    trace = kvviz.decode(graph, FIVE, 3, donate=["input_ids", "attention_mask"], progress=False)
    assert trace.tokens == decode(FIVE, 3).tokens
    mask = np.ones((1, 5), np.int64)
    with pytest.raises(InputError, match="cannot donate 'attention_mask': every run is fed the same array"):
        kvviz.decode(graph, FIVE, 1, inputs={"attention_mask": mask}, donate=["attention_mask"], progress=False)
    with pytest.raises(InputError, match="cannot donate 'mask': the graph has no such input"):
        kvviz.decode(graph, FIVE, 1, donate="mask", progress=False)


@pytest.mark.parametrize("growth", ["start", "after"])
def test_caches_to_start_from_may_be_given_away(growth: str) -> None:
    part = decode(TOKENS, 3)
    caches = {cache.input: part.outputs[cache.output] for cache in part.caches}
    given = {name: kvviz.reserve(array, 2, 40) for name, array in caches.items()}
    rest = decode(part.tokens[-1:], 5, inputs=given, donate=list(given), growth=growth)
    assert part.tokens + rest.tokens == decode(TOKENS, 8).tokens
    assert not any(run.bytes_copied for run in rest.caches[0].runs)
