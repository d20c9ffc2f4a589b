"""Decoding: prompts, words, where it stops, what each run is fed, how caches grow, and what an interrupt leaves."""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from unittest.mock import MagicMock, call

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.decode.prompt import Words
from kvviz.errors import InputError
from kvviz.graph.model import Graph
from tests.decode.oracle import Watched
from tests.graph.build import MODELS

STORY = "once upon a time there was a brave owl"
WORDS = json.loads((MODELS / "storyteller" / "vocab.json").read_text("utf-8"))


@cache
def form(name: str = "concat") -> Graph:
    return kvviz.load(MODELS / "storyteller" / name / "model.onnx")


def decode(prompt: Any, tokens: int = 4, name: str = "concat", **options: Any) -> Trace:
    return kvviz.decode(form(name), prompt, tokens, progress=False, **options)


TOKENS = Words(WORDS).encode(STORY)


class Ids:
    """What the tokenizers library gives: an encoding object with ``ids``."""

    def encode(self, text: str) -> Any:
        return type("Encoding", (), {"ids": Words(WORDS).encode(text)})()

    def decode(self, tokens: list[int]) -> str:
        return "|".join(WORDS[token] for token in tokens)


PROMPTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a list": (TOKENS, {}),
    "an array": (np.array(TOKENS), {}),
    "a batch of one": ([TOKENS], {}),
    "a matrix": (np.array([TOKENS]), {}),
    "an iterator": (iter(TOKENS), {}),
    "text and a list of words": (STORY, {"tokenizer": WORDS}),
    "text and a tokenizer": (STORY, {"tokenizer": Words(WORDS)}),
    "text and an object with ids": (STORY, {"tokenizer": Ids()}),
    "one text in a list": ([STORY], {"tokenizer": WORDS}),
}


@pytest.mark.parametrize(("prompt", "options"), PROMPTS.values(), ids=PROMPTS)
def test_a_prompt_may_be_given_in_many_ways(prompt: Any, options: dict) -> None:
    trace = decode(prompt, **options)
    assert trace.prompt == TOKENS
    assert trace.tokens == decode(TOKENS).tokens


def test_the_words_of_the_story_are_those_of_prompt_and_tokens() -> None:
    trace = decode(STORY, 5, tokenizer=WORDS)
    assert trace.words == ["<s>", *STORY.split(), *(WORDS[token] for token in trace.tokens)]
    assert [run.text for run in trace.runs] == trace.words[-5:]
    assert [run.token for run in trace.runs] == trace.tokens
    assert decode(TOKENS, 2).words == [str(token) for token in TOKENS + decode(TOKENS, 2).tokens]
    assert decode(STORY, 2, tokenizer=Ids()).words == ["<s>", *STORY.split(), *trace.words[10:12]]


def test_a_decode_ends_with_a_stop_token_or_when_enough_are_made() -> None:
    tokens = decode(TOKENS, 12).tokens
    assert len(tokens) == 12
    stop = next(t for i, t in enumerate(tokens) if i > 3 and t not in tokens[:i])
    trace = decode(TOKENS, 12, stop_tokens=[stop, 10**6])
    assert trace.tokens == tokens[: tokens.index(stop) + 1]
    assert len(trace.runs) == len(trace.tokens)
    assert decode(TOKENS, 0).tokens == [] and decode(TOKENS, 1).tokens == tokens[:1]


def test_a_row_of_a_batch_that_has_stopped_grows_no_more() -> None:
    prompts = [TOKENS, TOKENS[:6]]
    free = decode(prompts, 8)
    stop = free.batch_tokens[0][2]
    trace = decode(prompts, 8, stop_tokens=[stop], tokenizer=WORDS)
    assert trace.batch_tokens[0] == free.batch_tokens[0][:3] == trace.tokens
    other = free.batch_tokens[1]
    assert trace.batch_tokens[1] == (other[: other.index(stop) + 1] if stop in other else other)
    assert trace.words is not None and len(trace.words) == len(TOKENS) + 3


