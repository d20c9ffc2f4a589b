"""SmolLM2 itself, not a tiny stand-in: it answers, in every form, and onnxruntime says the same."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.smollm2 import FORMS, convert, tokenizer
from tests.smollm2.real import real_folder, weights_file
from tests.smollm2.test_decoder import greedy_in_onnxruntime

QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris.<|im_end|>"
# Of 30 layers, 2 caches a layer, 3 heads of 64 numbers of 4 bytes.
ROW = 30 * 2 * 3 * 64 * 4


@pytest.mark.parametrize("form", FORMS)
def test_it_knows_the_capital_of_france_a_row_a_token_as_onnxruntime_does(form: str, tmp_path: Path) -> None:
    folder, words = real_folder(), tokenizer(real_folder())
    model = folder / "model.onnx" if form == "concat" else convert(tmp_path, form, weights_file()).model
    options: dict[str, Any] = {"stop_tokens": words.stop_tokens, "kv_capacity": 64, "progress": False}
    answer = kvviz.decode(kvviz.load(model), words.chat(QUESTION), 24, tokenizer=words, **options)
    assert answer.words is not None
    assert "".join(answer.words[len(answer.prompt) :]) == ANSWER
    assert answer.tokens[-1] in words.stop_tokens
    tokens, scores = greedy_in_onnxruntime(model, answer.prompt, len(answer.tokens))
    assert answer.tokens == tokens
    # Scores reach from about -20 to 30; sums of 1,536 products differ by their order.
    np.testing.assert_allclose([row[0] for row in answer.logits], scores, rtol=0, atol=1e-3)
    # every token after the prompt costs one row of each cache
    assert len(answer.caches) == 60
    for run in answer.runs[1:]:
        assert sum(cache.runs[run.index].bytes_written for cache in answer.caches) == ROW
        assert sum(cache.runs[run.index].bytes_copied for cache in answer.caches) == 0
    # its weights belong to nobody who could overwrite them
    weights = answer.graph.weights
    large = [weights[name] for name in weights if weights[name].nbytes > 100_000]
    assert sum(array.nbytes for array in large) > 540_000_000
    assert not any(array.flags.writeable or array.flags.owndata for array in large)
    # One of the forms is on the disk at a time.
    shutil.rmtree(tmp_path)
