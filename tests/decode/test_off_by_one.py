"""The silent mistake of static caches: a count of valid rows that is not the write index and the rows written.

It is found whichever way it is off, and in no graph that counts right, however it does so.
"""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.caches.cache_warnings import KINDS, CacheWarning, cache_warnings
from tests.decode.small import (
    HEADS,
    NAMES,
    ROWS,
    SIZE,
    Feeds,
    causal,
    decoder,
    each,
    positions,
    tensor_scatter,
)
from tests.graph.build import node

WRONG = KINDS[:3]
BACK = [node("Transpose", "y", "yt", perm=[0, 2, 1, 3]), node("Reshape", "yt flat", "y3")]
SCATTER = "past_key_values.0.{0} {1} write_indices -> present.0.{0}"
BOTH = "write_indices nonpad_kv_seqlen"
COUNTED = "q present.0.key present.0.value - - - nonpad_kv_seqlen"


def static(nodes: list[Any], controls: str = "", opset: int = 24, **more: Any) -> Any:
    """A decoder whose caches have all of their rows from the start."""
    given = [f"{name} int64 batch" for name in controls.split()]
    return decoder(nodes, ROWS, controls=given, opset=opset, **more)


def scattered(mask: str = "-", count: str = "nonpad_kv_seqlen", opset: int = 24, **attributes: Any) -> Any:
    """TensorScatter and an Attention with a count, a mask, or both."""
    inputs = f"q present.0.key present.0.value {mask} - - {count}"
    nodes = [*each(SCATTER, "TensorScatter", axis=2), *causal()[:-1], node("Attention", inputs, "y", **attributes)]
    return static([*nodes, *BACK], BOTH, opset)


def run(proto: Any, feeds: Feeds, past: int | list[int], batch: int = 1) -> Trace:
    """One run over caches of which so many rows hold tokens, and the rest is as it was allocated."""
    lengths = [past] * batch if isinstance(past, int) else past
    caches: Feeds = {name: np.zeros((batch, HEADS, ROWS, SIZE), np.float32) for name in NAMES}
    for name, cache in caches.items():
        for entry, rows in enumerate(lengths):
            cache[entry, :, :rows] = np.random.default_rng(len(name)).standard_normal((HEADS, rows, SIZE))
    graph = kvviz.load(proto)
    declared = {value.name for value in graph.inputs}
    given = {name: value for name, value in {**feeds, **caches}.items() if name in declared}
    return kvviz.run(graph, given, donate=list(NAMES))


def fed(past: int, new: int, count: int | None = None, **more: Any) -> Feeds:
    valid = {} if count is None else {"nonpad_kv_seqlen": np.array([count])}
    ids = {"input_ids": np.arange(new)[None] % 20, **positions(past, new)}
    return {**ids, "write_indices": np.array([past]), **valid, **more}


def told(trace: Trace) -> list[CacheWarning]:
    """What is said about results, once for keys and values."""
    found = [warning for warning in cache_warnings(trace) if warning.kind in WRONG]
    assert {w.kind for w in found if w.cache.endswith("key")} == {w.kind for w in found if w.cache.endswith("value")}
    return [warning for warning in found if warning.cache.endswith("key")]


# -- off by one, both ways --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal_", [0, 1])
@pytest.mark.parametrize(("past", "new"), [(0, 1), (0, 4), (5, 1), (5, 3), (ROWS - 1, 1)])
def test_a_count_from_before_the_write_is_found_and_explained(past: int, new: int, causal_: int) -> None:
    trace = run(scattered(is_causal=causal_), fed(past, new, past), past)
    (warning,) = told(trace)
    assert warning.kind == "newest row not attended"
    rows = f"row {past}" if new == 1 else f"rows {past} to {past + new - 1}"
    assert f"0.key got {rows}, but 'nonpad_kv_seqlen' counts {past} row" in str(warning)
    assert "the count was taken before the write" in str(warning)
    assert f"give 'nonpad_kv_seqlen' = {past + new}, which is 'write_indices' and the rows written" in str(warning)
    # The advice helps.
    assert not told(run(scattered(is_causal=causal_), fed(past, new, past + new), past))
    if new > 1:
        # A count that is one short is found, too.
        (warning,) = told(run(scattered(is_causal=causal_), fed(past, new, past + new - 1), past))
        assert warning.kind == "newest row not attended" and "the count was too small" in str(warning)


