"""Caches are overwritten only where nobody can notice: whatever the order, the policy and the caller's memory are.

A run that overwrites nothing says what a graph means; onnxruntime says the same. Every other run must give its bits,
and must leave the bytes alone that were not donated to it.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

import kvviz
from kvviz.debugger.cursor import Cursor
from kvviz.decode.run_sessions import SingleRun
from kvviz.engine.decide import never
from kvviz.engine.policy import Policy
from kvviz.graph.model import Graph
from kvviz.lessons.legal_orders import legal_orders
from kvviz.runtimes.named_policies import NAMES, find_policy, named
from kvviz.runtimes.schedules import Picks
from tests.engine.cache_graphs import LAYOUTS, CacheExample, cache_example, given
from tests.engine.graphs import graph_of, numbers, ort_run

POLICIES = ("ideal", "rten", "onnxruntime")
MOST, GRAPHS = 40, 200
WRITERS = ("TensorScatter", "ScatterND", "ScatterElements", "Concat", "Attention", "GroupQueryAttention")
STATES = ("MultiHeadAttention", "LinearAttention", "CausalConvWithState")


@cache
def made(seed: int, length: int) -> tuple[CacheExample, Graph, dict[str, np.ndarray]]:
    """An example, its graph, and what the graph means."""
    example = cache_example(seed, length)
    graph = kvviz.load(example.model)
    return example, graph, kvviz.run(graph, example.inputs, policy="never").outputs


@cache
def meant_by(seed: int, length: int, name: str) -> dict[str, np.ndarray]:
    """What the graph means, in the bits of a policy that overwrites nothing.

    rten and onnxruntime copy what is a view elsewhere, and the last bit of a product may depend on the layout.
    """
    example, graph, meant = made(seed, length)
    if name not in ("rten", "onnxruntime"):
        return meant
    policy = replace(find_policy(name), in_place=never)
    outputs = kvviz.run(graph, example.inputs, policy=policy).outputs
    for output, want in meant.items():
        np.testing.assert_allclose(outputs[output], want, rtol=1e-5, atol=1e-6)
    return outputs


def wrong(
    seed: int, length: int, policy: Policy, counts: Counter[str], picked: random.Random | None = None
) -> list[str]:
    """What one run changes that it must not: bits of an output, bytes that it was not given."""
    example, graph, _ = made(seed, length)
    meant = meant_by(seed, length, policy.name)
    arrays = given(example)
    before = arrays.kept()
    poison = seed % 4 > 0
    if picked is None:
        trace = kvviz.run(graph, arrays.feeds, donate=example.donate, policy=policy, poison=poison)
    else:
        trace = by_hand(SingleRun(graph, arrays.feeds, donate=example.donate, policy=policy, poison=poison), picked)
    found = [name for name, output in trace.outputs.items() if not equal(output, meant[name])]
    if arrays.kept() != before:
        found.append("memory of the caller")
    counts.update(step.op_type for step in trace.steps if step.decision.taken)
    counts["runs"] += 1
    return [f"{name} of {seed} ({example.layout}, {policy.name})" for name in found]


def equal(have: np.ndarray, want: np.ndarray) -> bool:
    return (have.dtype, have.shape, have.tobytes()) == (want.dtype, want.shape, want.tobytes())


def by_hand(run: SingleRun, draw: random.Random) -> kvviz.Trace:
    """A run in which a person picks the next op again and again."""
    cursor = Cursor(run)
    while True:
        if frontier := cursor.frontier():
            cursor.choose(draw.choice(frontier))
        elif cursor.next().reason == "end":
            return cursor.trace


def all_orders(seed: int, policy: Policy) -> Iterator[Policy]:
    """The policy once for every legal order of a small graph; none at all where there are too many."""
    _, graph, meant = made(seed, 4)
    found = list(islice(legal_orders(graph, tuple(meant)), MOST + 1))
    for nodes in found if len(found) <= MOST else ():
        yield replace(policy, schedule=Picks(tuple(((), node.index) for node in nodes)))


@pytest.mark.parametrize("name", POLICIES)
def test_every_legal_order_of_a_small_graph_gives_the_same_bits(name: str) -> None:
    counts: Counter[str] = Counter()
    policy = find_policy(name)
    found = [
        text for seed in range(GRAPHS) for each in all_orders(seed, policy) for text in wrong(seed, 4, each, counts)
    ]
    assert not found, found[:5]
    assert counts["runs"] > 1000
    if name == "ideal":
        assert min(counts[op] for op in (*WRITERS, *STATES)) > 20, counts


@pytest.mark.parametrize("name", POLICIES)
def test_every_schedule_of_a_larger_graph_gives_the_same_bits(name: str) -> None:
    counts: Counter[str] = Counter()
    found: list[str] = []
    policy = find_policy(name)
    # The scatters and attention of the others are those of ideal, which overwrites the most.
    graphs = GRAPHS if name == "ideal" else GRAPHS // 2
    for seed in range(graphs):
        for schedule in NAMES:
            found += wrong(seed, 12, replace(policy, schedule=named(schedule)), counts)
        draw = random.Random(seed)
        found += [text for _ in range(2) for text in wrong(seed, 12, policy, counts, draw)]
    assert not found, found[:5]
    assert counts["runs"] == graphs * (len(NAMES) + 2)
    if name == "ideal":
        assert min(counts[op] for op in (*WRITERS, *STATES)) > 25, counts


def test_onnxruntime_finds_the_same_meaning() -> None:
    compared = 0
    for seed in range(GRAPHS):
        for length in (4, 12):
            example, _, meant = made(seed, length)
            if b"GroupQueryAttention" in example.model.SerializeToString():
                continue  # rows that hold no token are its own affair
            for have, want in zip(meant.values(), ort_run(example.model, example.inputs), strict=True):
                assert have.shape == want.shape
                np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5, err_msg=f"{seed}, {length}")
                compared += 1
    assert compared > 800


def test_the_graphs_are_given_in_every_layout_donated_and_borrowed() -> None:
    ways = Counter[tuple[str, bool]]()
    for seed in range(GRAPHS):
        example = made(seed, 12)[0]
        ways[example.layout, {"past0", "past1"} <= set(example.donate)] += 1
    assert min(ways[layout, donated] for layout in LAYOUTS for donated in (False, True)) > 2, ways


@pytest.mark.parametrize("second", ["past", "other"])
def test_one_room_does_not_take_the_rows_of_keys_and_of_values_and_none_is_advised(second: str) -> None:
    # given attention whose past of values is the past of keys, or another input, in one block with room or in two
    graph = graph_of(f"""agraph (float[1, 1, 1, 4] q, float[1, 1, 1, 4] k, float[1, 1, 1, 4] v, float[1, 1, P, 4] past,
        float[1, 1, P, 4] other) => (float[1, 1, 1, 4] y, float[1, 1, T, 4] keys, float[1, 1, T, 4] values)
        {{ y, keys, values = Attention (q, k, v, , past, {second}) }}""", 23)  # fmt: skip
    new = {letter: numbers(1, 1, 1, 4, seed=i) for i, letter in enumerate("qkv")}
    apart = {**new, "past": numbers(1, 1, 3, 4), "other": numbers(1, 1, 3, 4)}
    meant = kvviz.run(graph, apart, policy="never").outputs
    for name in POLICIES:
        past = kvviz.reserve(numbers(1, 1, 3, 4), 2, 8)
        trace = kvviz.run(graph, {**new, "past": past, "other": past}, donate=["past", "other"], policy=name)
        assert all(equal(output, meant[output_name]) for output_name, output in trace.outputs.items())
        if name == "ideal":
            code = "SAME_OP_TWICE" if second == "past" else "ALIASED"
            assert [blocker.code for blocker in trace.steps[0].decision.blockers] == [code, code]
    # then no room is advised for a past that the op would extend twice
    for policy in ("ideal", "never"):
        (step,) = kvviz.run(graph, apart, policy=policy).steps
        blockers = [blocker for blocker in step.decision.blockers if "past" in (second, blocker.input)]
        assert blockers and {blocker.fix is None for blocker in blockers} == {second == "past"}


def test_a_buffer_whose_rows_lie_crosswise_is_not_written_in_place() -> None:
    # A product with it may have other last bits than one with the buffer that a run without overwriting makes.
    text = """agraph (float[1, 2, 4, 8] x, float[1, 1, 32] q, int32[1] last, int32 n)
        => (float[1, 1, 32] y, float[1, 4, 2, 8] keys, float[1, 2, 2, 8] values) {
        a = Neg (x) past = Transpose <perm = [0, 2, 1, 3]> (a) v = Neg (past)
        y, keys, values = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 4> (
            q, q, q, past, v, last, n) }"""
    feeds = {"x": numbers(1, 2, 4, 8), "q": numbers(1, 1, 32), "last": np.array([1], np.int32), "n": np.int32(2)}
    graph = graph_of(text)
    trace = kvviz.run(graph, feeds)
    step = next(step for step in trace.steps if step.op_type == "GroupQueryAttention")
    assert [(b.code, b.input) for b in step.decision.blockers] == [("NOT_CONTIGUOUS", "past")]
    assert step.decision.taken == ("v",)
    for output, want in kvviz.run(graph, feeds, policy="never").outputs.items():
        assert equal(trace.outputs[output], want)
