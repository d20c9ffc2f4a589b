"""Another order of a graph's nodes: what breaks, where the results part, and graphs that are stepped through live."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.graph.tensor_data import tensor_set
from kvviz.ggml.order.what_if import reorder
from kvviz.view.page_data.payload_lanes import lane_header
from tests.ggml.attention_layer import AttentionLayer, LayerForm
from tests.ggml.recordings import DATA, recording
from tests.ggml.seed_graphs import SEEDS, kv


def test_a_rule_that_breaks_a_read_shows_where_the_results_part_and_why() -> None:
    # given: two rows are computed, stored in a cache from cell 3 on, and read through a view made before
    ctx = Context()
    k = ctx.new_tensor("f32", 4, 8, name="k", data=0)
    x = ctx.new_tensor("f32", 4, 2, name="x", data=[1] * 4 + [2] * 4)
    q = ctx.new_tensor("f32", 4, 1, name="q", data=1)
    index = ctx.new_tensor("i64", 2, name="k_idxs", data=[3, 4])
    kv = ctx.view_2d(k, 4, 8, k.nb[1], 0)
    t = ctx.set_name(ctx.scale(x, 1.0), "t")
    sr = ctx.set_name(ctx.set_rows(k, ctx.set_name(ctx.scale(t, 1.0), "kcur"), index), "sr")
    graph = ctx.new_graph("view first").expand(kv).expand(sr).expand(ctx.set_name(ctx.mul_mat(kv, q), "kq"))
    nodes = list(graph.nodes)
    found = reorder(graph, "vulkan")
    steps = found.trace.steps
    assert [(pair.kind, steps[pair.first].node, steps[pair.second].node, pair.bytes) for pair in found.broken] == [
        ("RAW", "kq", "sr", 32)
    ]
    assert found.ran and found.moved == 2
    assert found.before.outputs["kq"].tolist() == [0, 0, 0, 4, 8, 0, 0, 0]
    assert found.trace.outputs["kq"].tolist() == [0] * 8
    parted = found.difference
    assert parted is not None and parted.pair is found.broken[0]
    # 4 and 8 as float32 are two bytes each that are not 0 in 32.
    assert (parted.node.name, parted.step, parted.step_before, parted.bytes, parted.of) == ("kq", 3, 4, 3, 32)
    assert parted.first_byte == 14
    assert "differs, in 3 of 32 bytes: MUL_MAT kq reads k (view) before SET_ROWS sr has written it" in str(found)
    # the graph and what its leafs hold stay as they were
    assert graph.nodes == nodes and k.data is not None and not k.data.any()


def test_two_writes_that_are_swapped_part_in_what_is_left_in_the_cache() -> None:
    ctx = Context()
    k = ctx.new_tensor("f32", 4, 2, name="k", data=0)
    one, two = (ctx.new_tensor("f32", 4, 1, name=str(n), data=n) for n in (1, 2))
    graph = ctx.new_graph("twice")
    for row in (one, two):
        graph.expand(ctx.cpy(row, ctx.view_2d(k, 4, 1, 16, 0)))
    found = reorder(graph, [2, 3, 0, 1])
    assert [pair.kind for pair in found.broken] == ["WAW"]
    assert found.difference is not None and found.difference.node is k
    assert found.difference.pair is found.broken[0]


def test_what_cannot_be_run_is_compared_by_its_structure_and_said_so() -> None:
    graph = recording("tiny_gemma3_fa_off.jsonl.gz").graphs[1]
    found = reorder(graph, "none")
    assert not found.ran and found.why_not.endswith("has no data")
    assert len(found.trace.steps) == len(graph.nodes) == len(found.before.steps)
    assert "not run" in str(found)
    with pytest.raises(KvvizError, match="cannot be run"):
        reorder(graph, "none", run=True)


# -- random graphs --------------------------------------------------------------------------------------------------

_CELLS = 6


@st.composite
def _graphs(draw: st.DrawFn) -> ComputeGraph:
    """Some writes into views of one cache and reads through others, in whatever order they are expanded."""
    ctx = Context()
    cache = ctx.new_tensor("f32", 4, _CELLS, name="cache", data=np.arange(4 * _CELLS))
    made: list[Tensor] = [ctx.new_tensor("f32", 4, _CELLS, name="x", data=np.arange(100, 100 + 4 * _CELLS))]
    graph = ctx.new_graph("random")
    for number in range(draw(st.integers(2, 6))):
        kind = draw(st.sampled_from(["rows", "columns", "set_rows", "read", "get_rows", "in place", "sum"]))
        source = draw(st.sampled_from(made))
        size = draw(st.integers(1, 3))
        at = draw(st.integers(0, _CELLS - size))
        if kind in ("rows", "in place", "read"):
            view = ctx.view_2d(cache, 4, size, 16, 16 * at)
        elif kind == "columns":
            view = ctx.view_2d(cache, min(size, 2), _CELLS, 16, 4 * draw(st.integers(0, 2)))
        if kind in ("rows", "columns"):
            part = ctx.view_2d(source, view.ne[0], view.ne[1], 16, 0)
            graph.expand(ctx.cpy(ctx.scale(part, 1.0 + number), view))
        elif kind == "set_rows":
            rows = draw(st.lists(st.integers(0, _CELLS - 1), min_size=size, max_size=size, unique=True))
            index = ctx.new_tensor("i64", size, name=f"rows{number}", data=rows)
            graph.expand(ctx.set_rows(cache, ctx.view_2d(source, 4, size, 16, 0), index))
        elif kind == "get_rows":
            index = ctx.new_tensor("i32", size, name=f"get{number}", data=[at] * size)
            graph.expand(ctx.get_rows(cache, index))
        elif kind == "in place":
            graph.expand(ctx.scale_inplace(view, 3.0))
        elif kind == "read":
            graph.expand(ctx.cont(view))
        else:
            made.append(ctx.scale(ctx.add(ctx.cont(cache), source), 0.5))
            graph.expand(made[-1])
    return graph


@st.composite
def _orders(draw: st.DrawFn, graph: ComputeGraph) -> list[int]:
    """Any order that the declared edges allow."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    waits = [{place[s] for s in node.src if s in place and s is not node} for node in graph.nodes]
    order: list[int] = []
    while len(order) < len(graph.nodes):
        ready = [i for i in range(len(graph.nodes)) if i not in order and waits[i] <= set(order)]
        order.append(draw(st.sampled_from(ready)))
    return order


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.data())
def test_results_differ_only_where_a_pair_is_broken_and_rules_that_look_at_memory_break_none(
    data: st.DataObject,
) -> None:
    graph = data.draw(_graphs())
    found = reorder(graph, data.draw(_orders(graph)), values=0)
    assert found.ran
    assert found.difference is None or (found.broken and found.difference.pair is not None)
    for rule in ("exact", "metal", "vulkan fixed"):
        found = reorder(graph, rule, values=0, run=rule == "exact")
        assert (found.broken, found.difference) == ((), None), rule


