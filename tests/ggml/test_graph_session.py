"""ggml graphs that are stepped through live, and led another way: another ready node, a rule, an order of one's own."""

import numpy as np
import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor_data import tensor_set
from kvviz.ggml.order.what_if import reorder
from kvviz.view.page_data.payload_lanes import lane_header
from tests.ggml.attention_layer import AttentionLayer, LayerForm
from tests.ggml.recordings import DATA
from tests.ggml.seed_graphs import SEEDS, kv


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
