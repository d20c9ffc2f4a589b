"""Two layers of every family in every form: with numbers as in onnxruntime, and without them as with numbers.

And the cost of a long prompt in chunks, held against formulas.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import kvviz
from kvviz.decode.token_loop import DecodeSession
from kvviz.graph.model import Graph
from kvviz.shapes import FORMS, Experts, Latent
from kvviz.trace.schema.run_options import DECODE
from tests.engine.dry_and_real import assert_agree
from tests.ort_session import greedy, session_of

_LIKE = {
    "layers": 2,
    "hidden": 64,
    "inner": 96,
    "vocabulary": 100,
    "heads": 4,
    "kv_heads": 2,
    "head": 16,
    "positions": 64,
}
# Windows are shorter than the prompt, caps and scales bend what they are there to bend.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama-3-8b": _LIKE,
    "qwen2.5-7b": _LIKE,
    "qwen3-8b": _LIKE,
    "mistral-7b": {**_LIKE, "window": 5},
    "gemma-2-2b": {**_LIKE, "window": 5, "score_cap": 2.0, "logit_cap": 3.0, "scale": 0.3},
    "gemma-3-1b": {**_LIKE, "window": 5, "global_every": 2},
    "deepseek-v3": {
        **_LIKE,
        "kv_heads": 4,
        "head": 24,
        "latent": Latent(queries=32, rank=16, rotary=8, plain=16, value=12),
        "experts": Experts(count=4, chosen=2, inner=24, shared=1, first=1, scale=2.5),
    },
    "whisper-large-v3": {**_LIKE, "kv_heads": 4, "encoder_rows": 7},
}
CASES = [
    (name, form)
    for name in FAMILIES
    for form in FORMS
    if form != "gqa" or name not in ("deepseek-v3", "whisper-large-v3")
]
PROMPT = [11, 20, 45, 46, 45, 12, 7, 3]
COUNT = 5


def tiny(name: str, form: str, seed: int | None = 1) -> Graph:
    return kvviz.shapes.preset(name, form=form, dtype="float32", seed=seed, **FAMILIES[name])


def of_the_encoder(graph: Any) -> dict[str, np.ndarray]:
    """Keys and values of the encoder, the same in the layout of every form."""
    random = np.random.default_rng(0)
    found = {}
    for value in graph.inputs:
        if "encoder" in value.name:
            rows = random.standard_normal((1, 7, 4, 16)).astype(np.float32)
            by_head = np.ascontiguousarray(rows.transpose(0, 2, 1, 3))
            found[value.name] = by_head if len(value.shape) == 4 else rows.reshape(1, 7, 64)
    return found


def in_onnxruntime(graph: Any, trace: Any, given: dict[str, np.ndarray]) -> np.ndarray:
    """Scores of each token of a decode, by onnxruntime with one thread; caches as in ``trace``."""
    model = onnx.ModelProto()
    model.CopyFrom(graph.proto)
    for tensor in model.graph.initializer:
        if tensor.data_location:
            tensor.CopyFrom(numpy_helper.from_array(graph.weights[tensor.name], tensor.name))
    onnx.checker.check_model(model, full_check=True)
    caches = {cache.input: cache.output for cache in trace.caches}
    rows = len(PROMPT) + COUNT
    tokens, scores = greedy(session_of(model, rewrite=True), PROMPT, len(trace.tokens), caches, rows, given)
    assert tokens == trace.tokens
    return np.array(scores)


def scores(trace: kvviz.Trace) -> np.ndarray:
    return np.array([row[0] for row in trace.logits])


def decoded(name: str, form: str) -> kvviz.Trace:
    graph = tiny(name, form)
    return kvviz.decode(graph, PROMPT, COUNT, inputs=of_the_encoder(graph), progress=False, stop_tokens=())


@pytest.mark.parametrize(("name", "form"), CASES)
def test_numbers_are_those_of_onnxruntime(name: str, form: str) -> None:
    graph, trace = tiny(name, form), decoded(name, form)
    np.testing.assert_allclose(scores(trace), in_onnxruntime(graph, trace, of_the_encoder(graph)), atol=2e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_numbers_do_not_depend_on_the_form(name: str) -> None:
    first, *others = (scores(decoded(name, form)) for family, form in CASES if family == name)
    for other in others:
        np.testing.assert_allclose(other, first, atol=2e-5)


@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_graph_without_weights_costs_what_the_one_with_weights_costs(name: str, form: str) -> None:
    # Policies in turn: each has several forms.
    policy = ("ideal", "never", "rten", "onnxruntime")[CASES.index((name, form)) % 4]
    graph, bare = tiny(name, form), tiny(name, form, seed=None)
    for capacity, chunk in ((None, None), (20, 3)):
        given = of_the_encoder(graph)
        options = replace(DECODE, max_new_tokens=COUNT, kv_capacity=capacity, stop_tokens=(), chunk=chunk)
        session = DecodeSession(graph, PROMPT, options, given, policy)
        dry = kvviz.dry(bare, prompt_tokens=8, max_new_tokens=COUNT, policy=policy, kv_capacity=capacity, chunk=chunk)
        assert_agree(dry, session.run_to_end())


def test_windows_and_caps_change_the_numbers() -> None:
    for change, matters in [
        ("window", ("mistral-7b", "gemma-2-2b", "gemma-3-1b")),
        ("score_cap", ("gemma-2-2b",)),
        ("logit_cap", ("gemma-2-2b",)),
    ]:
        for name in matters:
            sizes = {**FAMILIES[name], change: 0}
            plain = kvviz.shapes.preset(name, dtype="float32", seed=1, **sizes)
            trace = kvviz.decode(plain, PROMPT, COUNT, progress=False, stop_tokens=())
            assert np.abs(scores(trace)[0] - scores(decoded(name, "concat"))[0]).max() > 1e-3


def test_the_cache_of_an_encoder_stays_while_that_of_the_decoder_grows() -> None:
    trace = decoded("whisper-large-v3", "concat")
    assert [cache.input for cache in trace.caches] == [
        f"past_key_values.{layer}.decoder.{kind}" for layer in (0, 1) for kind in ("key", "value")
    ]
    assert [run.capacity for run in trace.caches[0].runs] == [8, 9, 10, 11, 12]
    # given once, bound by every run, and never written
    encoder = {(b.storage, b.how) for frame in trace.frames for b in frame.bindings if ".encoder." in b.name}
    held = {storage for storage, _ in encoder}
    assert len(held) == 4 and {how for _, how in encoder} == {"borrowed"}
    assert not any(out.storage in held for step in trace.steps for out in step.outs if out.how != "view")


@pytest.mark.parametrize("form", ["static", "scatter_nd"])
@pytest.mark.parametrize(("capacity", "rows"), [(None, 12), (30, 30)])
def test_a_fixed_cache_has_the_rows_asked_for_or_those_that_the_decode_needs(
    form: str, capacity: int | None, rows: int
) -> None:
    trace = kvviz.dry(tiny("llama-3-8b", form, None), prompt_tokens=8, max_new_tokens=5, kv_capacity=capacity)
    assert {cache.protocol for cache in trace.caches} == {"static"}
    assert {run.capacity for cache in trace.caches for run in cache.runs} == {rows}
    assert [run.valid for run in trace.caches[0].runs] == [8, 9, 10, 11, 12]


# Numbers of two bytes; few of a chunk beside the rows of the whole prompt, as in a large model.
LAYERS, HIDDEN, HEADS, KV_HEADS, SIZE, INNER = 3, 48, 4, 2, 16, 200
LENGTH, CHUNK, WORDS = 400, 20, 3
ROW = 2 * KV_HEADS * SIZE  # bytes that a token adds to one cache
POLICIES = ["ideal", "never", "rten", "onnxruntime"]
COSTED = ["concat", "attention", "gqa", "static"]


def cost(form: str, policy: str) -> tuple[kvviz.Trace, int]:
    sizes = {"inner": INNER, "vocabulary": 70, "positions": 4096, "head": SIZE}
    graph = kvviz.shapes.llama(LAYERS, HIDDEN, HEADS, KV_HEADS, form=form, **sizes)  # type: ignore[arg-type]
    trace = kvviz.dry(graph, prompt_tokens=LENGTH, max_new_tokens=WORDS, chunk=CHUNK, policy=policy)
    return trace, sum(graph.weights.nbytes(name) for name in graph.weights)  # type: ignore[attr-defined]


TOTALS = [*range(CHUNK, LENGTH + 1, CHUNK), *range(LENGTH + 1, LENGTH + WORDS)]
"""Rows that hold tokens after each run."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", COSTED)
def test_caches_copy_what_their_form_and_the_policy_make_them_copy(form: str, policy: str) -> None:
    trace, _ = cost(form, policy)
    copied = [sum(cache.runs[run].bytes_copied for cache in trace.caches) for run in range(len(TOTALS))]
    moved = [run.bytes_moved_outside for run in trace.runs]
    rows = [run.capacity for run in trace.caches[0].runs]
    whole = 2 * LAYERS * ROW
    if form == "static":
        # a fixed cache is copied as a whole, or not at all
        assert rows == [TOTALS[-1]] * len(TOTALS) and not any(moved)
        assert copied == [TOTALS[-1] * whole if policy in ("never", "rten") else 0] * len(TOTALS)
    elif policy == "rten":
        # a full cache moves into one of twice its rows, behind the run
        assert rows == [min(CHUNK * 2**power for power in range(9) if CHUNK * 2**power >= n) for n in TOTALS]
        assert moved == [n * whole if n == capacity else 0 for n, capacity in zip(TOTALS, rows)] and not any(copied)
    else:
        assert rows == TOTALS and not any(moved)
        assert copied == [n * whole for n in (0, *TOTALS[:-1])]