def test_masks_and_positions_count_real_tokens_only() -> None:
    session = Watched(form(), [[5, 6, 7], [8]], max_new_tokens=3)
    session.run_to_end()
    first, second, third = session.fed
    assert first["input_ids"].tolist() == [[5, 6, 7], [0, 0, 8]]
    assert first["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert first["position_ids"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert second["input_ids"].shape == (2, 1)
    assert second["attention_mask"].tolist() == [[1, 1, 1, 1], [0, 0, 1, 1]]
    assert second["position_ids"].tolist() == [[3], [1]] and third["position_ids"].tolist() == [[4], [2]]
    assert [run["past_key_values.0.key"].shape[2] for run in (first, second, third)] == [0, 3, 4]


@pytest.mark.parametrize("name", ["concat", "attention_23", "attention_24", "gqa", "merged_if"])
def test_a_decode_goes_on_from_caches_that_are_given(name: str) -> None:
    whole = decode(TOKENS, 8, name)
    part = decode(TOKENS, 3, name)
    caches = {cache.input: part.outputs[cache.output] for cache in part.caches}
    before = {key: array.tobytes() for key, array in caches.items()}
    rest = decode(part.tokens[-1:], 5, name, inputs=caches, poison=True)
    assert part.tokens + rest.tokens == whole.tokens
    assert {key: array.tobytes() for key, array in caches.items()} == before
    assert rest.prompt == part.tokens[-1:]
    assert [run.valid for run in rest.caches[0].runs] == [run.valid for run in whole.caches[0].runs[3:]]


def test_progress_is_shown_by_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = MagicMock()
    monkeypatch.setattr("tqdm.auto.tqdm", bar)
    kvviz.decode(form(), TOKENS, 3)
    assert bar.call_args.kwargs["total"] == 3
    assert bar.return_value.__enter__.return_value.update.call_args_list == [call(1)] * 3


# One past that every run makes longer; the token decides nothing.
FIVE = TOKENS[:5]


def capacities(trace: Trace) -> list[int]:
    """Rows of the block that each run leaves its first cache in."""
    return [run.capacity for run in trace.caches[0].runs]


def test_what_the_caller_moves_is_counted_apart_from_what_kernels_copy() -> None:
    plain, grown = decode(FIVE, 9), decode(FIVE, 9, growth="after")
    pasts = [sum(run.bytes_copied for run in cache.runs) for cache in (plain.caches[0], grown.caches[0])]
    assert pasts[0] > 0 and pasts[1] == 0
    assert sum(run.bytes_copied for run in grown.runs) == grown.bytes_copied < plain.bytes_copied
    for one in grown.caches:
        outside = [run.bytes_moved_outside for run in one.runs]
        assert outside[0] and outside[5] and sum(map(bool, outside)) == 2
    per_run = [sum(cache.runs[i].bytes_moved_outside for cache in grown.caches) for i in range(9)]
    assert per_run == [run.bytes_moved_outside for run in grown.runs]


def test_the_policy_says_how_caches_grow_unless_the_caller_does() -> None:
    assert capacities(decode(FIVE, 2, policy="rten")) == [5, 10]
    assert capacities(decode(FIVE, 2, policy="rten", growth="start", kv_capacity=8)) == [8, 8]
    assert capacities(decode(FIVE, 2)) == [5, 6]
    with pytest.raises(InputError, match="growth must be 'start' or 'after', not 'never'"):
        decode(FIVE, 2, growth="never")
    # A capacity that is too small is an error only at the start.
    with pytest.raises(InputError, match="prompt and new tokens need 13"):
        decode(FIVE, 9, kv_capacity=8)
    assert decode(FIVE, 9, kv_capacity=8, growth="after").tokens == decode(FIVE, 9).tokens


def test_inputs_that_every_run_is_fed_cannot_be_donated() -> None:
    graph = form("concat")
    trace = kvviz.decode(graph, FIVE, 3, donate=["input_ids", "attention_mask"], progress=False)
    assert trace.tokens == decode(FIVE, 3).tokens
    mask = np.ones((1, 5), np.int64)
    with pytest.raises(InputError, match="cannot donate 'attention_mask': every run is fed the same array"):
        kvviz.decode(graph, FIVE, 1, inputs={"attention_mask": mask}, donate=["attention_mask"], progress=False)
    with pytest.raises(InputError, match="cannot donate 'mask': the graph has no such input"):
        kvviz.decode(graph, FIVE, 1, donate="mask", progress=False)