@pytest.mark.parametrize(("past", "new", "more"), [(0, 1, 1), (5, 1, 1), (5, 3, 1), (5, 1, 6), (0, 4, ROWS - 4)])
def test_a_count_that_is_too_large_is_found_and_explained(past: int, new: int, more: int) -> None:
    (warning,) = told(run(scattered(is_causal=1), fed(past, new, past + new + more), past))
    assert warning.kind == "stale rows attended"
    rows = f"row {past + new}" if more == 1 else f"rows {past + new} to {past + new + more - 1}"
    assert f"attention may read {rows} of 0.key (never written)" in str(warning)
    assert f"'nonpad_kv_seqlen' counts {past + new + more} rows and {past + new} of them hold tokens" in str(warning)
    assert "give the number of rows that hold tokens once the run has written its own" in str(warning)


@pytest.mark.parametrize("shift", [1, -1])
def test_a_write_index_that_is_off_by_one_is_found_too(shift: int) -> None:
    feeds = fed(5, 1, 6) | {"write_indices": np.array([5 + shift])}
    warning, *others = told(run(scattered(is_causal=1), feeds, 5))
    # One row too late leaves a gap that is counted, one too early leaves the last row that is counted empty.
    assert warning.kind == "stale rows attended"
    assert "row 5 of 0.key (never written)" in str(warning) and "6 rows and 5 of them hold tokens" in str(warning)
    assert [other.kind for other in others] == (["newest row not attended"] if shift == 1 else [])


def test_of_a_batch_the_entry_that_is_off_is_enough() -> None:
    proto = tensor_scatter().proto
    for counts, kinds in (([4, 7], []), ([4, 6], ["newest row not attended"]), ([5, 7], ["stale rows attended"])):
        feeds: Feeds = {"input_ids": np.array([[3], [4]]), "cache_position": np.array([6])}
        feeds |= {"write_indices": np.array([3, 6]), "nonpad_kv_seqlen": np.array(counts)}
        assert [warning.kind for warning in told(run(proto, feeds, [3, 6], 2))] == kinds


# -- no false alarm ---------------------------------------------------------------------------------------------------


def attended(inputs: str, outputs: str = "y", controls: str = "write_indices", **attributes: Any) -> Any:
    """A static cache with an Attention of these inputs, which are written from row 0 on where no index is given."""
    scatter = each(SCATTER.replace(" write_indices", "" if "write" not in controls else " write_indices"),
                   "TensorScatter", axis=2)  # fmt: skip
    return static([*scatter, *causal(), node("Attention", inputs, outputs, **attributes), *BACK], controls)


def in_rows() -> Any:
    """Caches by head, turned into rows of three dimensions for Attention."""
    nodes = [
        *each(SCATTER, "TensorScatter", axis=2),
        *each("present.0.{0} -> turned{0}", "Transpose", perm=[0, 2, 1, 3]),
        *each("turned{0} flat -> rows{0}", "Reshape"),
        node(
            "Attention", "q3 rowskey rowsvalue - - - nonpad_kv_seqlen", "y3", is_causal=1, q_num_heads=HEADS,
            kv_num_heads=HEADS,
        ),
    ]  # fmt: skip
    return static(nodes, BOTH)


