"""Decoders that keep no cache, or take a fixed number of tokens a run: what onnxruntime chooses, fed everything."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.errors import InputError
from tests.decode.oracle import assert_close
from tests.decode.small import DECODERS, VOCABULARY, after, attend, before, causal, small, weights
from tests.decode.test_protocols import COUNT, PROMPT, answer
from tests.graph.build import MODELS, model, node
from tests.ort_session import session_of

QWEN = MODELS / "o09_dynamo_qwen2_nocache"


def fixed(proto: onnx.ModelProto, length: int, dims: Sequence[str]) -> onnx.ModelProto:
    """A model whose dimensions of these names have a length."""
    one = onnx.ModelProto()
    one.CopyFrom(proto)
    for value in (*one.graph.input, *one.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = length
    del one.graph.value_info[:]
    return one


@cache
def qwen(length: int = 0) -> onnx.ModelProto:
    proto = onnx.load(QWEN / "model.onnx")
    names = {dim.dim_param for dim in proto.graph.input[0].type.tensor_type.shape.dim}
    return fixed(proto, length, sorted(names - {""})) if length else proto


def plain(*controls: str, logits: str = "batch length", bias: Sequence[Any] | None = None) -> onnx.ModelProto:
    """A decoder of one layer that keeps nothing. Several sequences have the same positions."""
    nodes = [*before(), *(causal("k") if bias is None else bias), *attend("k", "v"), *after()]
    inputs = ["input_ids int64 batch length", "cache_position int64 length", *controls]
    if logits == "batch":
        nodes = [*nodes[:-1], node("MatMul", "h Wl", "all"), node("Gather", "all minus", "logits", axis=1)]
    return model(nodes, inputs, [f"logits float {logits} {VOCABULARY}"], **weights(), minus=np.int64(-1))


def whole(proto: onnx.ModelProto, prompt: Sequence[int], count: int, last: int = 1 << 30) -> list[int]:
    """Tokens that onnxruntime chooses when every run is fed the whole sequence, or its ``last`` tokens."""
    session, tokens = session_of(proto), list(prompt)
    for _ in range(count):
        fed = tokens[-last:]
        feeds = {"input_ids": np.array([fed]), "cache_position": np.arange(len(fed))}
        feeds = {value.name: feeds[value.name] for value in session.get_inputs()}
        tokens.append(int(session.run(None, feeds)[0][0, -1].argmax()))
    return tokens[len(prompt) :]


# A sequence of any length


def test_a_decoder_without_a_cache_chooses_what_onnxruntime_chooses_for_the_whole_sequence() -> None:
    ref = np.load(QWEN / "ref.npz")
    trace = kvviz.decode(kvviz.load(QWEN), ref["prompt"].tolist(), len(ref["tokens"]), poison=True, progress=False)
    assert trace.tokens == ref["tokens"].tolist() == whole(qwen(), ref["prompt"].tolist(), len(ref["tokens"]))
    for have, want in zip(trace.logits, ref["logits"], strict=True):
        assert_close(have[0], want)


@pytest.mark.parametrize("policy", ["ideal", "never", "rten", "onnxruntime"])
def test_prompts_of_unequal_length_are_decoded_together_as_one_by_one(policy: str) -> None:
    prompts = [[3, 7, 1, 9], [5], [2, 8]]
    trace = kvviz.decode(kvviz.load(plain()), prompts, 6, policy=policy, progress=False)
    assert trace.batch_tokens == [whole(plain(), prompt, 6) for prompt in prompts]


def test_a_decode_without_a_cache_can_be_stepped_saved_and_repeated(tmp_path: Path) -> None:
    trace = kvviz.decode(kvviz.load(plain()), PROMPT, 4, progress=False)
    trace.save(tmp_path / "t.kvviz")
    assert kvviz.Trace.load(tmp_path / "t.kvviz").tokens == trace.tokens == trace.recipe.again().tokens
    debugger = kvviz.debug(kvviz.load(plain()), prompt=PROMPT, max_new_tokens=4)
    debugger.resume()
    assert debugger.trace.tokens == trace.tokens
    debugger.close()


# A sequence of a fixed length


def test_padding_is_masked_where_there_is_a_mask() -> None:
    # given attention in both directions, so that padding would be seen
    hide = [
        node("Cast", "attention_mask", "real", to=9),
        node("Where", "real nothing hide", "flatbias"),
        node("Unsqueeze", "flatbias axes", "maskbias"),
        *causal("k")[:-1],
        node("Where", "seen nothing hide", "causalbias"),
        node("Add", "maskbias causalbias", "bias"),
    ]
    proto = plain("attention_mask int64 batch length", bias=hide)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 2]), "axes"))
    trace = kvviz.decode(kvviz.load(fixed(proto, 9, ["length"])), PROMPT, 5, progress=False)
    assert trace.tokens == whole(plain(), PROMPT, 5)


def test_tokens_that_fit_are_scored_at_their_last_place_and_more_refused() -> None:
    graph, fits, cure = kvviz.load(qwen(6)), [5, 17, 33], "ask for at most 4 new tokens, or pass cache='window'"
    for count in (1, 4):
        assert kvviz.decode(graph, fits, count, progress=False).tokens == whole(qwen(), fits, count)
    for prompt, count, advice in ((fits, 5, cure), ([5] * 7, 1, "give a shorter prompt")):
        with pytest.raises(InputError, match=f"input 'input_ids' takes 6 tokens, .* need 7; {advice}"):
            kvviz.decode(graph, prompt, count)


@pytest.mark.parametrize("prompt", [[5, 17, 33], [9, 8, 7, 6, 5, 4, 3, 2]])
def test_a_window_over_the_last_tokens_slides_where_it_is_asked_for(prompt: list[int]) -> None:
    trace = kvviz.decode(kvviz.load(qwen(6)), prompt, 10, cache="window", progress=False)
    assert trace.tokens == whole(qwen(), prompt, 10, last=6)
    assert trace.prompt == prompt
    # It needs a fixed length and no cache.
    for proto, why in ((plain(), "takes sequences of any length"), (small("concat").proto, "keeps a cache")):
        with pytest.raises(InputError, match=why):
            kvviz.decode(kvviz.load(proto), PROMPT, 2, cache="window")


def test_scores_of_the_last_place_alone_say_nothing_behind_padding() -> None:
    proto = plain(logits="batch")
    assert kvviz.decode(kvviz.load(proto), PROMPT, 4, progress=False).tokens == whole(plain(), PROMPT, 4)
    filled = kvviz.load(fixed(proto, len(PROMPT), ["length"]))
    assert kvviz.decode(filled, PROMPT, 1, progress=False).tokens == whole(plain(), PROMPT, 1)
    with pytest.raises(InputError, match="the last one is padding"):
        kvviz.decode(filled, PROMPT[:2], 1)


# One token a run


@pytest.mark.parametrize("name", sorted(set(DECODERS) - {"merged"}))
def test_a_graph_of_one_token_a_run_reads_a_prompt_token_by_token(name: str) -> None:
    graph = kvviz.load(fixed(small(name).proto, 1, ["length"]))
    trace = kvviz.decode(graph, PROMPT, COUNT, poison=True, progress=False, **small(name).options)
    assert trace.tokens == answer(name)[0]
    for have, want in zip(trace.logits, answer(name)[1], strict=True):
        assert_close(have, want)
    # then each token of the prompt has a run, and only the last of them gives a token
    unread = len(PROMPT) - 1
    assert [run.token for run in trace.runs] == [None] * unread + trace.tokens
    labels = [run["label"] for run in kvviz.explain(trace).to_dict()["runs"]]
    assert labels[: unread + 2] == ["prefill", "prefill 1", "prefill 2", "prefill 3", "decode 1"]
    assert all(len(cache.runs) == len(trace.runs) for cache in trace.caches)


def test_a_graph_with_a_cache_and_several_tokens_a_run_reads_a_prompt_that_they_divide() -> None:
    graph = kvviz.load(fixed(small("concat").proto, 2, ["length"]))
    assert kvviz.decode(graph, PROMPT, 1, progress=False).tokens == answer("concat")[0][:1]
    refused: list[tuple[Any, int, str]] = [
        ([3, 7, 1], 1, "takes 2 tokens a run, but a decode feeds it a prompt of 3"),
        ([3, 7], 2, "takes 2 tokens a run"),
        ([[3, 7, 1, 4], [3, 7]], 1, "padding"),
    ]
    for prompt, count, why in refused:
        with pytest.raises(InputError, match=why):
            kvviz.decode(graph, prompt, count)


# What a cache would leave


@pytest.mark.parametrize(
    ("length", "prompt", "count", "options", "told"),
    [
        (0, [5, 17, 33], 4, {}, "18 in 4 runs; a cache would leave 6"),
        (0, [5, 17, 33], 1, {}, "3 in 1 run"),
        (6, [5, 17, 33], 4, {}, "24 in 4 runs; a cache would leave 6"),
        # every token has moved to another place, and nothing that was kept would hold
        (6, [5, 17, 33], 7, {"cache": "window"}, "42 in 7 runs"),
    ],
)
def test_what_is_computed_again_without_a_cache_is_said_by_every_report(
    length: int, prompt: list[int], count: int, options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    made = kvviz.decode(kvviz.load(qwen(length)), prompt, count, progress=False, **options)
    made.save(tmp_path / "t.kvviz")
    sentence = f"no cache: every run computes all tokens again, {told}"
    for trace in (made, kvviz.Trace.load(tmp_path / "t.kvviz")):
        report = kvviz.explain(trace)
        assert sentence in repr(report) and f"| caches | {sentence} |" in report.to_markdown()
        assert sentence in report._repr_html_()
        assert sentence in [one["title"] for one in report.to_dict()["findings"]]
        (finding,) = report.to_dict()["cache_findings"]
        assert (finding["kind"], finding["caches"], finding["sentence"]) == ("no cache", (), sentence)
        assert not kvviz.cache_warnings(trace)


def test_sequences_of_a_batch_are_counted_together_and_runs_with_a_cache_not_at_all() -> None:
    trace = kvviz.decode(kvviz.load(plain()), [[5, 17, 3], [2]], 7, progress=False)
    # of both sequences: 3, 4, … 9 tokens, and with a cache 3 and then 1 a run
    assert str(kvviz.explain(trace).caches[0]).endswith("again, 84 in 7 runs; a cache would leave 18")
    once = kvviz.run(kvviz.load(qwen()), {"input_ids": np.array([[5, 17, 33]])})
    kept = kvviz.decode(kvviz.load(small("concat").proto), PROMPT, 3, progress=False)
    assert all("no cache:" not in repr(kvviz.explain(trace)) for trace in (once, kept))
