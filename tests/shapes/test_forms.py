"""Every family in every form: with numbers as in onnxruntime, and without them as with numbers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import kvviz
from kvviz.decode.token_loop import DecodeSession
from kvviz.errors import InputError
from kvviz.trace.schema.run_options import DECODE
from tests.engine.dry_and_real import assert_agree
from tests.shapes.tiny_shapes import CASES, COUNT, FAMILIES, PROMPT, in_onnxruntime, of_the_encoder, tiny


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


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        ("window", ("mistral-7b", "gemma-2-2b", "gemma-3-1b")),
        ("score_cap", ("gemma-2-2b",)),
        ("logit_cap", ("gemma-2-2b",)),
    ],
)
def test_windows_and_caps_change_the_numbers(change: str, matters: Sequence[str]) -> None:
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


@pytest.mark.parametrize("name", ["deepseek-v3", "whisper-large-v3"])
def test_a_form_that_a_family_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"so {name} has no form 'gqa'"):
        kvviz.shapes.preset(name, form="gqa")


@pytest.mark.parametrize("form", ["static", "scatter_nd"])
@pytest.mark.parametrize(("capacity", "rows"), [(None, 12), (30, 30)])
def test_a_fixed_cache_has_the_rows_asked_for_or_those_that_the_decode_needs(
    form: str, capacity: int | None, rows: int
) -> None:
    trace = kvviz.dry(tiny("llama-3-8b", form, None), prompt_tokens=8, max_new_tokens=5, kv_capacity=capacity)
    assert {cache.protocol for cache in trace.caches} == {"static"}
    assert {run.capacity for cache in trace.caches for run in cache.runs} == {rows}
    assert [run.valid for run in trace.caches[0].runs] == [8, 9, 10, 11, 12]
