"""Names of caches and control inputs: every convention of the exporters."""

from pathlib import Path

import pytest

from kvviz.graph import load
from kvviz.graph.cache_pairs import cache_pairs, control_inputs, logits_output
from kvviz.graph.input_roles import looks_like_cache, names_agree
from tests.graph.build import FILES, file_id, model, node
from tests.graph.test_caches import only, pairs

CONVENTIONS = [
    ("past_key_values.0.key", "present.0.key", "0.key"),
    ("past_key_values.1.encoder.value", "present.1.encoder.value", "1.encoder.value"),
    ("past_key_values.2.cross.value", "present.2.cross.value", "2.cross.value"),
    ("past_key_values.3.key_value", "present.3.key_value", "3.key.value"),
    ("past_0", "present_0", "0"),
    ("past_key_4", "present_key_4", "4.key"),
    ("past_key_self_0", "present_key_self_0", "0.self.key"),
    ("past_value_cross_1", "present_value_cross_1", "1.cross.value"),
    ("key_cache.0", "updated_key_cache.0", "0.key"),
    ("past_conv.1", "present_conv.1", "1.conv"),
    ("past_ssm.2", "present_ssm.2", "2.ssm"),
    ("past_compressor.0.kv", "present_compressor.0.kv", "0.compressor.kv"),
    ("past_indexer.0.key", "present_indexer.0.key", "0.indexer.key"),
    ("past_conv.1.query", "present_conv.1.query", "1.conv.query"),
    ("past_key_values.0.conv_state", "present.0.conv_state", "0.conv.state"),
    ("past_states.3.ssm_state", "present.3.ssm_state", "3.ssm.state"),
    ("key_cache0", "key_cache_out0", "0.key"),
    ("kv_cache_3", "new_kv_cache_3", "3.kv"),
    ("key_cache_in_2", "key_cache_out_2", "2.key"),
    ("cache_last_channel", "cache_last_channel_next", "cache_last_channel"),
    ("cache_last_channel_len", "cache_last_channel_len_next", "cache_last_channel_len"),
    ("rnn_states_prev", "rnn_states", "rnn_states"),
    ("input_states_1", "output_states_1", "1.states"),
    ("state", "stateN", "state"),
    ("h", "hn", "h"),
]


@pytest.mark.parametrize(("before", "after", "shown"), CONVENTIONS)
def test_each_naming_convention_is_understood(before: str, after: str, shown: str) -> None:
    # given nothing but names: the present is computed from the past in a way that shows no structure
    found = pairs([node("Erf", before, after)], [f"{before} float 1 2 s 8"], [f"{after} float 1 2 t 8"])
    assert (only(found).output, only(found).name) == (after, shown)


def test_names_agree_only_with_their_own_layer_and_kind() -> None:
    inputs, outputs = zip(*[(before, after) for before, after, _ in CONVENTIONS])
    agreeing = [(a, b) for a in inputs for b in outputs if names_agree(a, b)]
    assert agreeing == list(zip(inputs, outputs))


@pytest.mark.parametrize(
    ("name", "other"), [("input_ids", "logits"), ("x", "x"), ("image", "image_out"), ("mask", "output")]
)
def test_other_names_are_no_caches(name: str, other: str) -> None:
    assert pairs([node("Erf", name, f"{other}_")], [f"{name} float 1 3"], [f"{other}_ float 1 3"]) == {}
    assert not looks_like_cache(other)


# Protocols that names and shapes alone tell


@pytest.mark.parametrize(
    ("before", "after", "protocol"),
    [
        ("past_key_values.0.key float b 2 past 8", "present.0.key float b 2 total 8", "growing"),
        ("past_key_values.0.key float b 2 64 8", "present.0.key float b 2 64 8", "static"),
        ("past_key_values.0.conv_state float b 16 3", "present.0.conv_state float b 16 3", "state"),
        ("past_ssm.0 float b 16 3 4", "present_ssm.0 float b 16 3 4", "state"),
        ("rnn_states_prev float 1 b 16", "rnn_states float 1 b 16", "state"),
        ("past_key_cross_0 float b 2 enc 8", "present_key_cross_0 float b 2 enc 8", "cross"),
    ],
)
def test_without_structure_names_and_shapes_tell_the_protocol(before: str, after: str, protocol: str) -> None:
    pair = only(pairs([node("Erf", before.split()[0], after.split()[0])], [before], [after]))
    assert pair.protocol == protocol
    assert pair.axis == (None if protocol == "state" else 2)