@pytest.mark.parametrize("rule", ["none", "vulkan", "vulkan fixed", "metal"])
def test_at_recorded_addresses_another_order_breaks_what_no_root_shows(rule: str) -> None:
    # given a decode step of llama.cpp, no hidden pair of which the order breaks
    graph = recording("qwen3moe_ub4.jsonl.gz").graphs[2]
    found = reorder(graph, rule, run=False)
    assert found.broken == () and found.at_addresses
    # then every result that is read after another one was put there is in a pair, and it says which claim it makes
    wrong = _overwritten(found.graph.nodes)
    assert not _overwritten(graph.nodes)
    node = found.graph.executed
    late_reads = {(node[pair.second], pair.root) for pair in found.at_addresses if pair.kind == "WAR"}
    early_writes = {node[pair.first] for pair in found.at_addresses if pair.kind == "WAW"}
    assert wrong and all((user, root.name) in late_reads or root in early_writes for user, root in wrong)
    assert "before allocation: no hazards broken" in str(found)
    assert f"besides, at the recorded addresses: {len(found.at_addresses)} hazard" in str(found)


def _overwritten(nodes: list[Tensor]) -> set[tuple[Tensor, Tensor]]:
    """Nodes that read a result of which another one has taken bytes, found byte by byte."""
    owner: dict[tuple[str, int], Tensor] = {}
    made: set[Tensor] = set()
    wrong = set()
    for node in nodes:
        if node.op in ("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"):
            continue
        for root in {source.root for source in node.src if source is not None and source.root in made}:
            if any(owner[root.buffer, byte] is not root for byte in _bytes(root)):
                wrong.add((node, root))
        if node.root.address is not None and node.view_src is None:
            made.add(node)
            owner.update({(node.buffer, byte): node for byte in _bytes(node)})
    return wrong


