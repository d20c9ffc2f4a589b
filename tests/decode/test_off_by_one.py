"""The silent mistake of static caches: a count of valid rows that is not the write index and the rows written.

It is found whichever way it is off, and in no graph that counts right, however it does so.
"""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.caches.cache_warnings import KINDS, CacheWarning, cache_warnings
from tests.decode import small as forms
from tests.decode.small import BACK, COUNTED, HEADS, NAMES, ROWS, Feeds, causal, decoder, each, filled, positions
from tests.graph.build import node

WRONG = KINDS[:3]
SCATTER = "past_key_values.0.{0} {1} write_indices -> present.0.{0}"
BOTH = "write_indices nonpad_kv_seqlen"


def attended(
    inputs: str = COUNTED, outputs: str = "y", controls: str = BOTH, opset: int = 24, **attributes: Any
) -> Any:
    """A static cache with an Attention of these inputs, which are written from row 0 on where no index is given."""
    scatter = SCATTER if "write" in controls else SCATTER.replace(" write_indices", "")
    attention = node("Attention", inputs, outputs, **attributes)
    nodes = [*each(scatter, "TensorScatter", axis=2), *causal(), attention, *BACK]
    return decoder(nodes, ROWS, controls=[f"{name} int64 batch" for name in controls.split()], opset=opset)


def run(proto: Any, feeds: Feeds, past: int | list[int]) -> Trace:
    """One run over caches of which so many rows hold tokens, and the rest is as it was allocated."""
    graph = kvviz.load(proto)
    declared = {value.name for value in graph.inputs}
    given = {name: value for name, value in {**feeds, **filled(ROWS, past)}.items() if name in declared}
    return kvviz.run(graph, given, donate=list(NAMES))


def fed(past: int, new: int, count: int = 0) -> Feeds:
    controls = {"write_indices": np.array([past]), "nonpad_kv_seqlen": np.array([count])}
    return {"input_ids": np.arange(new)[None] % 20, **positions(past, new), **controls}


def told(trace: Trace) -> list[CacheWarning]:
    """What is said about results, once for keys and values."""
    found = [warning for warning in cache_warnings(trace) if warning.kind in WRONG]
    assert {w.kind for w in found if w.cache.endswith("key")} == {w.kind for w in found if w.cache.endswith("value")}
    return [warning for warning in found if warning.cache.endswith("key")]


# -- off by one, both ways --------------------------------------------------------------------------------------------


def named(first: int, stop: int) -> str:
    return f"row {first}" if stop == first + 1 else f"rows {first} to {stop - 1}"


@pytest.mark.parametrize("causal_", [0, 1])
@pytest.mark.parametrize(("past", "new", "off"), [
    *((0, 1, -1), (0, 4, -4), (5, 1, -1), (5, 3, -3), (ROWS - 1, 1, -1), (0, 4, -1), (5, 3, -1)),
    *((0, 1, 1), (5, 1, 1), (5, 3, 1), (5, 1, 6), (0, 4, ROWS - 4)),
])  # fmt: skip
def test_a_count_that_is_off_is_found_and_explained(past: int, new: int, off: int, causal_: int) -> None:
    end = past + new
    (warning,) = told(run(attended(is_causal=causal_), fed(past, new, end + off), past))
    assert warning.kind == ("newest row not attended" if off < 0 else "stale rows attended")
    if off > 0:
        said = f"attention may read {named(end, end + off)} of 0.key (never written)"
        cause = f"'nonpad_kv_seqlen' counts {end + off} rows and {end} of them hold tokens"
        cure = "give the number of rows that hold tokens once the run has written its own"
    elif off == -new:
        said = f"0.key got {named(past, end)}, but 'nonpad_kv_seqlen' counts {past} row"
        cause = "the count was taken before the write"
        cure = f"give 'nonpad_kv_seqlen' = {end}, which is 'write_indices' and the rows written"
    else:
        said = cause = cure = "the count was too small"
    assert said in str(warning) and cause in str(warning) and cure in str(warning)


@pytest.mark.parametrize("shift", [1, -1])
def test_a_write_index_that_is_off_by_one_is_found_too(shift: int) -> None:
    feeds = fed(5, 1, 6) | {"write_indices": np.array([5 + shift])}
    warning, *others = told(run(attended(is_causal=1), feeds, 5))
    # One row too late leaves a gap that is counted, one too early leaves the last row that is counted empty.
    assert warning.kind == "stale rows attended"
    assert "row 5 of 0.key (never written)" in str(warning) and "6 rows and 5 of them hold tokens" in str(warning)
    assert [other.kind for other in others] == (["newest row not attended"] if shift == 1 else [])