RIGHT: dict[str, tuple[Any, Feeds, int]] = {
    "first tokens": (scattered(is_causal=1), fed(0, 4, 4), 0),
    "one token": (scattered(is_causal=1), fed(5, 1, 6), 5),
    "several tokens": (scattered(is_causal=1), fed(5, 3, 8), 5),
    "the last row": (scattered(is_causal=1), fed(ROWS - 1, 1, ROWS), ROWS - 1),
    "all rows at once": (scattered(is_causal=1), fed(0, ROWS, ROWS), 0),
    "not causal": (scattered(), fed(5, 3, 8), 5),
    "a count and a mask of flags": (scattered("seen"), fed(5, 3, 8), 5),
    "a mask of flags": (attended("q present.0.key present.0.value seen"), fed(5, 3), 5),
    "a mask of numbers": (attended("q present.0.key present.0.value bias"), fed(5, 1), 5),
    "rows of three dimensions": (in_rows(), fed(5, 2, 7), 5),
    "presents as well": (attended(COUNTED, "y againkey againvalue", BOTH, is_causal=1), fed(5, 1, 6), 5),
    "no write index": (attended(COUNTED, controls="nonpad_kv_seqlen", is_causal=1), fed(0, 4, 4), 0),
    "a window": (scattered(opset=25, is_causal=1, left_window_size=3), fed(9, 1, 10), 9),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_graph_that_counts_right_is_not_blamed(name: str) -> None:
    proto, feeds, past = RIGHT[name]
    trace = run(proto, feeds, past)
    assert told(trace) == []
    cache = trace.caches[0]
    # It was judged, and not passed over.
    assert cache.runs[0].items and cache.runs[0].items[0].read is not None
    assert cache.runs[0].valid == past + feeds["input_ids"].shape[1]


def test_left_over_rows_that_are_not_counted_are_no_alarm() -> None:
    # given a cache that was used for a longer text before
    proto, graph_feeds = scattered(is_causal=1), fed(5, 1, 6)
    trace = run(proto, graph_feeds, 12)
    assert told(trace) == []
    (warning,) = told(run(proto, fed(5, 1, 7), 12))
    assert "row 6 of 0.key (no live token)" in str(warning)


def test_a_circular_cache_that_is_full_counts_its_capacity() -> None:
    proto = tensor_scatter("circular", 6).proto
    states: Feeds = {name: np.zeros((1, HEADS, 6, SIZE), np.float32) for name in NAMES}
    for wrong, kinds in ((0, []), (-1, ["newest row not attended"])):
        chunks: list[Feeds] = []
        for past in range(9):
            count = min(past + 1, 6) + (wrong if past == 5 else 0)
            chunks.append({"input_ids": np.array([[past]]), **positions(past, 1), "write_indices": np.array([past]),
                           "nonpad_kv_seqlen": np.array([count])})  # fmt: skip
        trace = kvviz.stream(kvviz.load(proto), chunks, states={n: x.copy() for n, x in states.items()})
        found = told(trace)
        assert [warning.kind for warning in found] == kinds
        assert [(warning.run, warning.runs) for warning in found] == [(5, 1)] * len(kinds)


def test_the_newest_row_of_a_write_past_the_end_is_the_one_at_the_front() -> None:
    # given: a circular cache of six rows, and two tokens for the last of them and the first
    inputs = "q present.0.key present.0.value seen"
    nodes = [*each(SCATTER, "TensorScatter", axis=2, mode="circular"), node("Attention", inputs, "y"), *BACK]
    controls = ["write_indices int64 batch", "seen bool length 6"]
    graph = kvviz.load(decoder(nodes, 6, controls=controls, opset=24))
    caches = {name: np.ones((1, HEADS, 6, SIZE), np.float32) for name in NAMES}
    for name in NAMES:
        caches[name][:, :, 5] = 0
    ids = {"input_ids": np.array([[3, 4]]), **positions(5, 2), "write_indices": np.array([5])}
    for hidden, row in ((5, None), (0, 0)):
        seen = np.ones((2, 6), bool)
        seen[:, hidden] = False
        # when one of the two rows is hidden
        trace = kvviz.run(graph, {**ids, "seen": seen, **{name: array.copy() for name, array in caches.items()}})
        found = [str(warning) for warning in told(trace) if warning.kind == "newest row not attended"]
        # then only that of the second token is missed
        assert ["does not read row 0 of 0.key" in text for text in found] == [True] * (row is not None)
