"""Every policy against ``ideal`` in the same order: none copies fewer bytes, none has a lower peak than is needed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import kvviz
from kvviz import Policy, Trace
from kvviz.explain.bound import bound, least_peak, spared
from kvviz.explain.difference import places
from kvviz.graph.model import Graph
from kvviz.trace.outcome import copied_in_all
from tests.engine.cache_graphs import CacheExample, cache_example
from tests.engine.cache_graphs import given as given_caches
from tests.engine.random_graphs import Example, examples, feeds
from tests.test_models import DECODERS, VAD, graph_of

POLICIES = [kvviz.policies.never, kvviz.policies.rten, kvviz.policies.onnxruntime]
GRAPHS = 200


def beside(policy: Policy) -> Policy:
    """``ideal`` with the order, the graph and the growth of another policy."""
    return replace(kvviz.policies.ideal, schedule=policy.schedule, rewrite=policy.rewrite, growth=policy.growth)


def pairs(run: Callable[..., Trace]) -> list[tuple[Trace, Trace]]:
    """What ran under ``ideal`` and under each of the others, in the order of the other."""
    return [(run(policy=beside(policy)), run(policy=policy)) for policy in POLICIES]


def assert_bound(ideal: Trace, other: Trace) -> tuple[bool, bool]:
    """Whether it took a rule of `kvviz.explain.bound` to say why fewer bytes were copied, or held."""
    assert places(ideal) == places(other)
    assert least_peak(ideal) <= min(ideal.peak_bytes, other.peak_bytes)
    fewer = copied_in_all(other) - copied_in_all(ideal)
    if fewer < 0:
        assert -fewer <= sum(spared(ideal, other)) and "no bound on bytes copied, because" in bound(ideal, other)
    return fewer < 0, other.peak_bytes < ideal.peak_bytes


@pytest.mark.parametrize("growth", ["", "start", "after"])
@pytest.mark.parametrize("model", DECODERS)
def test_in_a_decode_no_policy_copies_fewer_bytes_or_has_a_lower_peak(model: str, growth: str) -> None:
    rows: dict[str, Any] = {"kv_capacity": 24, "growth": growth} if growth else {}
    prompt = (3, 7)[DECODERS.index(model) % 2]
    for ideal, other in pairs(partial(kvviz.dry, graph_of(model), prompt_tokens=prompt, max_new_tokens=6, **rows)):
        copies, peak = assert_bound(ideal, other)
        # A policy that gives up the rows that were reserved has less to hold.
        assert not copies and (growth or not peak)
        assert growth or bound(ideal, other).startswith("no rules copy fewer bytes than ideal in this order")


def test_a_view_of_a_part_of_a_block_may_keep_more_than_its_copy_and_it_is_said_how_much() -> None:
    never, rten, ort = pairs(partial(kvviz.dry, graph_of(VAD)))
    assert [assert_bound(*pair) for pair in (never, rten, ort)] == [(False, False), (False, True), (False, False)]
    assert "none has a peak below 1.28 MB: 3,200 B of ideal's peak" in bound(*rten)


@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@given(examples())
def test_no_policy_copies_fewer_bytes_on_a_random_graph(example: Example) -> None:
    graph = kvviz.load(example.model)
    for ideal, other in pairs(lambda policy: kvviz.run(graph, feeds(example), donate=example.donate, policy=policy)):
        assert_bound(ideal, other)


def with_caches(example: CacheExample, graph: Graph, policy: Policy) -> Trace:
    return kvviz.run(graph, given_caches(example).feeds, donate=example.donate, policy=policy)


def test_rules_that_need_a_reason_to_do_better_are_rare() -> None:
    counts: Counter[str] = Counter()
    for seed in range(GRAPHS):
        example = cache_example(seed, 12)
        graph = kvviz.load(example.model)
        for ideal, other in pairs(partial(with_caches, example, graph)):
            copies, peak = assert_bound(ideal, other)
            counts.update(pairs=1, copies=copies, peak=peak)
    # Their inputs are parts of larger blocks, transposed, or have room that only some of the rules use.
    assert counts["pairs"] == 3 * GRAPHS and counts["copies"] < 3 and counts["peak"] < 30, counts


def test_a_comparison_says_of_what_ideal_is_a_bound_or_why_there_is_none() -> None:
    graph = graph_of("o01_optimum_llama")
    found = kvviz.compare(graph, policies=["never", "ideal"], prompt=[5, 17, 33], max_new_tokens=3)
    assert found.bound("never").startswith("no rules copy fewer bytes than ideal in this order; none has a ")
    alone = kvviz.compare(graph, policies=["never"], prompt=[5, 17, 33], max_new_tokens=3)
    assert alone.bound() == "no bound here, because ideal was not run: compare with it, in the same order"
    ideal, rten = (kvviz.dry(graph, policy=policy) for policy in ("ideal", "rten"))
    fewer = kvviz.dry(graph, policy="never", outputs=[graph.outputs[1].name])
    assert bound(ideal, rten) == "no bound here, because the ops run in another order"
    assert bound(ideal, fewer) == "no bound here, because other nodes run: the graph was changed"
