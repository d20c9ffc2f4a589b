"""Dry decodes: of every way to keep a cache, asked for in every way, and what is refused."""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.decode.token_loop import DecodeSession
from kvviz.errors import InputError
from kvviz.graph.model import Graph
from tests.decode.small import DECODERS, small
from tests.engine.dry_and_real import assert_agree, facts
from tests.engine.graphs import graph_of
from tests.graph.build import MODELS


def model(name: str) -> Graph:
    return kvviz.load(MODELS / name / "model.onnx")


@pytest.mark.parametrize("policy", ["ideal", "never", "rten", "onnxruntime"])
@pytest.mark.parametrize("name", DECODERS)
def test_a_dry_decode_of_every_cache_protocol_has_the_figures_of_the_real_one(name: str, policy: str) -> None:
    graph, options = kvviz.load(small(name).proto), small(name).options
    for prompt in ([3, 1, 4], [[3, 1, 4], [1, 5, 9]]):
        for growth in ("start", "after"):
            how: dict[str, Any] = {"max_new_tokens": 4, "policy": policy, "growth": growth, **options}
            real = kvviz.decode(graph, prompt, progress=False, **how)
            assert_agree(kvviz.decode(graph, prompt, dry=True, **how), real)
    chunked = DecodeSession(graph, [3, 1, 4, 1, 5], max_new_tokens=3, chunk=2, policy=policy, **options).run_to_end()
    assert_agree(kvviz.dry(graph, prompt_tokens=5, max_new_tokens=3, chunk=2, policy=policy, **options), chunked)
    whole = kvviz.decode(graph, [3, 1, 4, 1, 5], 3, policy=policy, progress=False, **options)
    assert chunked.tokens == whole.tokens


def test_inputs_that_a_dry_decode_makes_are_of_all_its_sequences() -> None:
    graph, states = model("o03_optimum1_merged_whisper"), np.zeros((2, 20, 32), np.float32)
    real = kvviz.decode(graph, [[1, 2, 3]] * 2, 3, {"encoder_hidden_states": states}, progress=False)
    dims = {"encoder_sequence_length / 2": 20}
    assert_agree(kvviz.dry(graph, prompt_tokens=3, max_new_tokens=3, batch=2, dims=dims), real)


@pytest.mark.parametrize("room", [False, True])
@pytest.mark.parametrize("donated", [False, True])
def test_caches_to_start_from_are_as_the_caller_gave_them(donated: bool, room: bool) -> None:
    graph = model("storyteller/concat")
    before = kvviz.decode(graph, [1, 2, 3, 4], 2, progress=False)
    past = {cache.input: before.outputs[cache.output] for cache in before.caches}

    def given() -> dict[str, np.ndarray]:
        return {name: kvviz.reserve(array, 2, 20) if room else array.copy() for name, array in past.items()}

    donate = tuple(past) if donated else ()
    real = kvviz.decode(graph, [7], 3, given(), donate=donate, progress=False)
    assert_agree(kvviz.decode(graph, [7], 3, given(), donate=donate, dry=True), real)
    assert_agree(kvviz.dry(graph, given(), prompt_tokens=1, max_new_tokens=3, donate=donate), real)


def test_run_with_dry_is_the_same_as_dry() -> None:
    graph = model("o08_silero_vad_sequence")
    inputs = kvviz.inputs(graph)
    real = kvviz.run(graph, dict(inputs), policy="rten")
    assert_agree(kvviz.run(graph, dict(inputs), policy="rten", dry=True), real)
    assert facts(kvviz.run(graph, {}, dry=True)) == facts(kvviz.dry(graph))


@pytest.mark.parametrize("dry", [False, True])
def test_a_capacity_without_a_cache_is_warned_of_and_one_below_its_window_refused(dry: bool) -> None:
    with pytest.warns(UserWarning, match=r"kv_capacity=8 has no use for \w+: it keeps no cache; leave it out"):
        kvviz.decode(model("o09_dynamo_qwen2_nocache"), [1, 2, 3], 2, kv_capacity=8, dry=dry)

    graph = kvviz.load(small("grouped_window").proto)
    with pytest.raises(InputError, match=r"kv_capacity=4: cache .* holds a window of 6 rows at least"):
        kvviz.decode(graph, [3, 1, 4], 2, kv_capacity=4, dry=dry)


BRANCH = graph_of("""g (float[4] x) => (float[4] y) <bool go = {1}> {
    s = ReduceSum <keepdims = 0> (x)  k = Softmax (x)
    y = If (go) <then_branch = t () => (float[4] a) { a = Neg (k) },
                 else_branch = e () => (float[4] b) { b = Add (k, s) }> }""")


OFTEN = "how often a Loop runs"


@pytest.mark.parametrize(
    ("op", "count", "why"),
    [
        ("ReduceSum", 3, OFTEN),
        ("Softmax", 4, OFTEN),
        ("Neg", 1, OFTEN),
        ("If", 0, "known to be True"),
        ("If", 2, ""),
    ],
)
def test_a_count_that_data_does_not_decide_is_refused(op: str, count: int, why: str) -> None:
    named = {node.op_type: node.name for _, node in BRANCH.walk()}
    assert "Neg" in [step.op_type for step in kvviz.dry(BRANCH, counts={named["If"]: 1}).steps]
    with pytest.raises(InputError, match=rf"counts says {count} for node '{named[op]}' \({op}\).*{why}"):
        kvviz.dry(BRANCH, counts={named[op]: count})
