"""Rows that the attention of onnxruntime's encoder operators reads, for every form of their masks."""

from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz import Trace
from tests.decode.small import ROWS, Feeds, attend, scatter_elements
from tests.engine.graphs import numbers, ort_run, proto_of
from tests.graph.build import node

BATCH, HEADS, SIZE, PAST, NEW = 2, 2, 8, 4, 3
KEYS, WIDTH = PAST + NEW, HEADS * SIZE
FLAGS = np.array([[1, 0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0]], np.int32)
SQUARE = np.repeat(FLAGS[:, None], NEW, 1)
SQUARE[0, :, 2], SQUARE[1, 1, 1] = 0, 1


def multi_head(shape: str) -> Any:
    past, present = (f"float[{BATCH},{HEADS},{rows},{SIZE}]" for rows in ("past", "total"))
    flat = f"float[{BATCH},{NEW},{WIDTH}]"
    return proto_of(f"""g ({flat} q, {flat} k, {flat} v, int32[{shape}] mask, {past} past_key, {past} past_value)
        => ({flat} y, {present} present_key, {present} present_value) {{ y, present_key, present_value =
        com.microsoft.MultiHeadAttention <num_heads = {HEADS}> (q, k, v, , mask, , past_key, past_value) }}""")


def packed(shape: str) -> Any:
    """The older Attention, which projects itself and keeps keys and values in one block."""
    past, present = (f"float[2,{BATCH},{HEADS},{rows},{SIZE}]" for rows in ("past", "total"))
    flat, width = f"float[{BATCH},{NEW},{WIDTH}]", 3 * WIDTH
    return proto_of(f"""g ({flat} x, float[{WIDTH},{width}] w, float[{width}] b, int32[{shape}] mask, {past} past)
        => ({flat} y, {present} present)
        {{ y, present = com.microsoft.Attention <num_heads = {HEADS}> (x, w, b, mask, past) }}""")


def feeds_of(proto: Any, mask: np.ndarray) -> Feeds:
    feeds: Feeds = {"mask": mask}
    for value in proto.graph.input:
        dims = [PAST if d.dim_param else d.dim_value for d in value.type.tensor_type.shape.dim]
        feeds.setdefault(value.name, numbers(*dims, seed=len(feeds)))
    return feeds


def rows_read(trace: Trace) -> list[set[int]]:
    """Rows by batch entry, of the first cache."""
    (run,) = trace.caches[0].runs
    spans = [item.read for item in run.items] * (BATCH if len(run.items) == 1 else 1)
    assert None not in spans
    return [{row for start, stop in read or () for row in range(start, stop)} for read in spans]


def rows_that_count(proto: Any, feeds: Feeds) -> list[set[int]]:
    """Rows of the past whose change changes what onnxruntime attends to."""
    (plain,) = ort_run(proto, feeds, ["y"])
    found: list[set[int]] = [set() for _ in range(BATCH)]
    for name in (name for name in feeds if name.startswith("past")):
        for row in range(PAST):
            array = feeds[name].copy()
            array[..., row, :] += 3
            (other,) = ort_run(proto, {**feeds, name: array}, ["y"])
            for entry in range(BATCH):
                if np.abs(other[entry] - plain[entry]).max() > 1e-4:
                    found[entry].add(row)
    return found


