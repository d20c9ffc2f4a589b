"""Recorded and built graphs: their hidden dependencies, found by another program and byte by byte, and their layers."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.graph_trace import layers_of
from kvviz.ggml.graph.memory_plan import lives
from kvviz.ggml.graph.op_effects import Effect, is_noop
from kvviz.ggml.graph.tensor import Tensor, new_tensor, type_size
from kvviz.ggml.graph.tensor_data import tensor_get
from kvviz.ggml.recording.recorded_graphs import RecordedGraph
from kvviz.graph.blocks import blocks
from kvviz.graph.layers import places
from kvviz.trace.schema.regions import LEVELS, bounds, overlap
from tests.ggml.every_pair import hidden_pairs
from tests.ggml.recordings import DATA, EXPECTED, OTHERS, built, lines, names, recorded, recording
from tests.ggml.seed_graphs import SEEDS, leaf, op

GRAPHS = [(name, graph) for name, one in EXPECTED.items() for graph in range(one["n_graphs"])]
# Graphs of one recording are much alike, and counting pairs of lives is slow.
SOME = [(name, graph) for name, graph in GRAPHS if graph in (0, EXPECTED[name]["n_graphs"] - 2)]


@pytest.mark.parametrize(("name", "number"), GRAPHS)
def test_nodes_and_hidden_edges_are_those_of_the_expected_file_at_every_precision(name: str, number: int) -> None:
    graph, known = recording(name).graphs[number], EXPECTED[name]["graphs"][number]
    assert (graph.step, len(graph.nodes), len(graph.leafs)) == (known["step"], known["nodes"], known["leafs_used"])
    assert Counter(node.op for node in graph.nodes) == known["ops"]
    assert sum(node.writes_view and not is_noop(node) for node in graph.nodes) == known["aliasing_writes"]
    assert len(graph.trace.steps) == len(graph.nodes)
    for level in LEVELS:
        found = kvviz.hazards(graph, level)
        assert Counter(one.kind for one in found) == known["hidden_pairs"][level]
        assert not any(one.broken or one.ordered for one in found)
    by_pair = {(one.kind, one.first, one.second): one for one in kvviz.hazards(graph)}
    for example in known["examples"]:
        (first, *_), (second, *_) = example["from"], example["to"]
        one = by_pair[example["kind"], first, second]
        assert (one.root, one.bytes) == (example["root"], example["common_bytes"])
        assert [graph.nodes[place].name for place in (first, second)] == [example[end][1] for end in ("from", "to")]
    # in the order in which the last node is expanded first, the same pairs are there, some of them broken
    building = ComputeGraph()
    for node in (graph.nodes[-1], *graph.nodes):
        building.expand(node, compute=False)
    turned = {"RAW": "WAR", "WAR": "RAW"}
    # A pair is named by the order that is meant, and the expected file by the one that was run.
    kinds = [turned.get(h.kind, h.kind) if h.broken else h.kind for h in kvviz.hazards(graph.reordered(building.nodes))]
    assert Counter(kinds) == known["if_output_expanded_first"]["hidden_exact"]


@pytest.mark.parametrize("name", OTHERS)
def test_hidden_edges_of_other_recordings_are_those_that_trying_every_pair_finds(name: str) -> None:
    for graph, known in zip(recording(name).graphs, hidden_pairs(DATA / name), strict=True):
        for level in LEVELS:
            found = kvviz.hazards(graph, level)
            assert Counter((one.kind, one.first, one.second) for one in found) == Counter(known[level].keys())
        exact = {(one.kind, one.first, one.second): one.bytes for one in kvviz.hazards(graph)}
        assert exact == known["exact"]


@pytest.mark.parametrize(("name", "number"), SOME)
def test_shared_addresses_of_the_compute_buffer_are_counted(name: str, number: int) -> None:
    graph, known = recording(name).graphs[number], EXPECTED[name]["graphs"][number]["allocator"]
    # then: pairs of results that had an address one after the other, and what orders the last use of the earlier one
    before, found = _ancestors(graph), Counter[str]()
    made = [life for life in lives(graph) if life.born >= 0]
    for at, late in enumerate(made):
        for early in made[:at]:
            if early.meets(late):
                found["live_overlaps" if early.last > late.born else "address_reuse_pairs"] += 1
                found["in_place"] += early.last == late.born
                found["war_without_src_path"] += early.last < late.born and early.last not in before[late.born]
    assert {key: found[key] for key in known} == known


def _ancestors(graph: RecordedGraph) -> list[set[int]]:
    """Of each node, the nodes from which a path of sources leads to it."""
    places = {node: place for place, node in enumerate(graph.nodes)}
    found: list[set[int]] = []
    for place, node in enumerate(graph.nodes):
        direct = {at for source in node.src if source is not None and (at := places.get(source, place)) < place}
        found.append(direct.union(*(found[one] for one in direct)))
    return found


@pytest.mark.parametrize("name", ["tiny_mamba.jsonl.gz", "tiny_gemma3_fa_off.jsonl.gz", "recurrent_state.jsonl"])
def test_swapping_any_hidden_pair_is_reported_as_broken(name: str) -> None:
    for graph in recording(name).graphs:
        for one in kvviz.hazards(graph):
            swapped = graph.reordered(_swapped(graph, one.first, one.second))
            pairs = [
                (two.kind, swapped.nodes[two.second], swapped.nodes[two.first])
                for two in kvviz.hazards(swapped)
                if two.broken
            ]
            assert (one.kind, graph.nodes[one.first], graph.nodes[one.second]) in pairs


def _swapped(graph: RecordedGraph, first: int, second: int) -> list[Any]:
    """The second node, and what it needs, in front of the first one; everything else as it was."""
    needed = {graph.nodes[second]}
    for node in reversed(graph.nodes[first:second]):
        if any(node in other.src for other in needed):
            needed.add(node)
    part = graph.nodes[first : second + 1]
    moved = [node for node in part if node in needed]
    return [*graph.nodes[:first], *moved, *(node for node in part if node not in needed), *graph.nodes[second + 1 :]]


def test_all_graphs_of_a_recording_are_one_story_in_which_state_keeps_its_storage() -> None:
    found = recording("tiny_gemma3_fa_off.jsonl.gz")
    trace = found.trace
    assert [run.text for run in trace.runs] == ["prefill", "decode0", "decode1"]
    alone = [(one.kind, one.first, one.second) for one in kvviz.hazards(found.graphs[1])]
    first = trace.runs[1].first
    assert [(one.kind, one.first - first, one.second - first) for one in kvviz.hazards(found, run=1)] == alone
    caches = [storage for storage in trace.storages if storage.name.startswith("cache_k_l0")]
    assert [(one.origin, one.freed) for one in caches] == [("donated", None)]


def test_a_view_of_nothing_may_begin_anywhere(tmp_path: Path) -> None:
    # given a ubatch that asks for no logits: its last layer has no elements, and views of it begin at byte 256 of 0
    found = recording("qwen3moe_ub4.jsonl.gz")
    empty = [node for node in found.graphs[0].nodes if node.view_offs and not node.nbytes]
    assert [(node.name, node.root.nbytes) for node in empty] == [("ffn_moe_weighted-1 (view)", 0)]
    assert len(found.trace.steps) == sum(len(graph.nodes) for graph in found.graphs) == 432
    found.trace.save(tmp_path / "empty.kvviz")
    loaded = kvviz.Trace.load(tmp_path / "empty.kvviz")
    assert kvviz.hazards(loaded) == kvviz.hazards(found)
    for graph in found.graphs:
        assert kvviz.ggml.recorded_plan(graph).places
        kvviz.ggml.export(graph, tmp_path / "graph.dot")


def test_the_verdict_of_many_graphs_is_about_all_of_them() -> None:
    step = recording("smollm2_fa_off.jsonl.gz").graphs[1]
    trace = kvviz.ggml.to_trace([step] * 10, "ten steps")
    assert len(trace.steps) > 10_000
    assert f"{10 * 60} hidden pairs; nothing but the order" in " ".join(str(kvviz.explain(trace)).split())


@pytest.mark.parametrize("name", SEEDS)
def test_built_nodes_and_numbers_after_the_run_are_those_of_ggml(name: str) -> None:
    graph, results = SEEDS[name]()
    rows = lines(f"{name}.jsonl")
    kvviz.ggml.run(graph)
    expected = rows[0]["results"]
    assert expected
    assert {key: tensor_get(results[key]).reshape(-1).tolist() for key in expected} == expected
    if name.startswith("old"):  # flags came with the next year's ggml
        for node in graph.nodes:
            node.flags = 0
    assert built(graph.nodes) == recorded([row for row in rows if row["k"] == "node"], names(rows))


@pytest.mark.parametrize(
    ("name", "layers", "each", "last"),
    [
        ("smollm2_fa_off.jsonl.gz", 30, 36, 38),
        ("old_smollm2_cpy_fa_off_defrag.jsonl.gz", 30, 36, 38),
        ("smollm2_fa_on_ubatch4.jsonl.gz", 30, 31, 33),
        ("tiny_gemma3_fa_off.jsonl.gz", 6, 45, 47),
        ("tiny_mamba.jsonl.gz", 2, 51, 51),
    ],
)
def test_every_layer_has_its_nodes_and_only_the_ends_of_the_model_have_none(
    name: str, layers: int, each: int, last: int
) -> None:
    graph = recording(name).graphs[0].trace.graph
    found = places(graph)
    counts = Counter(place.layer for place in found.values())
    outside = counts.pop(None)
    assert set(counts) == set(range(layers)) and outside in (4, 5)
    # An attention layer that is the last one takes, twice, the rows alone of which the result is wanted.
    assert [counts[layer] for layer in range(layers)] == [*[each] * (layers - 1), last]
    if name == "smollm2_fa_off.jsonl.gz":
        roles = [{place.role for place in found.values() if place.layer == layer} for layer in range(layers)]
        assert all(one == roles[0] for one in roles[:-1]) and roles[-1] - roles[0] == {"GET_ROWS #1", "GET_ROWS #2"}
        assert {"Qcur/ROPE", "Kcur/MUL_MAT", "cache_k/SET_ROWS", "cache_v/SET_ROWS", "kq/MUL_MAT"} <= roles[0]
        # they fold into one drawing
        assert [one.title for one in blocks(graph)[1 : layers + 1]] == [f"layer {number}" for number in range(layers)]


def test_a_node_without_a_number_is_of_the_layer_that_it_continues_or_stands_in() -> None:
    nodes = [leaf("embd", 4)]
    for name in ("norm-0", "node_2", "Kcur-1", "tail of 0", "l_out-0", "rows of 0", "l_out-1", "result_norm"):
        nodes.append(op(name, "ADD", nodes[2 if name == "tail of 0" else -1]))
    assert layers_of(nodes) == [None, 0, 0, 1, 0, 0, 1, 1, None]
    # those of an encoder and of a decoder follow from their weights
    for side in ("enc", "dec"):
        nodes = []
        for layer in range(2):
            weight = leaf(f"{side}.blk.{layer}.attn_q.weight", 4, 4, role="weight")
            nodes.append(op(f"node_{layer}", "MUL_MAT", weight, *nodes[-1:]))
        assert layers_of(nodes) == [0, 1]


def test_patches_in_place_touch_their_own_bytes_only() -> None:
    ctx = Context()
    k, patch = ctx.new_tensor("f32", 8, 4, name="k", data=np.arange(32)), ctx.new_tensor("f32", 2, 4, data=-1)
    graph = ctx.new_graph()
    for column in (0, 4, 5):
        graph.expand(ctx.set_2d_inplace(k, patch, 32, 4 * column))
    assert [(one.first, one.second, one.kind, one.bytes) for one in kvviz.hazards(graph)] == [(1, 2, "WAW", 4 * 4)]
    kvviz.ggml.run(graph)
    assert (tensor_get(k) < 0).sum(0).tolist() == [4, 4, 0, 0, 4, 4, 4, 0]


def test_in_one_arena_with_places_taken_over_a_second_run_reads_what_the_first_left() -> None:
    # Places are those of ggml's allocator, numbers those that ggml leaves; only the input x is overwritten, by sqr(x).
    ctx = Context()
    x, y = ctx.new_tensor("f32", 256, name="x"), ctx.new_tensor("f32", 256, name="y")
    a = ctx.sqr(x)
    b = ctx.add(a, y)
    o = ctx.scale(b, 2.0)
    arena = np.zeros(2048, np.uint8)
    for tensor, offset in zip((x, y, a, b, o), (0, 1024, 0, 0, 0)):
        tensor.data = arena[offset : offset + 1024]
    kvviz.ggml.tensor_set(x, 3)
    kvviz.ggml.tensor_set(y, 1)
    graph = ctx.new_graph().expand(o)
    for result in (20, 802):
        kvviz.ggml.run(graph)
        assert (tensor_get(o) == result).all() and (tensor_get(x) == result).all()


def test_a_step_of_adamw_writes_its_moments_too() -> None:
    # given: ggml 0.25.3 leaves 0.2 in m and 0.004 in v of a gradient of 2
    w, grad, m, v = (leaf(name, 4) for name in ("w", "grad", "m", "v"))
    step = op("step", "OPT_STEP_ADAMW", w, grad, m, v, leaf("p", 7), ne=(4,), view_of=w)
    graph = ComputeGraph("adamw").expand(op("before", "SQR", v, ne=(4,))).expand(step)
    graph.expand(op("after", "SQR", m, ne=(4,)))
    assert [(one.kind, one.root, one.bytes) for one in kvviz.hazards(graph)] == [("WAR", "v", 16), ("RAW", "m", 16)]
    assert graph.trace.steps[1].written == 48
    assert [pair.kind for pair in kvviz.ggml.reorder(graph, [2, 0, 1], run=False).broken] == ["RAW"]


TYPES = {"f16": (1, 2), "f32": (1, 4), "q8_0": (32, 34), "q4_0": (32, 18)}
ROOTS = {name: new_tensor(name, (64, 6, 3), "cache") for name in TYPES}


@st.composite
def views(draw: st.DrawFn, root: Tensor) -> Effect:
    """A view that lies in a root: some rows and columns of it, its axes in any order, perhaps only some of its rows."""
    block, size = TYPES[root.type]
    row = 64 // block
    first, rows, plane = draw(st.integers(0, row - 1)), draw(st.integers(0, 5)), draw(st.integers(0, 2))
    ne = [draw(st.integers(1, row - first)), draw(st.integers(1, 6 - rows)), draw(st.integers(1, 3 - plane)), 1]
    nb = [size, row * size * draw(st.sampled_from([1, 1, 2]) if ne[1] <= (6 - rows) // 2 else st.just(1)), *root.nb[2:]]
    offset = first * size + rows * root.nb[1] + plane * root.nb[2]
    if block == 1:
        order = draw(st.permutations([0, 1, 2]))
        ne[:3], nb[:3] = [ne[axis] for axis in order], [nb[axis] for axis in order]
    else:
        ne[0] *= block
    view = Tensor("view", root.type, tuple(ne), tuple(nb), "CPY", view_src=root, view_offs=offset)  # type: ignore[arg-type]
    some = draw(st.none() | st.sets(st.integers(0, ne[1] - 1), min_size=1).map(tuple)) if ne[1] > 1 else None
    return Effect(view, True, some)


def bytes_of(effect: Effect) -> set[int]:
    """Element by element, as ggml's macros of loops over ``ne`` and ``nb`` go."""
    view = effect.tensor
    block, size = TYPES[view.type]
    found: set[int] = set()
    for i0, i1, i2 in np.ndindex(view.ne[0] // block, view.ne[1], view.ne[2]):
        if effect.rows is None or i1 in effect.rows:
            start = view.view_offs + i0 * view.nb[0] + i1 * view.nb[1] + i2 * view.nb[2]
            found.update(range(start, start + size))
    return found


@settings(max_examples=1000, deadline=None)
@given(data=st.data())
def test_two_views_share_as_many_bytes_as_their_elements_do(data: st.DataObject) -> None:
    root = ROOTS[data.draw(st.sampled_from(sorted(TYPES)))]
    one, two = data.draw(views(root)), data.draw(views(root))
    mine, theirs = bytes_of(one), bytes_of(two)
    assert type_size(root.type) == TYPES[root.type]
    assert bounds(one.region) == (min(mine), max(mine) + 1)
    assert overlap(one.region, two.region) == len(mine & theirs)
    assert (overlap(one.region, two.region, "range") > 0) == (
        max(min(mine), min(theirs)) <= min(max(mine), max(theirs))
    )