def _bytes(root: Tensor) -> range:
    assert root.address is not None
    return range(root.address, root.address + root.nbytes, 4)


def test_a_graph_is_stepped_through_in_memory_of_its_own_and_a_tour_leads_through_it() -> None:
    seed = kv()
    cache = seed.results["k_cache"]
    tour = kvviz.lessons.Tour("A write").stop("The copy.", step=1).stop("Its reader.", query="op:MUL_MAT")
    debugger = kvviz.debug(seed.graph, tour=tour)
    assert debugger.frontier() == ("k_write_view", "k_read_view") and len(debugger.trace.steps) == 0
    assert [debugger.next().reason for _ in range(5)] == ["step"] * 4 + ["end"]
    np.testing.assert_array_equal(debugger.trace.outputs["kq"], [0, 0, 0, 4, 8, 0, 0, 0])
    np.testing.assert_array_equal(debugger.trace.value("k_write", 1), [[1] * 4, [2] * 4])
    assert debugger.trace.live is None and cache.data is not None and not cache.data.any()
    assert debugger.trace.tour is tour
    with pytest.raises(KvvizError, match="highlights 'grph'; did you mean 'graph'"):
        kvviz.debug(kv().graph, tour=kvviz.lessons.Tour("t").stop("x", pane="grph"))


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_what_is_stepped_through_is_what_a_run_records(name: str) -> None:
    debugger, trace = kvviz.debug(SEEDS[name]().graph), kvviz.ggml.run(SEEDS[name]().graph)
    debugger.resume()
    assert kvviz.hazards(debugger.trace) == kvviz.hazards(trace)
    told = [list(one.log.declared.accesses.values()) for one in (debugger.trace, trace)]
    assert told[0] == told[1]
    for output, array in trace.outputs.items():
        np.testing.assert_array_equal(debugger.trace.outputs[output], array)


def test_another_ready_node_of_a_live_graph_runs_next_and_the_pair_that_this_breaks_is_reported() -> None:
    debugger = kvviz.debug(kv().graph)
    with pytest.raises(KvvizError, match="'kq' cannot run at step 0: it waits for 'k_read_view'; ready are"):
        debugger.choose("kq")
    for name in ("k_read_view", "kq"):
        debugger.choose(name)
    assert debugger.frontier() == ("k_write_view",)
    debugger.resume()
    (broken,) = kvviz.hazards(debugger.trace)
    assert (broken.kind, broken.broken, broken.first, broken.second, broken.bytes) == ("RAW", True, 1, 3, 32)
    np.testing.assert_array_equal(debugger.trace.outputs["kq"], np.zeros(8))
    assert str(kvviz.explain(debugger.trace).verdict[0]).startswith("1 pair in the wrong order: MUL_MAT kq reads")


