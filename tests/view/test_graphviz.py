"""Graphs and traces as Digraphs of the package graphviz: what is drawn, how it is dressed, and that dot takes it."""

from pathlib import Path

import graphviz
import pygraphviz
import pytest

import kvviz
from kvviz.debugger.state import node_states
from kvviz.errors import InputError
from kvviz.report.palette import STATES
from tests.graph.build import MODELS
from tests.view.sketches import FAKE_DOT, program


@pytest.fixture(scope="module")
def story() -> kvviz.Trace:
    return kvviz.decode(MODELS / "storyteller" / "attention_24" / "model.onnx", [5, 17, 33], 3)


@pytest.fixture(scope="module")
def llama() -> kvviz.Trace:
    return kvviz.decode(MODELS / "o01_optimum_llama" / "model.onnx", [5, 17, 33], 2)


LOOKS = ("label", "color", "style", "peripheries")
Looks = dict[str, str]


def nodes(drawing: graphviz.Digraph) -> dict[str, Looks]:
    """All nodes by their id, as Graphviz reads them."""
    graph = pygraphviz.AGraph(string=drawing.source)
    return {str(node): {name: node.attr[name] or "" for name in LOOKS} for node in graph.nodes()}


def boxes(drawing: graphviz.Digraph) -> dict[str, Looks]:
    return {name: looks for name, looks in nodes(drawing).items() if name[0] == "n"}


def edges(drawing: graphviz.Digraph) -> list[tuple[str, str, Looks]]:
    """All edges between boxes, as Graphviz reads them."""
    graph = pygraphviz.AGraph(string=drawing.source)
    found = [
        (str(a), str(b), {name: edge.attr[name] or "" for name in LOOKS}) for edge in graph.edges() for a, b in [edge]
    ]
    return [edge for edge in found if edge[0][0] == edge[1][0] == "n"]


def test_every_node_of_a_graph_is_a_box_with_its_op_and_every_value_an_edge(llama: kvviz.Trace) -> None:
    drawing = llama.graph.to_graphviz(fold=False)
    assert isinstance(drawing, graphviz.Digraph)
    assert [look["label"].split("\\n")[0] for look in boxes(drawing).values()] == [n.op_type for n in llama.graph.nodes]
    made = {name: i for i, node in enumerate(llama.graph.nodes) for name in node.outputs}
    wanted = {(f"n{made[v]}", f"n{i}") for i, node in enumerate(llama.graph.nodes) for v in node.inputs if v in made}
    assert {edge[:2] for edge in edges(drawing)} == wanted


def test_layers_that_are_alike_are_drawn_once(story: kvviz.Trace) -> None:
    whole, folded = boxes(story.graph.to_graphviz(fold=False)), boxes(story.graph.to_graphviz())
    assert len(whole) == len(story.graph.nodes)
    attention = [look["label"] for look in folded.values() if look["label"].startswith("Attention")]
    assert len(attention) == 1 and attention[0].endswith("× 3 layers")
    told = [look["label"].rpartition("× ")[2].split(" ")[0] for look in folded.values()]
    assert sum(int(times) if times.isdigit() else 1 for times in told) == len(whole)
    ends = [looks["label"] for name, looks in nodes(story.graph.to_graphviz()).items() if name[0] in "io"]
    assert "past_key_values.0.key\\nand 5 more" in ends and "logits" in ends


def test_a_box_has_fill_border_and_letter_of_its_state_as_of_the_step(llama: kvviz.Trace) -> None:
    for step in (0, 57, 233, 399, 700):
        states = node_states(llama, step)
        drawn = boxes(llama.to_graphviz(step, fold=False)).values()
        for state, look in zip(states, drawn, strict=True):
            wanted = STATES[state]
            assert look["color"] == (wanted.light if wanted.border != "thin" else look["color"])
            assert not wanted.letter or look["label"].startswith(wanted.letter)
            assert ("dashed" in look["style"], "dotted" in look["style"]) == (
                wanted.border == "dashed",
                wanted.border == "dotted",
            )
            assert (look["peripheries"] == "2") is (wanted.border == "double")
        text = llama.to_graphviz(step, fold=False).source
        assert {name for name in STATES if f"legend_{name}" in text} == set(states) - {"waiting", "done"}


def test_a_folded_box_shows_the_layer_of_the_step_and_counts_the_others(story: kvviz.Trace) -> None:
    graph = story.graph
    third = [step.index for step in story.steps[: len(graph.nodes)] if step.op_type == "Attention"][2]
    drawn = [look["label"] for look in boxes(story.to_graphviz(third)).values() if "Attention" in look["label"]]
    assert len(drawn) == 1
    assert drawn[0].startswith("▶ Attention\\nmodel/layers.2/") and "▶ 1" in drawn[0]


@pytest.mark.parametrize("fold", [False, True])
def test_hidden_pairs_are_drawn_between_their_steps(fold: bool, llama: kvviz.Trace) -> None:
    pairs = kvviz.hazards(llama, run=0)
    drawn = [edge for edge in edges(llama.to_graphviz(399, fold=fold)) if edge[2]["color"] == "#d55e00"]
    times = [looks["label"].partition("× ")[2] for _, _, looks in drawn]
    assert sum(int(number or 1) for number in times) == len(pairs) > 0
    assert {looks["label"].split(" ")[0] for _, _, looks in drawn} == {pair.kind for pair in pairs}
    if not fold:
        order = [node.index for node in llama.frames[0].order]
        at = {step.index: f"n{order.index(step.node_index)}" for step in llama.steps[:400]}
        assert {(at[pair.first], at[pair.second]) for pair in pairs} == {edge[:2] for edge in drawn}
    assert not [e for e in edges(llama.to_graphviz(399, hidden=False)) if e[2]["color"] == "#d55e00"]


def test_a_step_in_a_body_draws_the_body() -> None:
    trace = kvviz.decode(MODELS / "storyteller" / "merged_if" / "model.onnx", [5, 17], 2)
    inner = next(step for step in trace.steps if step.frame)
    drawing = trace.to_graphviz(inner.index, fold=False)
    assert len(boxes(drawing)) == len(trace.frames[inner.frame_id].order)
    assert "then_branch" in drawing.source or "else_branch" in drawing.source


def test_a_step_that_is_not_there_is_named(llama: kvviz.Trace) -> None:
    assert llama.to_graphviz(-1).source == llama.to_graphviz(799).source == llama.to_graphviz().source
    for step in (800, -801):
        with pytest.raises(InputError, match=f"step {step} does not exist; the trace has 800 steps"):
            llama.to_graphviz(step)


def test_it_renders_where_dot_is_and_shows_its_text_where_it_is_not(
    story: kvviz.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing = story.to_graphviz(80)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install Graphviz" in drawing._repr_mimebundle_()["text/plain"]
    program(tmp_path, FAKE_DOT)
    svg = drawing._repr_mimebundle_()["image/svg+xml"]
    assert "<svg" in svg and "Attention" in svg and "could not run in place" in svg
    assert story.graph.to_graphviz().pipe(format="svg").startswith(b"<?xml")
