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
from tests.graph.build import FILES, file_id


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


@given(st.lists(st.text("ab./", min_size=1, max_size=8), unique=True, max_size=8))
def test_short_names_of_any_list_are_distinct_ends_of_the_names(names: list[str]) -> None:
    found = distinct(names)
    assert set(found) == set(names) and len(set(found.values())) == len(names)
    for name, text in found.items():
        parts = [part for part in name.split("/" if "/" in name else ".") if part]
        ends = ["/".join(parts[i:]) for i in range(len(parts))] + [".".join(parts[i:]) for i in range(len(parts))]
        assert text in (name, *ends)
