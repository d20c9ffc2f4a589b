"""Two orders of one graph: what moved, which hazards that breaks, and where the numbers part.

Expected pairs: a second implementation, which looks at tensors and not at a trace (`swapped_pairs`);
expected steps: the bytes of both runs.
"""

import random
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.explain.difference import align, order_change, value_change
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.op_effects import effects
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.order.what_if import Reordered, reorder
from kvviz.trace.schema.regions import Level, overlap
from kvviz.view.page_data.payload_lanes import MOST_BROKEN, lane_header
from kvviz.widget import Pair
from kvviz.widget.pair_widget import pair_labels
from tests.ggml.seed_graphs import SEEDS

DATA = Path(__file__).parents[1] / "data" / "ggml"
STORY = Path(__file__).parents[2] / "assets" / "models" / "storyteller" / "concat" / "model.onnx"


def legal_order(graph: ComputeGraph, seed: int) -> list[int]:
    """An order that the declared edges allow, by chance."""
    chance, places = random.Random(seed), {node: i for i, node in enumerate(graph.nodes)}
    waits = [{places[source] for source in node.src if source in places} - {i} for i, node in enumerate(graph.nodes)]
    left, order = set(places.values()), list[int]()
    while left:
        chosen = chance.choice(sorted(i for i in left if not waits[i] & left))
        left.remove(chosen)
        order.append(chosen)
    return order


def broken_by_tensors(found: Reordered) -> set[tuple[Any, ...]]:
    """What the other implementation calls broken: kind, and the steps of both in the new order."""
    place = {node: step for step, node in enumerate(found.graph.executed)}
    pairs = swapped_pairs(found.original.nodes, found.graph.nodes)
    return {(kind, *sorted((place[first], place[second]))) for kind, first, second, *_ in pairs}


def broken_by_traces(found: Reordered) -> set[tuple[Any, ...]]:
    change = order_change(found.before, found.trace)
    assert change is None or change.broken == found.broken
    return {(h.kind, h.first, h.second) for h in change.broken} if change else set()


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["seed_write_first", "seed_set_rows", "inplace_chain", "cast_shift"]), st.integers(0, 1000))
def test_what_an_order_breaks_is_what_the_tensors_say(name: str, seed: int) -> None:
    graph = SEEDS[name]().graph
    found = reorder(graph, legal_order(graph, seed))
    assert broken_by_traces(found) == broken_by_tensors(found)


@pytest.mark.parametrize("name", ["smollm2_fa_off_shift.jsonl.gz", "old_smollm2_cpy_fa_off_defrag.jsonl.gz"])
def test_of_recorded_graphs_too(name: str) -> None:
    graph = kvviz.ggml.load(DATA / name).graphs[-1]
    found = reorder(graph, legal_order(graph, 3))
    assert len(broken_by_traces(found)) > 2
    assert broken_by_traces(found) == broken_by_tensors(found)


@settings(deadline=None, max_examples=40)
@given(st.permutations(range(4)))
def test_no_fewer_ops_need_to_move(order: list[int]) -> None:
    graph = SEEDS["seed_write_first"]().graph
    try:
        found = reorder(graph, order)
    except kvviz.KvvizError:
        return
    change = order_change(found.before, found.trace)
    moved = change.moved if change else ()
    back = align(found.trace, found.before)[0].tolist()

    def ascends(left_out: tuple[int, ...]) -> bool:
        kept = [number for step, number in enumerate(back) if step not in left_out]
        return kept == sorted(kept)

    assert ascends(moved)
    assert not any(ascends(fewer) for n in range(len(moved)) for fewer in combinations(range(4), n))


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["seed_write_first", "seed_set_rows", "cast_shift"]), st.integers(0, 1000))
def test_the_first_other_numbers_are_where_the_bytes_part(name: str, seed: int) -> None:
    graph = SEEDS[name]().graph
    found = reorder(graph, legal_order(graph, seed))
    value, parted = value_change(found.before, found.trace), found.difference
    if parted is None or parted.step is None:
        assert value is None
    else:
        assert value is not None
        assert (value.step, value.other) == (parted.step, parted.step_before)
        assert f"{parted.node.op} {parted.node.name}" in value.sentence


def test_an_order_that_is_the_same_changes_nothing_and_another_schedule_of_a_model_breaks_nothing() -> None:
    found = reorder(SEEDS["cast_shift"]().graph, "as listed")
    assert order_change(found.before, found.trace) is value_change(found.before, found.trace) is None
    graph = kvviz.load(STORY)
    one = kvviz.decode(graph, [1, 2, 3], 2, progress=False)
    two = kvviz.decode(graph, [1, 2, 3], 2, progress=False, policy="onnxruntime")
    change = order_change(one, two)
    assert change is not None and not change.broken
    # Without what moved, both have one order.
    kept = np.delete(align(two, one)[0], change.moved)
    assert (np.diff(kept[kept >= 0]) > 0).all()


def test_a_lane_says_what_its_order_breaks_and_no_more_than_can_be_read() -> None:
    graph = kvviz.ggml.load(DATA / "old_smollm2_cpy_fa_off_defrag.jsonl.gz").graphs[-1]
    found = reorder(graph, legal_order(graph, 3))
    told = lane_header(1, "own", found.trace, (0, "as listed", found.before))
    assert told["order"]["total"] == len(found.broken)
    assert len(told["order"]["broken"]) == min(MOST_BROKEN, len(found.broken))
    # The recorded addresses are of the recorded order: neither trace is told by them.
    assert told["figures"][0] == told["figures"][1]
    alone = lane_header(0, "as listed", found.before, None)
    assert (alone["order"], alone["value"]) == (None, None)


def test_two_orders_are_named_by_their_titles_and_share_one_cursor() -> None:
    graph = SEEDS["seed_write_first"]().graph
    found = reorder(graph, [2, 3, 0, 1])
    assert pair_labels(found.before, found.trace) == ("as listed", "own order")
    pair = Pair(found.before, found.trace)
    order, value = pair.lanes[1]["order"], pair.lanes[1]["value"]
    assert [one[:4] for one in order["broken"]] == [["RAW", 1, 3, 32]]
    assert value["step"] == 1 and "kq" in value["sentence"]
    for step, there in enumerate([2, 3, 0, 1]):
        pair.lane, pair.cursor = 0, step
        pair.lane = 1
        assert pair.cursor == there
        assert found.trace.steps[there].node == found.before.steps[step].node


def swapped_pairs(
    nodes: Sequence[Tensor], order: Sequence[Tensor], level: Level = "exact"
) -> list[tuple[str, Tensor, Tensor, Tensor, int]]:
    """(kind, first, second, root, bytes) of each, in the order of the first list."""
    new = {node: i for i, node in enumerate(order)}
    touched = {node: effects(node) for node in nodes}
    found: dict[tuple[str, Tensor, Tensor, Tensor], int] = {}
    for first, second in combinations(nodes, 2):
        for one in touched[first] if new[first] > new[second] else ():
            for two in touched[second]:
                root = one.tensor.root
                if (one.writes or two.writes) and root is two.tensor.root:
                    kind = "WAW" if one.writes and two.writes else "RAW" if one.writes else "WAR"
                    count = overlap(one.region, two.region, level, root.nbytes)
                    if count:
                        found[kind, first, second, root] = found.get((kind, first, second, root), 0) + count
    return [(*key, count) for key, count in found.items()]