def peak(form: str, policy: str) -> int:
    """In the last chunk of the prompt, in the attention of the last layer; of a fixed cache, in the feed-forward part
    of the first one."""
    n, t, wide, stream = CHUNK, LENGTH, 2 * CHUNK * HEADS * SIZE, 2 * CHUNK * HIDDEN
    caches, mask, scores = 2 * LAYERS * ROW * t, 2 * n * t, 2 * HEADS * n * t
    # The past of the last layer is there until the operator that appends to it is done.
    appended = caches + 2 * ROW * (t - n)
    if form == "gqa":
        return appended + (wide + 2 * ROW * n) + wide + stream + 8 * (n + t) + 8
    if form == "attention":
        return appended + wide + 2 * ROW * n + wide + stream + mask + 8 * (2 * n + t)
    if form == "concat":
        common = caches + mask + stream + 8 * (2 * n + t)
        # Scores and scaled queries; where Add is not in place, scores twice. onnxruntime has the normed stream, too,
        # and has not yet appended the values.
        more = {"ideal": scores + wide, "never": 2 * scores, "onnxruntime": 2 * scores + stream - ROW * n}
        return common + more[policy]
    fixed, inner = ROW * TOTALS[-1], 2 * n * INNER
    # Of the feed-forward part three values, or four; under rten the first lies in the block of a cache that was freed.
    more = {"ideal": 3 * inner, "never": 4 * inner, "rten": fixed + 2 * inner, "onnxruntime": 3 * inner + stream}
    return 2 * LAYERS * fixed + more[policy] + stream + 2 * n * SIZE + 8 * (2 * n + 2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", COSTED)
def test_the_peak_follows_the_closed_form(form: str, policy: str) -> None:
    trace, weights = cost(form, policy)
    if policy == "rten" and form != "static":
        # Rows are reserved in powers of two; what else is alive depends on which freed blocks the pool reuses.
        reserved = 2 * LAYERS * ROW * 640
        assert reserved < trace.peak_bytes - weights < 1.5 * reserved
    else:
        assert trace.peak_bytes - weights == peak(form, policy)
