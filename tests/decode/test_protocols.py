"""Every way to keep a cache, decoded or run as onnxruntime does it: same tokens, same numbers, same caches."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.caches.row_contents import live
from kvviz.errors import InputError
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from tests.decode.oracle import assert_close, told
from tests.decode.small import DECODERS, NAMES, WINDOW, Feeds, small
from tests.graph.build import MODELS

PROMPT, COUNT = [3, 7, 1, 9], 12


@cache
def loaded(name: str) -> Graph:
    return kvviz.load(small(name).proto)


@cache
def answer(name: str) -> tuple[list[int], list[np.ndarray], Feeds]:
    return told(small(name), PROMPT, COUNT)


def decode(name: str, **options: Any) -> Trace:
    options = {"poison": True, **small(name).options, **options}
    return kvviz.decode(loaded(name), PROMPT, COUNT, progress=False, **options)


# Token loops


@pytest.mark.parametrize("policy", ["ideal", "never", "rten", "onnxruntime"])
@pytest.mark.parametrize("name", DECODERS)
def test_a_decode_gives_what_onnxruntime_gives_whatever_keeps_the_cache(name: str, policy: str) -> None:
    tokens, logits, caches = answer(name)
    trace = decode(name, policy=policy, growth="start")
    assert trace.tokens == tokens
    for have, want in zip(trace.logits, logits, strict=True):
        assert_close(have, want)
    for kept in trace.caches:
        # Rows that hold no token may hold anything.
        for start, stop in live(kept.runs[-1].items[0].held):
            have, want = trace.outputs[kept.output], caches[kept.input]
            assert_close(have[:, :, start:stop], want[:, :, start:stop])


@pytest.mark.parametrize("name", DECODERS)
def test_the_protocol_of_each_decoder_is_recognised(name: str) -> None:
    pairs = cache_pairs(loaded(name))
    assert {pair.input: pair.output for pair in pairs} == NAMES
    assert {(pair.protocol, pair.axis) for pair in pairs} == {(small(name).protocol, 2)}


# One buffer for past and present


@pytest.mark.parametrize("name", ["o07_genai_llama_int4", "storyteller/gqa", "storyteller/gqa_int4"])
@pytest.mark.parametrize("capacity", [None, 160])
def test_a_shared_buffer_gives_the_reference_tokens_of_the_int4_models(name: str, capacity: int | None) -> None:
    ref = np.load(MODELS / name / "ref.npz")
    graph, count = kvviz.load(MODELS / name / "model.onnx"), len(ref["tokens"])
    options: dict[str, Any] = {"kv_capacity": capacity, "cache": "shared", "poison": True, "progress": False}
    trace = kvviz.decode(graph, ref["prompt"].tolist(), count, **options)
    assert trace.tokens == ref["tokens"].tolist()
    np.testing.assert_allclose(np.concatenate(trace.logits), ref["logits"], rtol=2e-4, atol=2e-4)
    needed = len(ref["prompt"]) + count - 1
    for kept in trace.caches:
        assert kept.protocol == "shared" and len({run.storage for run in kept.runs}) == 1
        assert {run.capacity for run in kept.runs} == {capacity or needed}
        # What is valid follows from the lengths that the graph computes, for the shape never changes.
        assert [run.valid for run in kept.runs] == list(range(len(ref["prompt"]), needed + 1))
        row = trace.outputs[kept.output].nbytes // (capacity or needed)
        assert [run.bytes_written for run in kept.runs[1:]] == [row] * (count - 1)
        assert not any(run.bytes_copied or run.reallocations for run in kept.runs)


def test_only_what_one_operator_can_share_is_shared() -> None:
    with pytest.raises(InputError, match="no cache of this graph can be shared: its caches are written by Concat"):
        decode("concat", cache="shared")
    with pytest.raises(InputError, match="cache must be 'growing', 'shared' or 'window', not 'ring'"):
        decode("grouped", cache="ring")
    with pytest.raises(InputError, match="holds 8 rows, but prompt and new tokens need 15"):
        decode("grouped", cache="shared", kv_capacity=8)
    # a window of open length takes the operator's own
    trace = decode("grouped_window", kv_capacity=None)
    assert {run.capacity for run in trace.caches[0].runs} == {WINDOW}
    assert trace.tokens == answer("grouped_window")[0]


# Batches


@pytest.mark.parametrize("options", [{}, {"cache": "shared"}], ids=["growing", "shared"])
def test_prompts_of_unequal_length_are_padded_where_row_counts_can_tell(options: dict[str, Any]) -> None:
    gqa = kvviz.load(MODELS / "storyteller" / "gqa" / "model.onnx")
    prompt = np.load(MODELS / "storyteller" / "gqa" / "ref.npz")["prompt"].tolist()
    prompts = [prompt[:5], prompt, prompt[:9]]
    trace = kvviz.decode(gqa, prompts, 6, progress=False, **options)
    for number, alone in enumerate(prompts):
        single = kvviz.decode(gqa, alone, 6, progress=False)
        assert trace.batch_tokens[number] == single.tokens
        for together, apart in zip(trace.logits, single.logits, strict=True):
            assert_close(together[number], apart[0])
    # they need an input that tells padding
    scatter = kvviz.load(MODELS / "storyteller" / "tensor_scatter" / "model.onnx")
    with pytest.raises(InputError, match="the graph has no attention_mask to tell it from tokens"):
        kvviz.decode(scatter, [[5, 6, 7], [8]], 2, progress=False)
    assert len(kvviz.decode(scatter, [[5, 6, 7], [8, 9, 10]], 2, progress=False).batch_tokens) == 2
