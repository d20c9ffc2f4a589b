"""Rows that the attention of onnxruntime's encoder operators reads, for every form of their masks."""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from tests.decode.small import MS, ROWS, Feeds, attend, scatter_elements
from tests.engine.graphs import numbers, ort_run
from tests.graph.build import model, node

BATCH, HEADS, SIZE, PAST, NEW = 2, 2, 8, 4, 3
KEYS, WIDTH = PAST + NEW, HEADS * SIZE
FLAGS = np.array([[1, 0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0]], np.int32)
SQUARE = np.repeat(FLAGS[:, None], NEW, 1)
SQUARE[0, :, 2], SQUARE[1, 1, 1] = 0, 1


def multi_head(shape: str) -> Any:
    names = "q k v - mask - past_key past_value"
    nodes = [node("MultiHeadAttention", names, "y present_key present_value", domain=MS, num_heads=HEADS)]
    rows = f"{BATCH} {HEADS} {{}} {SIZE}"
    inputs = [f"{one} float {BATCH} {NEW} {WIDTH}" for one in "qkv"] + [f"mask int32 {shape}"]
    inputs += [f"past_{kind} float {rows.format('past')}" for kind in ("key", "value")]
    outputs = [f"y float {BATCH} {NEW} {WIDTH}"]
    outputs += [f"present_{kind} float {rows.format('total')}" for kind in ("key", "value")]
    return model(nodes, inputs, outputs, domains=[MS])


def packed(shape: str) -> Any:
    """The older Attention, which projects itself and keeps keys and values in one block."""
    nodes = [node("Attention", "x w b mask past", "y present", domain=MS, num_heads=HEADS)]
    inputs = [f"x float {BATCH} {NEW} {WIDTH}", f"mask int32 {shape}", f"past float 2 {BATCH} {HEADS} past {SIZE}"]
    outputs = [f"y float {BATCH} {NEW} {WIDTH}", f"present float 2 {BATCH} {HEADS} total {SIZE}"]
    weights: Feeds = {"w": numbers(WIDTH, 3 * WIDTH, seed=5), "b": numbers(3 * WIDTH, seed=6)}
    return model(nodes, inputs, outputs, domains=[MS], **weights)


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
    "flags": (multi_head, "2 keys", FLAGS),
    "flags by query": (multi_head, "2 3 keys", SQUARE),
    "counts and starts": (multi_head, "8", np.array([6, 3, 0, 3, 6, 0, 7, 14], np.int32)),
    "counts, packed": (packed, "2", np.array([6, 3], np.int32)),
    "ends and starts, packed": (packed, "4", np.array([7, 6, 1, 3], np.int32)),
    "flags, packed": (packed, "2 keys", FLAGS),
    "flags by query, packed": (packed, "2 3 keys", SQUARE),
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


CUTS: dict[str, tuple[str, str, Feeds, int, set[int]]] = {
    "a part of it": ("Slice", "present_{} from to rows", {}, 5, {1, 2, 4, 5}),
    "rows ahead": ("Concat", "sink present_{}", {"axis": 2}, KEYS + 2, {1, 2, 3, 4, 5, 6}),
    "rows behind": ("Concat", "present_{} sink", {"axis": 2}, KEYS + 2, {0, 1, 3, 4, 5, 6}),
}


@pytest.mark.parametrize("case", CUTS)
def test_rows_keep_their_numbers_where_attention_gets_a_part_of_a_cache_or_more_than_it(case: str) -> None:
    # given keys that are a part of a cache's rows, or these and two more, and a mask that hides the third key
    op, names, attributes, keys, expected = CUTS[case]
    nodes = []
    for kind in ("key", "value"):
        nodes.append(node("Concat", f"past_{kind} {kind[0]}", f"present_{kind}", axis=2))
        nodes.append(node(op, names.format(kind), f"all_{kind}", **attributes))
    nodes += attend("all_key", "all_value", "mask")[:6]
    shape = f"float {BATCH} {HEADS} {{}} {SIZE}"
    inputs = [*(f"{one} {shape.format(NEW)}" for one in "qkv"), f"mask float {keys}"]
    inputs += [f"past_{kind} {shape.format('past')}" for kind in ("key", "value")]
    outputs = [f"y {shape.format(NEW)}", *(f"present_{kind} {shape.format('total')}" for kind in ("key", "value"))]
    ends: Feeds = {"from": np.array([1]), "to": np.array([6]), "rows": np.array([2])}
    weights: Feeds = {**ends, "sink": numbers(BATCH, HEADS, 2, SIZE), "scale": np.float32(1)}
    proto = model(nodes, inputs, outputs, **weights)
    feeds = feeds_of(proto, np.where(np.arange(keys) == 2, -1e9, 0).astype(np.float32))
    # when it runs
    trace = kvviz.run(kvviz.load(proto), feeds)
    # then all other rows of the cache are read, of the past just those that count for onnxruntime
    assert rows_read(trace) == [expected] * BATCH
    assert rows_that_count(proto, feeds) == [expected & set(range(PAST))] * BATCH
