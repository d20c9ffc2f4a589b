"""The order of least peak: no order of a small graph is better, and what is said to be needed by all of them is."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

import kvviz
from kvviz.fixes.best_order import best_order
from kvviz.fixes.order_model import OrderModel, order_model
from kvviz.runtimes.schedules import Picks
from kvviz.trace.index.value_index import index_of
from tests.fixes.small_graphs import Small, small_graph
from tests.fixes.test_lower_peak import breadth_first
from tests.graph.build import MODELS

RULES = ["ideal", "never"]


def in_order(small: Small, graph: Any, policy: str, nodes: Sequence[Any]) -> kvviz.Trace:
    """A run without numbers in which these nodes of the main graph run in this order."""
    picks = Picks(tuple(((), node.index) for node in nodes))
    return kvviz.dry(graph, donate=small.donate, policy=replace(getattr(kvviz.policies, policy), schedule=picks))


def some_orders(model: OrderModel, seed: int, count: int) -> Iterator[list[int]]:
    rng = random.Random(seed)
    for _ in range(count):
        done = 0
        order: list[int] = []
        while len(order) < len(model.nodes):
            ready = [i for i, ahead in enumerate(model.before) if not done >> i & 1 and not ahead & ~done]
            order.append(rng.choice(ready))
            done |= 1 << order[-1]
        yield order


def least_of_all(model: OrderModel) -> int:
    """The lowest peak of all orders: of those that have run the same ops and left the same, the best one goes on."""
    level = {(0, ()): (model.start, model.start)}
    for _ in model.nodes:
        following: dict[Any, tuple[int, int]] = {}
        for (done, larger), (peak, live) in level.items():
            for op, ahead in enumerate(model.before):
                if done >> op & 1 or ahead & ~done:
                    continue
                move = model.move(done, larger, op)
                after = max(peak, live + move.new), live + move.change
                key = done | 1 << op, move.larger
                following[key] = min(after, following.get(key, after))
        level = following
    return min(peak for peak, _ in level.values())


@pytest.mark.parametrize("policy", RULES)
def test_in_any_order_a_small_graph_has_alive_what_the_model_says(policy: str) -> None:
    for seed in range(30):
        small = small_graph(seed, 12)
        graph = kvviz.load(small.model)
        model = order_model(index_of(kvviz.dry(graph, donate=small.donate, policy=policy)), 0)
        assert model.exact
        for order in some_orders(model, seed, 4):
            trace = in_order(small, graph, policy, [model.nodes[op] for op in order])
            assert model.needs(order) == [row.live for row in trace.log], seed


@pytest.mark.parametrize("policy", RULES)
def test_no_order_of_a_small_graph_is_better_than_the_one_that_is_found(policy: str) -> None:
    for seed in range(60):
        small = small_graph(seed)
        graph = kvviz.load(small.model)
        model = order_model(index_of(kvviz.dry(graph, donate=small.donate, policy=policy)), 0)
        found = best_order(model)
        assert found.least == found.peak == least_of_all(model), seed
        assert in_order(small, graph, policy, [model.nodes[op] for op in found.order]).peak_bytes == found.peak


@pytest.mark.parametrize("policy", ["rten", "onnxruntime"])
def test_the_bound_holds_under_rules_that_change_with_the_order(policy: str) -> None:
    for seed in range(40):
        small = small_graph(seed)
        graph = kvviz.load(small.model)
        trace = kvviz.dry(graph, donate=small.donate, policy=policy)
        model = order_model(index_of(trace), 0, loose=True)
        least = best_order(model).least
        orders = [*some_orders(model, seed, 5), best_order(order_model(index_of(trace), 0)).order]
        for order in orders:
            again = in_order(small, graph, policy, [model.nodes[op] for op in order])
            assert again.peak_bytes >= least, seed


@pytest.mark.parametrize(("branches", "part"), [(100, 0.1), (1000, 0.1)])
def test_a_wide_graph_of_many_ops_has_an_order_near_the_bound(branches: int, part: float) -> None:
    model = order_model(index_of(kvviz.dry(breadth_first(branches))), 0)
    found = best_order(model)
    assert len(model.nodes) == 3 * branches + 1
    assert (
        found.peak - model.weights <= (1 + part) * (found.least - model.weights) < model.peak(range(3 * branches)) / 4
    )


def test_the_orders_of_real_decoders_are_proven_or_within_a_percent_of_it() -> None:
    for path in sorted(MODELS.glob("storyteller/*/model.onnx")):
        trace = kvviz.dry(kvviz.load(path), prompt_tokens=58, max_new_tokens=3)
        model = order_model(index_of(trace), max(trace.runs, key=lambda run: run.peak_bytes).index)
        if not model.exact:
            assert path.parent.name == "merged_if"
            continue
        found = best_order(model)
        assert found.peak - model.weights <= 1.01 * (found.least - model.weights), path
        assert found.peak <= trace.peak_bytes
