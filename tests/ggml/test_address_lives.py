"""The compute buffer of a recorded graph: who lies where and how long, and what is overwritten in place."""

from __future__ import annotations

from collections import Counter

import pytest

from kvviz.ggml.graph.memory_plan import lives, observed_plan
from tests.ggml.real_recordings import EXPECTED, recording

NAMES = ["tiny_mamba.jsonl.gz", "tiny_gemma3_fa_off.jsonl.gz"]


@pytest.mark.parametrize("name", NAMES)
def test_results_that_the_allocator_put_in_place_are_generations_of_one_storage(name: str) -> None:
    graph, known = recording(name).graphs[1], EXPECTED[name]["graphs"][1]
    trace = graph.trace
    by_op = Counter(step.decision.dispatch for step in trace.steps if step.decision.shares and step.written)
    plan = observed_plan(graph)
    taken = {tensor: place.source for tensor, place in plan.places.items() if place.source is not None}
    # what the allocator took over, and what ggml's ops write in place themselves
    assert by_op["in_place"] == len(taken) + sum(node.writes_view for node in graph.nodes if 0 not in node.ne)
    assert 0 < len(taken) <= known["allocator"]["in_place"]
    for late, early in taken.items():
        assert (late.address, late.nbytes, late.buffer) == (early.address, early.nbytes, early.buffer)


@pytest.mark.parametrize("name", NAMES)
def test_no_two_storages_of_the_compute_buffer_share_an_address_at_once(name: str) -> None:
    trace = recording(name).trace
    end = len(trace.steps)
    placed = [
        (one.address, one.address + one.capacity, one.born, end if one.freed is None else one.freed)
        for one in trace.storages
        if one.arena == "CPU compute" and one.capacity and one.address is not None
    ]
    assert len(placed) > 40
    for number, (low, high, born, freed) in enumerate(placed):
        for first, last, began, ended in placed[:number]:
            # What is freed with an op and what that op makes are both there for a moment.
            assert high <= first or last <= low or ended <= born or freed <= began


@pytest.mark.parametrize("name", NAMES)
def test_live_bytes_are_weights_state_and_the_lives_of_the_compute_buffer(name: str) -> None:
    trace = recording(name).graphs[0].trace
    for step in trace.steps[:: max(1, len(trace.steps) // 20)]:
        alive = [
            one.capacity
            for one in trace.storages
            if one.born <= step.index and (one.freed is None or one.freed >= step.index)
        ]
        assert step.live_bytes == sum(alive)
    compute = trace.peak_bytes - sum(one.capacity for one in trace.storages if one.origin in ("weights", "donated"))
    assert 0 < compute < 600_000


def test_memory_is_free_after_its_last_use_and_results_stay_to_the_end() -> None:
    graph = recording("smollm2_fa_off.jsonl.gz").graphs[0]
    plan = observed_plan(graph)
    freed = {root for decided in plan.nodes for root in decided.freed}
    left = {life.root for life in lives(graph)} - freed - {place.source for place in plan.places.values()}
    assert [root.name for root in left if root.op == "MUL_MAT"] == ["result_output"]
    places = {node: place for place, node in enumerate(graph.nodes)}
    for place, decided in enumerate(plan.nodes):
        for root in decided.freed:
            assert any(source and source.root is root for source in decided.node.src)
            assert places.get(root, -1) <= place


def test_a_graph_without_addresses_shares_none() -> None:
    (graph,) = recording("inplace_chain.jsonl").graphs
    assert lives(graph) == [] and observed_plan(graph).places == {}
