"""The usual cases of a lone output, which are written out for speed, give what the rule of placement gives."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import kvviz
from kvviz.engine.placement import Home
from kvviz.engine.plan import PlannedNode
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.runtimes.rten import output_identity
from kvviz.trace.blockers import NO_CAPACITY
from kvviz.trace.schema.events import VIEW
from tests.engine.dry_and_real import said
from tests.engine.random_graphs import Example, examples, feeds
from tests.engine.untouchable import POLICIES, cases
from tests.graph.build import MODELS


@contextmanager
def by_the_rule_alone() -> Iterator[None]:
    """Plans that are made meanwhile have no usual cases."""
    made = PlannedNode.__init__

    def plain_of_nothing(self: PlannedNode, *arguments: Any) -> None:
        made(self, *arguments)
        self.plain = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlannedNode, "__init__", plain_of_nothing)
        yield


def assert_same(model: Any, run: Any) -> None:
    """``run(graph)`` gives the same trace of a model on both ways."""
    usual = said(run(kvviz.load(model)))
    with by_the_rule_alone():
        assert usual == said(run(kvviz.load(model)))


def run(example: Example, policy: str | kvviz.Policy, graph: Graph) -> kvviz.Trace:
    return kvviz.run(graph, feeds(example), donate=example.donate, policy=policy)


def more_than_where(*arguments: Any) -> list[Home]:
    found = output_identity.homes(*arguments)
    return [home._replace(mask=NO_CAPACITY, dropped=True) if home.how == VIEW else home for home in found]


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(examples())
def test_random_graphs_are_placed_alike(example: Example) -> None:
    policies: list[str | kvviz.Policy] = [*POLICIES, replace(kvviz.policies.rten, homes=more_than_where)]
    for policy in policies:
        assert_same(example.model, partial(run, example, policy))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["storyteller/concat", "storyteller/static_scatter_nd", "o02_optimum1_merged_gpt2"])
@pytest.mark.parametrize("capacity", [None, 12])
def test_decodes_are_placed_alike(name: str, policy: str, capacity: int | None) -> None:
    def decode(graph: Graph) -> kvviz.Trace:
        return kvviz.decode(graph, [5] * 3, 4, policy=policy, kv_capacity=capacity, progress=False, stop_tokens=())

    assert_same(MODELS / name / "model.onnx", decode)


@pytest.mark.parametrize(("first", "policy"), [*enumerate(POLICIES)])
@pytest.mark.filterwarnings("ignore")
def test_operators_of_all_kinds_are_placed_alike(first: int, policy: str) -> None:
    done = 0
    for graph, inputs in islice(cases(), first, None, len(POLICIES)):
        donate = [name for name, value in inputs.items() if hasattr(value, "dtype") and value.dtype != object]
        given = [{n: v.copy() if n in donate else v for n, v in inputs.items()} for _ in range(2)]
        try:
            usual = said(kvviz.run(graph, given[0], donate=donate, policy=policy))
        except KvvizError:
            continue
        with by_the_rule_alone():
            assert said(kvviz.run(replace(graph), given[1], donate=donate, policy=policy)) == usual
        done += 1
    assert done > 350
