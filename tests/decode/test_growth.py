"""How growing caches get their room: at the start, or by the caller after a run as rten-generate does it."""

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


def test_inputs_that_every_run_is_fed_cannot_be_donated() -> None:
    graph = form("concat")
    trace = kvviz.decode(graph, FIVE, 3, donate=["input_ids", "attention_mask"], progress=False)
    assert trace.tokens == decode(FIVE, 3).tokens
    mask = np.ones((1, 5), np.int64)
    with pytest.raises(InputError, match="cannot donate 'attention_mask': every run is fed the same array"):
        kvviz.decode(graph, FIVE, 1, inputs={"attention_mask": mask}, donate=["attention_mask"], progress=False)
    with pytest.raises(InputError, match="cannot donate 'mask': the graph has no such input"):
        kvviz.decode(graph, FIVE, 1, donate="mask", progress=False)
