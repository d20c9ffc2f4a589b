"""Roles of nodes in repeated layers: distinct in a layer, and the same in layers that are alike; and short names."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.graph import Graph, Node, load
from kvviz.graph.blocks import blocks
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.layers import Part, Place, aligned, inside, places
from kvviz.graph.topological_order import needs_between
from kvviz.view.page_data.payload_graphs import distinct, node_names, value_names
from tests.graph.build import FILES, MODELS, file_id, graph, model, node


def graphs(root: Graph) -> list[Graph]:
    return list({id(g): g for g, _ in root.walk()}.values())


def layers(g: Graph) -> dict[int, list[Node]]:
    found: dict[int, list[Node]] = {}
    for n in g.nodes:
        layer = places(g)[n.index].layer
        if layer is not None:
            found.setdefault(layer, []).append(n)
    return found


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_roles_of_real_models_are_distinct_and_those_of_alike_layers_the_same(path: Path) -> None:
    for g in graphs(load(path)):
        found = places(g)
        assert sorted(found) == sorted(n.index for n in g.nodes)
        # a role stands once in a layer, and once outside of all
        assert max(Counter(found.values()).values()) == 1
        outside = {p.role for p in found.values() if p.layer is None}
        assert not outside & {p.role for p in found.values() if p.layer is not None}
        # layers of one structure have one set of roles, each for the same operator
        alike: dict[str, set[frozenset[tuple[str, str]]]] = {}
        for nodes in layers(g).values():
            key = repr([(n.op_type, needs) for n, needs in zip(nodes, needs_between(nodes))])
            alike.setdefault(key, set()).add(frozenset((found[n.index].role, n.op_type) for n in nodes))
        assert all(len(sets) == 1 for sets in alike.values())


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_layers_are_those_that_the_names_count(path: Path) -> None:
    for g in graphs(load(path)):
        for n in g.nodes:
            found = places(g)[n.index].layer
            told = re.search(r"(?:^|[/.])(?:layers|h)\.(\d+)(?:[/.]|$)", "/".join(n.scope))
            # the exporter of genai counts the last norm as a layer of its own
            if told and "final_norm" not in n.name:
                assert found == int(told[1])
            elif found is not None and "final_norm" not in n.name:
                # numbers that count other modules, as those of convolutions
                assert any(part.endswith(f".{found}") for part in n.scope)


def stripped(g: Graph) -> Graph:
    """The graph without anything that says what a node belongs to."""
    return replace(g, nodes=tuple(replace(n, name=f"n{n.index}", scope=()) for n in g.nodes))


@pytest.mark.parametrize("form", ["concat", "static_scatter_nd", "tensor_scatter", "gqa"])
def test_without_names_layers_are_what_repeats_itself(form: str) -> None:
    g = load(MODELS / "storyteller" / form / "model.onnx")
    known, bare = places(g), stripped(g)
    found = places(bare)
    repeated = layers(bare)
    # most of what is in a layer by name is in a repetition
    by_name = {n.index for n in g.nodes if known[n.index].layer is not None}
    by_structure = {n.index for n in g.nodes if found[n.index].layer is not None}
    assert len(by_name & by_structure) > 0.6 * len(by_name)
    assert len({tuple(n.op_type for n in nodes) for nodes in repeated.values()}) == 1
    # and what has one role there has one role by name
    roles: dict[str, set[str]] = {}
    for index in by_name & by_structure:
        roles.setdefault(found[index].role, set()).add(known[index].role)
    assert sum(len(names) == 1 for names in roles.values()) > 0.9 * len(roles)


def test_a_body_has_the_layer_of_the_node_that_runs_it() -> None:
    g = load(MODELS / "o06_mobius_static_llama_op24" / "model.onnx")
    caller = next(n for n in g.nodes if n.function is not None)
    outer = places(g)[caller.index]
    assert caller.function is not None and outer.layer is not None
    for n in caller.function.nodes:
        told = inside(outer, g, "function", places(caller.function)[n.index])
        assert told == Place(outer.layer, f"{outer.role} › {n.op_type}")
    # Where one node has bodies the branch says enough.
    branch = graph([node("Relu", "x", "y", name="inner")], [], ["y float"])
    one = node("If", "c", "y", name="only", then_branch=branch, else_branch=branch)
    g = load(model([one], ["c bool", "x float"], ["y float"]))
    body = g.nodes[0].subgraphs["then_branch"]
    assert inside(places(g)[0], g, "then_branch", places(body)[0]).role == "then_branch › inner"


_NAMES = st.sampled_from(["a/Add", "a/Mul", "b/Add", "b/Concat", "Neg"])
_PART = st.builds(lambda name, n: Part(name, name.rpartition("/")[2], str(n), ()), _NAMES, st.integers(0, 3))


@given(st.lists(st.lists(_PART, max_size=9), min_size=1, max_size=5))
def test_any_layers_get_roles_that_are_distinct_and_of_one_name(stack: list[list[Part]]) -> None:
    found = aligned(stack)
    assert [len(roles) for roles in found] == [len(parts) for parts in stack]
    named: dict[str, set[str]] = {}
    for parts, roles in zip(stack, found):
        assert len(set(roles)) == len(roles)
        for part, role in zip(parts, roles):
            named.setdefault(role, set()).add(part.name)
    assert all(len(names) == 1 for names in named.values())
    for one, roles in zip(stack, found):
        for other, others in zip(stack, found):
            if [p[:2] for p in one] == [p[:2] for p in other]:
                assert roles == others


@given(st.lists(_PART, min_size=1, max_size=8), st.data())
def test_what_is_left_out_of_one_layer_takes_no_role_from_the_others(parts: list[Part], data: st.DataObject) -> None:
    # given three equal layers, and one without some of the ops
    kept = data.draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
    fewer = [part for part, keep in zip(parts, kept) if keep]
    # when
    first, *same, last = aligned([parts, parts, parts, fewer])
    # then
    assert same == [first, first]
    assert set(last) <= set(first)
    assert [role for role in first if role in last] == last


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_in_every_list_of_a_real_model_short_names_are_distinct(path: Path) -> None:
    root = load(path)
    caches = [pair.name for pair in cache_pairs(root)]
    assert len(set(caches)) == len(caches)
    for g in graphs(root):
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