def test_of_a_batch_the_entry_that_is_off_is_enough() -> None:
    proto = forms.tensor_scatter().proto
    for counts, kinds in (([4, 7], []), ([4, 6], ["newest row not attended"]), ([5, 7], ["stale rows attended"])):
        feeds: Feeds = {"input_ids": np.array([[3], [4]]), "cache_position": np.array([6])}
        feeds |= {"write_indices": np.array([3, 6]), "nonpad_kv_seqlen": np.array(counts)}
        assert [warning.kind for warning in told(run(proto, feeds, [3, 6]))] == kinds


# -- no false alarm ---------------------------------------------------------------------------------------------------


def in_rows() -> Any:
    """Caches by head, turned into rows of three dimensions for Attention."""
    heads: Feeds = {"q_num_heads": HEADS, "kv_num_heads": HEADS}
    nodes = [
        *each(SCATTER, "TensorScatter", axis=2),
        *each("present.0.{0} -> turned{0}", "Transpose", perm=[0, 2, 1, 3]),
        *each("turned{0} flat -> rows{0}", "Reshape"),
        node("Attention", "q3 rowskey rowsvalue - - - nonpad_kv_seqlen", "y3", is_causal=1, **heads),
    ]
    return decoder(nodes, ROWS, controls=[f"{name} int64 batch" for name in BOTH.split()], opset=24)


RIGHT: dict[str, tuple[Any, Feeds, int]] = {
    "first tokens": (attended(is_causal=1), fed(0, 4, 4), 0),
    "one token": (attended(is_causal=1), fed(5, 1, 6), 5),
    "several tokens": (attended(is_causal=1), fed(5, 3, 8), 5),
    "the last row": (attended(is_causal=1), fed(ROWS - 1, 1, ROWS), ROWS - 1),
    "all rows at once": (attended(is_causal=1), fed(0, ROWS, ROWS), 0),
    "not causal": (attended(), fed(5, 3, 8), 5),
    "a count and a mask of flags": (attended(COUNTED.replace("value -", "value seen")), fed(5, 3, 8), 5),
    "a mask of flags": (attended("q present.0.key present.0.value seen", controls="write_indices"), fed(5, 3), 5),
    "a mask of numbers": (attended("q present.0.key present.0.value bias", controls="write_indices"), fed(5, 1), 5),
    "rows of three dimensions": (in_rows(), fed(5, 2, 7), 5),
    "presents as well": (attended(outputs="y againkey againvalue", is_causal=1), fed(5, 1, 6), 5),
    "no write index": (attended(controls="nonpad_kv_seqlen", is_causal=1), fed(0, 4, 4), 0),
    "a window": (attended(opset=25, is_causal=1, left_window_size=3), fed(9, 1, 10), 9),
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
    proto = attended(is_causal=1)
    assert told(run(proto, fed(5, 1, 6), 12)) == []
    (warning,) = told(run(proto, fed(5, 1, 7), 12))
    assert "row 6 of 0.key (no live token)" in str(warning)


def test_a_circular_cache_that_is_full_counts_its_capacity() -> None:
    one = forms.tensor_scatter("circular", 6)
    for wrong, kinds in ((0, []), (-1, ["newest row not attended"])):
        chunks = [{"input_ids": np.array([[past]]), **one.controls(past, 1)} for past in range(9)]
        chunks[5]["nonpad_kv_seqlen"] += wrong
        found = told(kvviz.stream(kvviz.load(one.proto), chunks, states=filled(6)))
        assert [warning.kind for warning in found] == kinds
        assert [(warning.run, warning.runs) for warning in found] == [(5, 1)] * len(kinds)


def test_the_newest_row_of_a_write_past_the_end_is_the_one_at_the_front() -> None:
    # given: a circular cache of six rows, and two tokens for the last of them and the first
    inputs = "q present.0.key present.0.value seen"
    nodes = [*each(SCATTER, "TensorScatter", axis=2, mode="circular"), node("Attention", inputs, "y"), *BACK]
    controls = ["write_indices int64 batch", "seen bool length 6"]
    graph = kvviz.load(decoder(nodes, 6, controls=controls, opset=24))
    ids = {"input_ids": np.array([[3, 4]]), **positions(5, 2), "write_indices": np.array([5])}
    for hidden, row in ((5, None), (0, 0)):
        seen = np.ones((2, 6), bool)
        seen[:, hidden] = False
        # when one of the two rows is hidden
        trace = kvviz.run(graph, {**ids, "seen": seen, **filled(6, 5)})
        found = [str(warning) for warning in told(trace) if warning.kind == "newest row not attended"]
        # then only that of the second token is missed
        assert ["does not read row 0 of 0.key" in text for text in found] == [True] * (row is not None)
