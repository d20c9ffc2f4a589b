"""Small graphs built here are node for node those that real ggml built, and hold the numbers that it computed."""

from __future__ import annotations

import json

import pytest

import kvviz
from kvviz.ggml.graph.attention_kernels import KERNELS
from kvviz.ggml.graph.tensor_data import tensor_get

from .recordings import DATA, assert_same_nodes, lines
from .seed_graphs import SEEDS


@pytest.mark.parametrize("name", SEEDS)
def test_nodes_names_strides_offsets_and_order_are_those_of_ggml(name: str) -> None:
    graph = SEEDS[name]().graph
    if name.startswith("old"):  # flags came with the next year's ggml
        for node in graph.nodes:
            node.flags = 0
    assert_same_nodes(graph, f"{name}.jsonl")


@pytest.mark.parametrize("name", SEEDS)
def test_numbers_after_the_run_are_those_of_ggml(name: str) -> None:
    graph, results = SEEDS[name]()
    kvviz.ggml.run(graph)
    expected = lines(f"{name}.jsonl")[0]["results"]
    assert expected
    assert {key: tensor_get(results[key]).reshape(-1).tolist() for key in expected} == expected


def test_every_op_that_is_built_or_run_here_is_one_of_ggml() -> None:
    known = set(json.loads((DATA / "ops.json").read_text())["ops"])
    assert known >= KERNELS.keys()
