"""Graphs of published sizes without weights, and what their decodes cost."""

import math
import pickle
from typing import Any

import pytest

import kvviz
from kvviz.errors import InputError, LoadError
from kvviz.graph.model import Graph

# Parameters, as counted in the weight files that the models are published as; where a file has the embedding a second
# time as its head (Qwen 3 0.6B), once. DeepSeek-V3 without the module that predicts several tokens.
PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "smollm2-135m": 134_515_008,
    "tinyllama-1.1b": 1_100_048_384,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "mistral-7b": 7_241_732_096,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "deepseek-v3": 671_026_419_200,
}
# Bytes of cache for a token, in numbers of two bytes: the first three as in "Insights into DeepSeek-V3" (ISCA 2025),
# table 1; the others are 2 x layers x key heads x head size x 2, by the models' config.json.
TOKEN = {
    "deepseek-v3": 70_272,
    "qwen2.5-72b": 327_680,
    "llama-3.1-405b": 516_096,
    "llama-2-7b": 524_288,
    "llama-3-8b": 131_072,
    "llama-3-70b": 327_680,
    "qwen3-32b": 262_144,
    "mistral-7b": 131_072,
    "gemma-2-9b": 344_064,
    "gemma-3-1b": 26_624,
    "whisper-large-v3": 163_840,
}


def parameters(graph: Graph) -> int:
    """Elements of all weights but the tables of positions and the constants of operators, which are no parameters."""
    values = [graph.weights.declared(name) for name in graph.weights if name.endswith(("weight", "bias"))]  # type: ignore[attr-defined]
    return sum(math.prod(value.shape) for value in values)


@pytest.mark.parametrize("name", sorted(kvviz.shapes.PRESETS.keys() - {"whisper-tiny", "whisper-large-v3"}))
def test_a_preset_has_the_parameters_of_the_published_model(name: str) -> None:
    assert parameters(kvviz.shapes.preset(name, form="static")) == PUBLISHED[name]


@pytest.mark.parametrize(("name", "published", "mels"), [("tiny", 37_760_640, 80), ("large-v3", 1_543_490_560, 128)])
def test_whispers_decoder_and_its_encoder_have_the_published_parameters(name: str, published: int, mels: int) -> None:
    size = kvviz.shapes.PRESETS[f"whisper-{name}"]
    width = size.hidden
    # given the encoder: two convolutions of three taps, places of 1500 rows, layers, and a norm
    layer = 4 * width**2 + 3 * width + 2 * width * size.inner + size.inner + width + 4 * width
    encoder = 3 * mels * width + width + 3 * width**2 + width + 1500 * width + size.layers * layer + 2 * width
    # and the products that make keys and values of its rows
    crossing = size.layers * (2 * width**2 + width)
    assert parameters(kvviz.shapes.preset(f"whisper-{name}")) + encoder + crossing == published


@pytest.mark.parametrize("form", ["concat", "static"])
@pytest.mark.parametrize("name", TOKEN)
def test_a_token_adds_the_published_bytes_to_the_caches(name: str, form: str) -> None:
    graph = kvviz.shapes.preset(name, form=form, dtype="bfloat16")
    outputs = [value for value in graph.outputs if value.name != "logits"]
    fixed = [[dim for dim in value.shape or () if isinstance(dim, int)] for value in outputs]
    assert sum(2 * math.prod(dims) for dims in fixed) == TOKEN[name]


def test_a_decoder_of_the_same_sizes_with_weights_costs_the_same() -> None:
    """SmolLM2, of which the weights are at hand."""
    real = kvviz.load("build/smollm2/model.onnx")
    made = kvviz.shapes.preset("smollm2-135m", dtype="float32")
    assert [node.op_type for node in made.nodes] == [node.op_type for node in real.nodes]
    for policy in ("ideal", "onnxruntime"):
        ours = kvviz.dry(made, prompt_tokens=5, max_new_tokens=3, policy=policy)
        theirs = kvviz.decode(real, [5] * 5, 3, progress=False, stop_tokens=(), policy=policy)
        assert ours.peak_bytes == theirs.peak_bytes
        assert [step.live_bytes for step in ours.steps] == [step.live_bytes for step in theirs.steps]


def test_a_graph_without_weights_is_not_run_with_numbers_and_can_be_pickled_and_costs_the_same() -> None:
    graph = kvviz.shapes.preset("llama-3-8b", form="gqa")
    again = pickle.loads(pickle.dumps(graph))
    costs = [kvviz.dry(one, prompt_tokens=9, max_new_tokens=2).peak_bytes for one in (graph, again)]
    assert costs[0] == costs[1]
    for one in (graph, again):
        with pytest.raises(LoadError, match=r"llama-3-8b was made from its shapes and has no weights; use kvviz.dry"):
            kvviz.decode(one, [1, 2])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_all_that_computes_has_the_type_asked_for(dtype: str) -> None:
    graph = kvviz.shapes.llama(2, 64, 4, 2, vocabulary=100, positions=64, dtype=dtype)
    trace = kvviz.dry(graph, prompt_tokens=3, max_new_tokens=2)
    kinds = {out.dtype for step in trace.steps for out in step.outs}
    assert kinds - {"int64", "bool"} == {dtype}


def test_wrong_sizes_are_said() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: kvviz.shapes.preset("llama-9"), "no sizes are known of 'llama-9'"),
        (lambda: kvviz.shapes.preset("llama-3-8b", form="paged"), "there is no form 'paged'"),
        (lambda: kvviz.shapes.preset("deepseek-v3", form="gqa"), "so deepseek-v3 has no form 'gqa'"),
        (lambda: kvviz.shapes.preset("whisper-large-v3", form="gqa"), "so whisper-large-v3 has no form 'gqa'"),
        (lambda: kvviz.shapes.llama(2, 64, 4, 3), "do not go together"),
        (lambda: kvviz.shapes.preset("llama-3-8b", depth=2), "a shape has no depth; it has layers, hidden"),
        (lambda: kvviz.shapes.llama(1, 64, 0), "must be 1 or more"),
        (lambda: kvviz.shapes.llama(0, -64, 4, 0, vocabulary=0), "must be 1 or more"),
    ]
    for call, says in cases:
        with pytest.raises(InputError, match=says):
            call()
