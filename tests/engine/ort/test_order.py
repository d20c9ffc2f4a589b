"""The order in which onnxruntime runs a graph, against its profile."""

from pathlib import Path

import onnx
import pytest

import kvviz
from kvviz.engine.plan import needed
from kvviz.graph.model import Graph
from kvviz.runtimes.ort.ort_policy import OrtOrder
from tests.engine.ort.models import FILES, IDS, all_plans, real_model, stored_inputs, without_dead_nodes
from tests.engine.ort.oracle import observe
from tests.engine.ort.random_models import random_model
from tests.graph.build import model, node


def ran(proto: onnx.ModelProto, feeds: dict, names: set[str]) -> list[str]:
    """Of these nodes those that ran, each once, in the order of the profile."""
    return [name for name in dict.fromkeys(name for name, _ in observe(proto, feeds).order) if name in names]


def assert_same_order(proto: onnx.ModelProto, feeds: dict) -> int:
    """Every graph of the model that ran has the profile's order; gives the number of nodes compared."""
    compared = 0
    for _, plan in all_plans(proto):
        planned = [n.name for n in plan.order]
        seen = ran(proto, feeds, set(planned))
        assert not seen or planned == seen
        compared += len(seen)
    return compared


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_real_models_run_in_the_order_of_the_profile(path: Path) -> None:
    assert assert_same_order(real_model(path), stored_inputs(path)[0]) > 30


def test_random_models_run_in_the_order_of_the_profile() -> None:
    assert sum(assert_same_order(*random_model(seed)) for seed in range(5000, 5060)) > 1000


def main_order(main: Graph) -> list[str]:
    return [n.name for n in OrtOrder()(main, main.nodes, [v.name for v in main.outputs])]


def test_dead_nodes_can_change_the_order_of_the_others() -> None:
    """What kvviz runs is the model without them, and for that model the order is onnxruntime's again."""
    changed = 0
    for seed in range(5000, 5060):
        proto, feeds = random_model(seed)
        whole = main_order(kvviz.load(proto))
        without_dead_nodes(proto.graph)
        main = kvviz.load(proto)
        outputs = [v.name for v in main.outputs]
        alone = [n.name for n in OrtOrder()(main, needed(main, outputs), outputs)]
        assert alone == main_order(main)
        assert_same_order(proto, feeds)
        changed += [name for name in whole if name in set(alone)] != alone
    assert changed


def test_a_chain_of_thousands_of_nodes_is_walked() -> None:
    nodes = [node("Neg", f"v{i}", f"v{i + 1}", name=f"n{i}") for i in range(5000)]
    main = kvviz.load(model(nodes, ["v0 float 2"], ["v5000 float 2"]))
    assert main_order(main) == [f"n{i}" for i in range(5000)]
