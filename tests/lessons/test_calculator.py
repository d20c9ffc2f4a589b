"""The calculator against published figures, and against what a recording really writes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.lessons import BANDWIDTHS, MODELS, Calculator, ModelShape, cache_size
from kvviz.lessons.cache_arithmetic import binary, chart

STORYTELLER = Path(__file__).resolve().parents[2] / "assets" / "models" / "storyteller"


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        # as the published weight files have them
        ("SmolLM2-135M", 134_515_008),
        ("Qwen2.5-0.5B", 494_032_768),
        ("TinyLlama-1.1B", 1_100_048_384),
        ("Llama-2-7B", 6_738_415_616),
        ("Llama-2-13B", 13_015_864_320),
        ("Llama-2-70B", 68_976_648_192),
        ("Mistral-7B", 7_241_732_096),
        ("Llama-3-8B", 8_030_261_248),
        ("Llama-3-70B", 70_553_706_496),
        ("Llama-3.1-8B", 8_030_261_248),
        ("Llama-3.1-70B", 70_553_706_496),
        ("Llama-3.1-405B", 405_853_388_800),
    ],
)
def test_a_models_shape_gives_the_number_of_its_published_weights(model: str, parameters: int) -> None:
    assert MODELS[model].parameters == parameters


@pytest.mark.parametrize(
    ("model", "dtype", "kib"),
    [
        ("Llama-2-7B", "float16", 512),
        ("Llama-3-8B", "bfloat16", 128),
        ("Llama-3-70B", "bfloat16", 320),
        ("Mistral-7B", "float16", 128),
        ("Llama-3.1-405B", "float16", 504),
        ("SmolLM2-135M", "float32", 45),
        ("SmolLM2-135M", "float16", 22.5),
    ],
)
def test_one_token_adds_what_is_published(model: str, dtype: str, kib: float) -> None:
    assert cache_size(model, dtype=dtype).bytes_per_token == kib * 1024


def test_whole_caches_are_as_large_as_is_published() -> None:
    assert cache_size("Llama-3-70B", 131072).cache_bytes == 40 * 2**30
    assert cache_size("Llama-3-8B", 131072).cache_bytes == 16 * 2**30
    assert cache_size("Llama-2-7B", 4096).cache_bytes == 2 * 2**30
    assert cache_size("Llama-2-7B", 4096, 8).cache_bytes == 16 * 2**30


@pytest.mark.parametrize(("model", "context"), [("Llama-3-8B", 8192), ("Llama-3-70B", 8192), ("Llama-3.1-8B", 131072)])
def test_by_default_a_sequence_is_as_long_as_the_model_was_made_for(model: str, context: int) -> None:
    assert cache_size(model).length == context


def test_a_sliding_window_bounds_the_cache() -> None:
    short, long = cache_size("Mistral-7B", 4096), cache_size("Mistral-7B", 32768)
    assert short.cache_bytes == long.cache_bytes == 512 * 2**20
    assert long.outgrows is None and "the last 4,096 tokens of 32,768" in str(long)


def test_the_storyteller_writes_just_that_for_every_word() -> None:
    # given
    words = json.loads((STORYTELLER / "vocab.json").read_text())
    graph = kvviz.load(STORYTELLER / "concat" / "model.onnx")
    trace = kvviz.decode(graph, "once upon a time", max_new_tokens=3, tokenizer=words, kv_capacity=8, progress=False)
    size = cache_size("storyteller", 8)
    # then: what a run writes into its caches, what room for 8 rows takes, what the weights are
    assert sum(cache.runs[1].bytes_written for cache in trace.caches) == size.bytes_per_token == 768
    held = {cache.runs[1].storage: cache.runs[1].capacity for cache in trace.caches}
    assert sum(trace.storages[storage].capacity for storage in held) == size.cache_bytes
    tensors = [w for name, w in graph.weights.items() if "weight" in name or "MatMul" in name]
    assert sum(w.size for w in tensors) == size.shape.parameters


def test_the_cache_outgrows_the_weights_just_there() -> None:
    for model in ("Llama-2-7B", "Llama-3-8B", "SmolLM2-135M"):
        for batch in (1, 7):
            at = cache_size(model, batch=batch).outgrows
            assert at is not None
            assert cache_size(model, at, batch).cache_bytes > cache_size(model, at, batch).weight_bytes
            assert cache_size(model, at - 1, batch).cache_bytes <= cache_size(model, at, batch).weight_bytes


def test_a_decode_step_takes_as_long_as_reading_everything_once() -> None:
    # given: 15 GB of weights but the input embeddings, of which one row is looked up, and next to no cache
    multiplied = 2 * (8_030_261_248 - 128256 * 4096)
    one = cache_size("Llama-3-8B", 1, bandwidth=2039e9)
    assert one.tokens_per_second == pytest.approx(2039e9 / (multiplied + 131072))
    # a batch shares the weights, not the cache
    many = cache_size("Llama-3-8B", 1, 64, bandwidth=2039e9)
    assert 63 < many.tokens_per_second / one.tokens_per_second < 64
    long = cache_size("Llama-3-8B", 131072, 64, bandwidth=2039e9)
    assert long.tokens_per_second == pytest.approx(64 * 2039e9 / (multiplied + 64 * 16 * 2**30))
    # embeddings that are the output matrix as well are multiplied with
    tied = cache_size("SmolLM2-135M", 1, bandwidth=1e9)
    assert tied.tokens_per_second == pytest.approx(1e9 / (2 * 134_515_008 + tied.bytes_per_token))


def test_block_types_count_their_scales() -> None:
    assert cache_size("Llama-3-8B", dtype="q8_0").bytes_per_token == 65536 * 34 // 32
    assert cache_size("Llama-3-8B", dtype="q4_0").bytes_per_token == 65536 * 18 // 32


def test_what_cannot_be_computed_is_refused_in_one_sentence() -> None:
    with pytest.raises(kvviz.KvvizError, match=r"no model 'llama3-8b' here: did you mean Llama-3-8B"):
        cache_size("llama3-8b")
    with pytest.raises(kvviz.KvvizError, match="no element type 'float7'"):
        cache_size("Llama-3-8B", dtype="float7")
    with pytest.raises(kvviz.KvvizError, match="batch is 0"):
        cache_size("Llama-3-8B", batch=0)
    own = ModelShape("mine", 2, 64, 4, 4, 16, 128, 100, 512, dtype="float32")
    assert cache_size(own, 10).bytes_per_token == 2 * 2 * 4 * 16 * 4


def test_sizes_are_told_in_the_units_that_caches_are_quoted_in() -> None:
    assert [binary(n) for n in (512, 1024, 46080, 40 * 2**30, 2**41)] == ["512 B", "1 KiB", "45 KiB", "40 GiB", "2 TiB"]


def test_the_sliders_say_what_the_function_says() -> None:
    # given
    calculator = Calculator("Llama-3-8B", 8192)
    assert calculator.size == cache_size("Llama-3-8B", 8192)
    # when
    calculator.model.value = "Llama-2-7B"
    calculator.batch.value = 4
    calculator.dtype.value = "q8_0"
    calculator.bandwidth.value = BANDWIDTHS["H100 SXM"]
    # then
    wanted = cache_size("Llama-2-7B", 8192, 4, dtype="q8_0", bandwidth=3350e9)
    assert calculator.size == wanted
    assert wanted._repr_html_() in calculator._shown.value and chart(wanted) in calculator._shown.value
    # when: heads of one's own
    calculator.kv_heads.value = 8
    assert calculator.model.value == "a shape of your own"
    assert calculator.size.bytes_per_token * 4 == wanted.bytes_per_token
    calculator.model.value = "Llama-3-70B"
    assert calculator.size.shape == MODELS["Llama-3-70B"] and calculator.layers.value == 80


def test_without_a_kernel_the_figures_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr("kvviz.lessons.cache_arithmetic.display", lambda data, **options: shown.append(data))
    Calculator()._ipython_display_()
    assert "128 KiB" in shown[1]["text/html"]


@pytest.mark.parametrize("path", [(7, 6, 5, 4), (4,), (128, 4), (1, 2, 3, 4)])
def test_the_figures_do_not_depend_on_the_way_of_a_slider(path: tuple[int, ...]) -> None:
    calculator = Calculator("Llama-3-8B", 8192)
    for heads in path:
        calculator.kv_heads.value = heads
    assert (calculator.size.grouping, calculator.size.shape.heads) == (8, 32)
    calculator.kv_heads.value = 8
    assert calculator.size.cache_bytes == cache_size("Llama-3-8B", 8192).cache_bytes
    assert calculator.size.shape.parameters == MODELS["Llama-3-8B"].parameters


def test_a_large_batch_is_shown_as_it_was_given() -> None:
    assert Calculator("Llama-3-8B", 8192, batch=1000).size == cache_size("Llama-3-8B", 8192, 1000)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"layers": -1}, "layers is -1"),
        ({"head_size": 0.5}, "head_size is 0.5"),
        ({"kv_heads": 3}, "4 query heads cannot share 3 KV heads"),
        ({"kv_heads": 8}, "4 query heads cannot share 8 KV heads"),
        ({"window": -3}, "window is -3"),
    ],
)
def test_a_shape_that_no_model_has_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(kvviz.KvvizError, match=said):
        replace(MODELS["storyteller"], **change)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"length": value} for value in (0, -1, 1000.5, "1000", float("inf"), True)),
        *({"batch": value} for value in (0.5, 0)),
        *({"bandwidth": value} for value in ("H100 SXM", 0, float("nan"), float("inf"))),
        *({"dtype": value} for value in ("str", "float7")),
        {"model": None},
    ],
)
def test_a_number_that_is_none_is_refused_in_one_sentence(wrong: dict[str, Any]) -> None:
    with pytest.raises(kvviz.KvvizError, match=r"is .+; (it must|give)|no element type|there is no model None here"):
        cache_size(**{"model": "Llama-3-8B", "length": 8, **wrong})


def test_counts_of_numpy_do_not_overflow() -> None:
    assert cache_size("Llama-3-8B", np.int32(131072)).cache_bytes == 16 * 2**30
