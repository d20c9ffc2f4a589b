"""Layers of a recorded graph by llama.cpp's names, and their nodes by the role that they have in every layer."""

from collections import Counter

import pytest

from kvviz.ggml.graph.graph_trace import layers_of
from kvviz.ggml.graph.tensor import Tensor, new_tensor
from kvviz.graph.blocks import blocks
from kvviz.graph.layers import places
from tests.ggml.recordings import recording


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


def test_roles_are_the_words_of_llama_cpp_and_the_same_in_all_layers() -> None:
    graph = recording("smollm2_fa_off.jsonl.gz").graphs[1].trace.graph
    roles = [{place.role for place in places(graph).values() if place.layer == layer} for layer in range(30)]
    assert {"Qcur/ROPE", "Kcur/MUL_MAT", "cache_k/SET_ROWS", "cache_v/SET_ROWS", "kq/MUL_MAT", "l_out/ADD"} <= roles[0]
    assert all(one == roles[0] for one in roles[:29])
    # The last layer goes on with the rows alone of which the result is wanted.
    assert roles[29] - roles[0] == {"GET_ROWS #1", "GET_ROWS #2"}


def test_layers_of_a_decode_step_fold_into_one_drawing() -> None:
    graph = recording("smollm2_fa_off.jsonl.gz").graphs[1].trace.graph
    found = blocks(graph)
    forms = Counter(tuple(node.op_type for node in one.nodes) for one in found)
    assert len(found) == 32 and max(forms.values()) >= 28
    assert [one.title for one in found[1:31]] == [f"layer {number}" for number in range(30)]


def test_a_node_without_a_number_is_of_the_layer_that_it_continues_or_stands_in() -> None:
    names = ["embd", "norm-0", "node_2", "Kcur-1", "tail of 0", "l_out-0", "rows of 0", "l_out-1", "result_norm"]
    nodes = [new_tensor("f32", (4,), name) for name in names]
    for node, source in zip(nodes[1:], nodes):
        node.op, node.src = "ADD", [source]
    nodes[4].src = [nodes[2]]
    assert layers_of(nodes) == [None, 0, 0, 1, 0, 0, 1, 1, None]


def test_layers_of_an_encoder_and_of_a_decoder_follow_from_their_weights() -> None:
    for side in ("enc", "dec"):
        nodes: list[Tensor] = []
        for layer in range(2):
            weight = new_tensor("f32", (4, 4), f"{side}.blk.{layer}.attn_q.weight")
            weight.role = "weight"
            node = new_tensor("f32", (4,), f"node_{layer}")
            node.op, node.src = "MUL_MAT", [weight, *nodes[-1:]]
            nodes.append(node)
        assert layers_of(nodes) == [0, 1]
