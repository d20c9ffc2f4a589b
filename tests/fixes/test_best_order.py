"""The order of least peak: no order of a small graph is better, and what is said to be needed by all of them is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.fixes.best_order import best_order
from kvviz.fixes.order_model import OrderModel, order_model
from kvviz.runtimes.schedules import Picks
from kvviz.trace.index.value_index import index_of
from tests.engine.random_graphs import Example, examples
from tests.fixes.test_lower_peak import breadth_first
from tests.graph.build import MODELS


def _orders_matter(example: Example) -> bool:
    nodes = example.model.graph.node
    return len(nodes) > 3 and not any(node.op_type in ("If", "Loop") for node in nodes)


FLAT = examples().filter(_orders_matter)
some = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def in_order(example: Example, policy: str, nodes: Sequence[Any]) -> kvviz.Trace:
    """A run without numbers in which these nodes of the main graph run in this order."""
    picks = Picks(tuple(((), node.index) for node in nodes))
    rules = replace(getattr(kvviz.policies, policy), schedule=picks)
    return kvviz.dry(kvviz.load(example.model), donate=example.donate, policy=rules)


def model_of(example: Example, policy: str, **how: Any) -> OrderModel:
    trace = kvviz.dry(kvviz.load(example.model), donate=example.donate, policy=policy)
    return order_model(index_of(trace), 0, **how)


def any_order(data: st.DataObject, model: OrderModel) -> list[int]:
    order: list[int] = []
    while len(order) < len(model.nodes):
        done = sum(1 << op for op in order)
        ready = [i for i, ahead in enumerate(model.before) if i not in order and not ahead & ~done]
        order.append(data.draw(st.sampled_from(ready)))
    return order


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


@some
@given(FLAT, st.sampled_from(["ideal", "never"]), st.data())
def test_the_model_is_right_about_any_order_and_none_is_better_than_the_one_that_is_found(
    example: Example, policy: str, data: st.DataObject
) -> None:
    model = model_of(example, policy)
    assert model.exact
    order = any_order(data, model)
    trace = in_order(example, policy, [model.nodes[op] for op in order])
    assert model.needs(order) == [row.live for row in trace.log]
    found = best_order(model)
    assert found.least == found.peak == least_of_all(model)
    assert in_order(example, policy, [model.nodes[op] for op in found.order]).peak_bytes == found.peak


@some
@given(FLAT, st.sampled_from(["rten", "onnxruntime"]), st.data())
def test_the_bound_holds_under_rules_that_change_with_the_order(
    example: Example, policy: str, data: st.DataObject
) -> None:
    model = model_of(example, policy, loose=True)
    for order in (any_order(data, model), best_order(model_of(example, policy)).order):
        again = in_order(example, policy, [model.nodes[op] for op in order])
        assert again.peak_bytes >= best_order(model).least


@pytest.mark.parametrize("branches", [100, 1000])
def test_a_wide_graph_of_many_ops_has_an_order_near_the_bound(branches: int) -> None:
    model = order_model(index_of(kvviz.dry(breadth_first(branches))), 0)
    found = best_order(model)
    assert len(model.nodes) == 3 * branches + 1
    assert found.peak - model.weights <= 1.1 * (found.least - model.weights) < model.peak(range(3 * branches)) / 4


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
