"""Graphs of published sizes without weights, and what their decodes cost."""

from __future__ import annotations

import math
from typing import Any

import pytest

import kvviz
from kvviz.errors import InputError, LoadError

# Parameters in billions, as the models' cards state them.
PUBLISHED = {
    "llama-2-7b": 6.74,
    "llama-3-8b": 8.03,
    "llama-3-70b": 70.6,
    "llama-3.1-405b": 405.9,
    "llama-3.2-1b": 1.24,
    "llama-3.2-3b": 3.21,
    "smollm2-135m": 0.135,
}


def parameters(graph: kvviz.graph.model.Graph) -> int:
    """Elements of all weights but the tables of positions, which are no parameters."""
    values = [graph.weights.declared(name) for name in graph.weights if "rotary_emb" not in name]  # type: ignore[attr-defined]
    return sum(math.prod(value.shape) for value in values)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_as_many_parameters_as_the_published_model(name: str) -> None:
    assert parameters(kvviz.shapes.preset(name)) / 1e9 == pytest.approx(PUBLISHED[name], rel=5e-3)


@pytest.mark.parametrize("form", ["concat", "attention", "gqa"])
def test_cache_bytes_follow_the_closed_form(form: str) -> None:
    # given 80 layers, keys and values of 8 heads of 128 numbers of two bytes
    graph = kvviz.shapes.preset("llama-3.1-70b", form=form)
    row = 80 * 2 * 8 * 128 * 2
    # when
    trace = kvviz.dry(graph, prompt_tokens=1000, max_new_tokens=3)
    # then
    assert row == 327_680
    for run, rows in enumerate((1000, 1001, 1002)):
        nbytes = sum(cache.runs[run].capacity * 8 * 128 * 2 for cache in trace.caches)
        assert nbytes == rows * row
    # Each token after the prefill copies all rows before it where the cache has no room to grow.
    past = [sum(cache.runs[run].bytes_copied for cache in trace.caches) for run in range(3)]
    assert past == [0, 1000 * row, 1001 * row]


@pytest.mark.parametrize("form", ["concat", "attention", "gqa"])
def test_reserved_room_saves_the_copies(form: str) -> None:
    graph = kvviz.shapes.preset("llama-3-8b", form=form)
    trace = kvviz.dry(graph, prompt_tokens=100, max_new_tokens=3, kv_capacity=128)
    assert [sum(cache.runs[run].bytes_copied for cache in trace.caches) for run in range(3)] == [0, 0, 0]


def test_a_decoder_of_the_same_sizes_with_weights_costs_the_same() -> None:
    """SmolLM2, of which the weights are at hand."""
    real = kvviz.load("build/smollm2/model.onnx")
    made = kvviz.shapes.preset("smollm2-135m", dtype="float32")
    assert [node.op_type for node in made.nodes] == [node.op_type for node in real.nodes]
    ours = kvviz.dry(made, prompt_tokens=5, max_new_tokens=3)
    theirs = kvviz.decode(real, [5] * 5, 3, progress=False, stop_tokens=())
    assert ours.peak_bytes == theirs.peak_bytes
    assert [step.live_bytes for step in ours.steps] == [step.live_bytes for step in theirs.steps]


def test_weights_that_are_not_there_are_not_run_with_numbers() -> None:
    with pytest.raises(LoadError, match=r"llama-3-8b was made from its shapes and has no weights; use kvviz.dry"):
        kvviz.decode(kvviz.shapes.preset("llama-3-8b"), [1, 2])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_all_that_computes_has_the_type_asked_for(dtype: str) -> None:
    graph = kvviz.shapes.llama(2, 64, 4, 2, vocabulary=100, positions=64, dtype=dtype)
    trace = kvviz.dry(graph, prompt_tokens=3, max_new_tokens=2)
    kinds = {out.dtype for step in trace.steps for out in step.outs}
    assert kinds - {"int64", "bool"} == {dtype}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: kvviz.shapes.preset("llama-9"), "no sizes are known of 'llama-9'"),
        (lambda: kvviz.shapes.preset("llama-3-8b", form="paged"), "there is no form 'paged'"),
        (lambda: kvviz.shapes.llama(2, 64, 4, 3), "do not go together"),
    ],
)
def test_wrong_sizes_are_said(call: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("size", [{"layers": 0}, {"heads": 0}, {"kv_heads": 0}, {"hidden": -64}, {"vocabulary": 0}])
def test_sizes_below_one_are_refused(size: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be 1 or more"):
        kvviz.shapes.llama(**{"layers": 1, "hidden": 64, "heads": 4, "vocabulary": 100, **size})