def test_a_recorded_graph_left_twice_differs_first_where_reorder_says_and_in_as_many_bytes() -> None:
    trace = kvviz.ggml.run(kv().graph)
    once = kvviz.fork(trace, 0, run="k_read_view")
    twice = kvviz.fork(once, 1, run="kq")
    meant = reorder(kv().graph, [2, 3, 0, 1])
    assert [step.node for step in twice.steps] == [step.node for step in meant.trace.steps]
    told = lane_header(1, "twice", twice, (0, "ggml", trace))
    difference = meant.difference
    assert difference is not None and difference.pair is not None
    assert told["value"]["step"] == difference.step and told["value"]["other"] == difference.step_before
    differ = f"{difference.bytes} of its {difference.of} bytes differ, between byte {difference.first_byte} and"
    assert differ in told["value"]["sentence"]
    assert told["value"]["why"] == told["order"]["broken"][0][5]
    assert told["order"]["broken"][0][:4] == ["RAW", 1, 3, difference.pair.bytes]


@pytest.mark.parametrize("rule", ["none", "vulkan", "vulkan fixed", "metal", "exact"])
def test_a_rule_gives_the_order_that_reorder_gives(rule: str) -> None:
    form = LayerForm()
    graph = AttentionLayer(Context(), form).graph(np.ones((1, form.width)), [0])
    trace = kvviz.ggml.run(graph)
    forked, meant = kvviz.fork(trace, order=rule), reorder(graph, rule)
    assert [step.op_type for step in forked.steps] == [step.op_type for step in meant.trace.steps]
    assert sum(h.broken for h in kvviz.hazards(forked)) == len(meant.broken)
    assert forked.label == rule


def test_a_run_is_made_again_with_the_inputs_and_caches_that_it_had() -> None:
    ctx = Context()
    x = ctx.new_tensor("f32", 3, name="x", data=[1, 2, 3])
    trace = kvviz.ggml.run(ctx.new_graph("squares").expand(ctx.set_name(ctx.sqr(x), "y")))
    tensor_set(x, [7, 7, 7])
    np.testing.assert_array_equal(trace.recipe.again().outputs["y"], [1, 4, 9])
    np.testing.assert_array_equal(trace.value("y", 0), [1, 4, 9])
    assert x.data is not None and x.data.view(np.float32).tolist() == [7, 7, 7]
    form = LayerForm()
    layer = AttentionLayer(Context(), form)
    trace = kvviz.ggml.run([layer.graph(np.full((1, form.width), i + 1.0), [i]) for i in range(3)])
    again = trace.recipe.again()
    assert len(again.runs) == 3 and kvviz.hazards(again) == kvviz.hazards(trace)
    for name, array in trace.outputs.items():
        np.testing.assert_array_equal(again.outputs[name], array)


def test_a_recording_without_data_is_led_another_way_as_a_list() -> None:
    graph = kvviz.ggml.load(DATA / "seed_write_first.jsonl").graphs[0]
    debugger = kvviz.debug(graph)
    assert debugger.next().reason == "step" and debugger.trace.live is None
    debugger.cursor = -1
    debugger.choose("k_read_view")
    debugger.choose("kq")
    (broken,) = kvviz.hazards(debugger.trace)
    assert broken.broken and debugger.trace.replayer is None
    with pytest.raises(KvvizError, match=r"cannot be run: .* has no data"):
        graph.session()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"policy": "rten"}, "for ggml graphs only the order can change"),
        ({"run": "kq", "order": "metal"}, r"give run \(an op of the frontier at step\) or order"),
        ({"order": "fastest"}, "there is no re-order rule 'fastest'"),
        ({"order": [3, 2, 1, 0]}, "the declared edges do not allow this order"),
    ],
)
def test_what_a_list_of_nodes_cannot_change_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(KvvizError, match=text):
        kvviz.fork(kvviz.ggml.run(kv().graph), **change)  # type: ignore[arg-type]
