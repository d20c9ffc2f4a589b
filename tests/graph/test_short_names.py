"""Short names: what tells one thing from another in its list."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.graph import load
from kvviz.graph.blocks import blocks
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.view.page_data.payload_graphs import distinct, node_names, value_names
from tests.graph.build import FILES, file_id, model, node


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_in_every_list_of_a_real_model_short_names_are_distinct(path: Path) -> None:
    root = load(path)
    caches = [pair.name for pair in cache_pairs(root)]
    assert len(set(caches)) == len(caches)
    for g in {id(g): g for g, _ in root.walk()}.values():
        for values in (g.inputs, g.outputs):
            names = value_names(g, [value.name for value in values])
            assert len(set(names)) == len(names)
        parts = blocks(g)
        names_of = node_names(parts)
        assert len(names_of) == len(g.nodes)
        for block in parts:
            assert max(Counter((n.op_type, names_of[id(n)]) for n in block.nodes).values()) == 1


def test_a_node_s_short_name_is_what_tells_it_apart_in_its_block() -> None:
    at = "/model/layers.0/self_attn"
    nodes = [
        node("MatMul", "x x", "q", name=f"{at}/q_proj/MatMul"),
        node("Concat", "q q", "a", name=f"{at}/Concat_5", axis=0),
        node("Concat", "a a", "b", name=f"{at}/Concat", axis=0),
        node("Neg", "b", "present.0.key", name=""),
        node("Mul", "b b", "m", name=f"{at}/mlp/Mul_node_22"),
        node("Mul", "m m", "n", name=f"{at}/mlp/Mul_node_24"),
        node("MatMul", "n n", "o", name=f"{at}/o_proj/MatMul_Q4"),
        node("MatMul", "o o", "y", name=f"{at}/k_proj/MatMul_Q4"),
    ]
    g = load(model(nodes, ["x float n n"], ["y float ? ?", "present.0.key float ? ?"]))
    (block,) = blocks(g)
    told = node_names([block])
    assert [told[id(n)] for n in g.nodes] == [
        "q_proj",
        "#5",
        "",
        "present.0.key",
        "mlp #22",
        "mlp #24",
        "o_proj/MatMul_Q4",
        "k_proj/MatMul_Q4",
    ]


@given(st.lists(st.text("ab./", min_size=1, max_size=8), unique=True, max_size=8))
def test_short_names_of_any_list_are_distinct_ends_of_the_names(names: list[str]) -> None:
    found = distinct(names)
    assert set(found) == set(names) and len(set(found.values())) == len(names)
    for name, text in found.items():
        parts = [part for part in name.split("/" if "/" in name else ".") if part]
        ends = ["/".join(parts[i:]) for i in range(len(parts))] + [".".join(parts[i:]) for i in range(len(parts))]
        assert text in (name, *ends)
