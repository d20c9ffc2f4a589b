"""SmolLM2 itself, not a tiny stand-in: it answers, in every form, and onnxruntime says the same."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kvviz
from kvviz.smollm2 import FORMS, Tokenizer, convert, tokenizer
from tests.smollm2.real import real_folder, weights_file
from tests.smollm2.test_decoder import greedy_in_onnxruntime

QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris.<|im_end|>"
# Of 30 layers, 2 caches a layer, 3 heads of 64 numbers of 4 bytes.
ROW = 30 * 2 * 3 * 64 * 4


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return tokenizer(real_folder())


@pytest.fixture(scope="module", params=FORMS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The real model in one form after the other; only one of them is on the disk at a time, beside the first."""
    if request.param == "concat":
        yield real_folder() / "model.onnx"
        return
    folder = tmp_path_factory.mktemp(request.param)
    yield convert(folder, request.param, weights_file()).model
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def answer(model: Path, words: Tokenizer) -> kvviz.Trace:
    prompt = words.chat(QUESTION)
    return kvviz.decode(
        kvviz.load(model),
        prompt,
        24,
        tokenizer=words,
        stop_tokens=words.stop_tokens,
        kv_capacity=64,
        progress=False,
    )


def test_it_knows_the_capital_of_france_and_stops(answer: kvviz.Trace, words: Tokenizer) -> None:
    assert answer.words is not None
    assert "".join(answer.words[len(answer.prompt) :]) == ANSWER
    assert answer.tokens[-1] in words.stop_tokens


def test_onnxruntime_gives_the_same_tokens_one_by_one_and_the_same_scores(answer: kvviz.Trace, model: Path) -> None:
    tokens, scores = greedy_in_onnxruntime(model, answer.prompt, len(answer.tokens))
    assert answer.tokens == tokens
    # Scores reach from about -20 to 30; sums of 1,536 products differ by their order.
    np.testing.assert_allclose([row[0] for row in answer.logits], scores, rtol=0, atol=1e-3)


def test_every_token_after_the_prompt_costs_one_row_of_each_cache(answer: kvviz.Trace) -> None:
    assert len(answer.caches) == 60
    for run in answer.runs[1:]:
        assert sum(cache.runs[run.index].bytes_written for cache in answer.caches) == ROW
        assert sum(cache.runs[run.index].bytes_copied for cache in answer.caches) == 0


def test_its_weights_belong_to_nobody_who_could_overwrite_them(answer: kvviz.Trace) -> None:
    weights = answer.graph.weights
    large = [weights[name] for name in weights if weights[name].nbytes > 100_000]
    assert sum(array.nbytes for array in large) > 540_000_000
    assert not any(array.flags.writeable or array.flags.owndata for array in large)