def test_a_past_that_is_handed_through_is_a_cross_cache() -> None:
    ways = (("past_key_values.0.key", "t"), ("t", "kept"))
    nodes = [node("Transpose", before, after, perm=[0, 1, 3, 2]) for before, after in ways]
    pair = only(pairs(nodes, ["past_key_values.0.key float b 2 s 8"], ["kept float b 2 s 8"]))
    assert (pair.protocol, pair.ops, pair.writer) == ("cross", ("Transpose<-Transpose<-Input",), ("",))


def test_unnamed_outputs_of_torch_are_taken_in_order() -> None:
    # given an export of a list of keys and a list of values, whose outputs have no telling names
    caches = {f"past_key_values_{kind}_cache_{k}": f"cat_{kind[0]}{k}" for kind in ("key", "value") for k in range(2)}
    nodes = [node("Erf", before, after) for before, after in caches.items()]
    nodes.append(node("Cast", "input_ids", "logits", to=1))
    inputs = ["input_ids int64 1 s", *(f"{name} float 1 2 s 8" for name in caches)]
    outputs = ["logits float 1 s", *(f"{name} float 1 2 t 8" for name in caches.values())]
    found = pairs(nodes, inputs, outputs)
    assert [p.output for p in found.values()] == ["cat_k0", "cat_k1", "cat_v0", "cat_v1"]
    assert [p.name for p in found.values()] == ["0.key", "1.key", "0.value", "1.value"]


@pytest.mark.parametrize(
    ("grown", "is_cache"),
    [("1 2 17 8", True), ("1 2 t 8", True), ("1 2 16 8", True), ("1 2 17 9", False), ("1 3 17 8", False)],
)
def test_an_unnamed_output_may_differ_from_its_cache_in_one_length(grown: str, is_cache: bool) -> None:
    nodes = [node("Erf", "past_key_values_key_cache_0", "cat")]
    found = pairs(nodes, ["past_key_values_key_cache_0 float 1 2 16 8"], [f"cat float {grown}"])
    assert [pair.output for pair in found.values()] == ["cat"] * is_cache


# Control inputs and logits


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "model.onnx"], ids=file_id)
def test_every_input_of_a_real_model_is_a_cache_or_has_a_role(path: Path) -> None:
    g = load(path)
    known = {p.input for p in cache_pairs(g)} | set(control_inputs(g).values())
    assert {v.name for v in g.inputs} - known == ({"input"} if "silero" in str(path) else set())
    assert logits_output(g) == {"o08_silero_vad_sequence": None, "o09_dynamo_qwen2_nocache": "linear_14"}.get(
        path.parent.name, "logits"
    )


@pytest.mark.parametrize(
    ("inputs", "roles"),
    [
        (["decoder_input_ids int64 b s"], {"tokens": "decoder_input_ids"}),
        (["prompt int64 b s", "past_key_values.0.key float b 2 s 8"], {"tokens": "prompt"}),
        (["input float b 80 s"], {}),
        (["inputs_embeds float b s 8", "extra int64 b s"], {"embeddings": "inputs_embeds"}),
        (["seqlens_k int32 b"], {"seqlens_k": "seqlens_k"}),
        (["total_sequence_length int32 -"], {"total_sequence_length": "total_sequence_length"}),
        (["num_logits_to_keep int64 -"], {"num_logits_to_keep": "num_logits_to_keep"}),
    ],
)
def test_control_inputs_are_told_by_name_and_type(inputs: list[str], roles: dict[str, str]) -> None:
    assert control_inputs(load(model([], inputs, []))) == roles


@pytest.mark.parametrize(
    ("outputs", "logits"),
    [
        (["present.0.key float b 2 s 8", "logits float b s 9"], "logits"),
        (["lm_logits float b s 9", "hidden float b s 8"], "lm_logits"),
        (["scores_of_tokens float b s 9", "present.0.key float b 2 s 8"], "scores_of_tokens"),
        (["a float b s 9", "c float b s 8"], None),
    ],
)
def test_the_logits_are_found_by_name_or_as_the_only_candidate(outputs: list[str], logits: str | None) -> None:
    nodes = [node("Cast", "input_ids", text.split()[0], to=1) for text in outputs]
    assert logits_output(load(model(nodes, ["input_ids int64 b s"], outputs))) == logits