CASES = {
    "counts": (multi_head, "2", np.array([5, 3], np.int32)),
    "flags": (multi_head, "2,keys", FLAGS),
    "flags by query": (multi_head, "2,3,keys", SQUARE),
    "counts and starts": (multi_head, "8", np.array([6, 3, 0, 3, 6, 0, 7, 14], np.int32)),
    "counts, packed": (packed, "2", np.array([6, 3], np.int32)),
    "ends and starts, packed": (packed, "4", np.array([7, 6, 1, 3], np.int32)),
    "flags, packed": (packed, "2,keys", FLAGS),
    "flags by query, packed": (packed, "2,3,keys", SQUARE),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_that_a_padding_mask_hides_are_not_read(case: str) -> None:
    # given an operator of which a mask hides some rows of the past
    make, shape, mask = CASES[case]
    proto = make(shape)
    feeds = feeds_of(proto, mask)
    # when it runs
    trace = kvviz.run(kvviz.load(proto), feeds)
    # then the rows of the past that are read are those that count for onnxruntime
    expected = rows_that_count(proto, feeds)
    assert [rows & set(range(PAST)) for rows in rows_read(trace)] == expected
    assert any(0 < len(rows) < PAST for rows in expected)


HIDING = {
    "the scores where they are seen": [node("Where", "seen scaled hide", "scores")],
    "a low number where they are not": [node("Not", "seen", "unseen"), node("Where", "unseen hide scaled", "scores")],
    "a high number taken off": [node("Where", "seen nothing high", "off"), node("Sub", "scaled off", "scores")],
    "scores taken off a low number": [node("Mul", "scaled minus", "less"), node("Sub", "bias less", "scores")],
}
SHOWING = {
    "a high number added": [node("Where", "seen nothing high", "bonus"), node("Add", "scaled bonus", "scores")],
    "a number that hides nothing": [node("Where", "seen scaled nothing", "scores")],
}


@pytest.mark.parametrize("case", [*HIDING, *SHOWING])
def test_a_choice_between_scores_and_a_number_hides_rows_where_the_number_is_low_enough(case: str) -> None:
    # given a static cache of which a Where puts a number in place of the scores of later rows
    chosen = (HIDING | SHOWING)[case]
    nodes = [one for one in attend() if "scores" not in one.output]
    place = next(number for number, one in enumerate(nodes) if "scores" in one.input)
    nodes[place:place] = chosen
    numbers_used = {"high": np.float32(1e9), "minus": np.float32(-1)}
    one = scatter_elements(attention=nodes, **numbers_used)
    # when tokens are made
    trace = kvviz.decode(kvviz.load(one.proto), [3, 7, 1, 9], 4, progress=False)
    # then the rows of later tokens are read only where they have a weight
    for cache in trace.caches:
        assert [run.rows_read for run in cache.runs] == [4 + run if case in HIDING else ROWS for run in range(4)]


CUTS: dict[str, tuple[str, int, set[int]]] = {
    "a part of it": ("Slice ({}, from, to, rows)", 5, {1, 2, 4, 5}),
    "rows ahead": ("Concat <axis = 2> (sink, {})", KEYS + 2, {1, 2, 3, 4, 5, 6}),
    "rows behind": ("Concat <axis = 2> ({}, sink)", KEYS + 2, {0, 1, 3, 4, 5, 6}),
}


@pytest.mark.parametrize("case", CUTS)
def test_rows_keep_their_numbers_where_attention_gets_a_part_of_a_cache_or_more_than_it(case: str) -> None:
    # given keys that are a part of a cache's rows, or these and two more, and a mask that hides the third key
    cut, keys, expected = CUTS[case]
    new, past, all_ = (f"float[{BATCH},{HEADS},{rows},{SIZE}]" for rows in (NEW, "past", "total"))
    proto = proto_of(f"""g ({new} q, {new} k, {new} v, {past} past_key, {past} past_value, float[{keys}] mask)
        => ({new} y, {all_} present_key, {all_} present_value)
        <int64[1] from = {{1}}, int64[1] to = {{6}}, int64[1] rows = {{2}}> {{
        present_key = Concat <axis = 2> (past_key, k)  present_value = Concat <axis = 2> (past_value, v)
        keys = {cut.format("present_key")}  values = {cut.format("present_value")}
        turned = Transpose <perm = [0, 1, 3, 2]> (keys)  raw = MatMul (q, turned)  scores = Add (raw, mask)
        weights = Softmax (scores)  y = MatMul (weights, values) }}""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(numbers(BATCH, HEADS, 2, SIZE), "sink"))
    feeds = feeds_of(proto, np.where(np.arange(keys) == 2, -1e9, 0).astype(np.float32))
    # when it runs
    trace = kvviz.run(kvviz.load(proto), feeds)
    # then all other rows of the cache are read, of the past just those that count for onnxruntime
    assert rows_read(trace) == [expected] * BATCH
    assert rows_that_count(proto, feeds) == [expected & set(range(PAST))] * BATCH
