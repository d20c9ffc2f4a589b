"""The converted graphs against a Llama in plain NumPy and against onnxruntime: tiny ones, and SmolLM2 itself."""

import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx
import pytest

import kvviz
from kvviz.smollm2 import FORMS, convert, tokenizer
from tests.ggml.attention_layer import plain_attention
from tests.ort_session import greedy, session_of
from tests.smollm2.real import real_folder, weights_file


class Llama:
    """Scores of the next token in float64, straight from a GGUF file and as ggml computes it: no cache, no graph.

    Queries and keys stay as the file has them, and neighbours are turned together, so nothing here knows of any
    reordering.
    """

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.weights = {
            t.name.removesuffix(".weight"): gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
            for t in reader.tensors
        }
        self.header = {key: field.contents() for key, field in reader.fields.items()}

    def scores(self, tokens: list[int]) -> np.ndarray:
        """One score a token of the vocabulary."""
        w, header = self.weights, self.header
        x = w["token_embd"][tokens]
        for layer in range(header["llama.block_count"]):
            x = x + self._attend(layer, self._norm(x, w[f"blk.{layer}.attn_norm"]))
            y = self._norm(x, w[f"blk.{layer}.ffn_norm"])
            gate = y @ w[f"blk.{layer}.ffn_gate"].T
            y = gate / (1 + np.exp(-gate)) * (y @ w[f"blk.{layer}.ffn_up"].T)
            x = x + y @ w[f"blk.{layer}.ffn_down"].T
        return self._norm(x[-1], w["output_norm"]) @ w.get("output", w["token_embd"]).T

    def greedy(self, tokens: list[int], count: int) -> tuple[list[int], list[np.ndarray]]:
        """The tokens that follow, each time the one with the best score, and all scores."""
        chosen, scores = list(tokens), []
        for _ in range(count):
            scores.append(self.scores(chosen))
            chosen.append(int(scores[-1].argmax()))
        return chosen[len(tokens) :], scores

    def _attend(self, layer: int, x: np.ndarray) -> np.ndarray:
        weights = {key: self.weights[f"blk.{layer}.attn_{key}"] for key in ("q", "k", "v", "output")}
        size, base = (self.header[f"llama.rope.{key}"] for key in ("dimension_count", "freq_base"))
        return plain_attention(x, weights, size, base)

    def _norm(self, x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        mean = np.mean(x * x, -1, keepdims=True)
        return x / np.sqrt(mean + self.header["llama.attention.layer_norm_rms_epsilon"]) * gain


PROMPT = [11, 200, 45, 46, 45, 120, 7]
COUNT = 6
forms = pytest.mark.parametrize("form", FORMS)


def greedy_in_onnxruntime(model: Path, prompt: list[int], count: int) -> tuple[list[int], list[np.ndarray]]:
    """Tokens and scores of a greedy decode by onnxruntime, one thread."""
    session = session_of(model, rewrite=True)
    pasts = [value.name for value in session.get_inputs() if value.name.startswith("past")]
    return greedy(session, prompt, count, {name: name.replace("past_key_values", "present") for name in pasts})


@forms
@pytest.mark.parametrize("tied", [True, False], ids=["the embedding's head", "a head of its own"])
def test_a_decode_gives_the_tokens_and_scores_of_a_llama_without_graph_or_cache(
    form: str, tied: bool, gguf_file: Path, untied_file: Path, folders: dict[str, Path], tmp_path: Path
) -> None:
    expected = [Llama(gguf_file if tied else untied_file).greedy(PROMPT, COUNT)]
    model = folders[form] / "model.onnx" if tied else convert(tmp_path, form, untied_file).model
    expected.append(greedy_in_onnxruntime(model, PROMPT, COUNT))
    for capacity in (None, 32):
        trace = kvviz.decode(kvviz.load(model), PROMPT, COUNT, kv_capacity=capacity, progress=False)
        assert trace.outputs["logits"].shape[:2] == (1, 1)
        for tokens, scores in expected:
            assert trace.tokens == tokens
            np.testing.assert_allclose([row[0] for row in trace.logits], scores, atol=2e-5)


@pytest.mark.parametrize("form", ["concat", "attention"])
def test_prompts_of_different_lengths_in_a_batch_are_continued_as_if_each_were_alone(
    form: str, gguf_file: Path, folders: dict[str, Path]
) -> None:
    prompts, llama = [PROMPT, PROMPT[:3]], Llama(gguf_file)
    trace = kvviz.decode(kvviz.load(folders[form] / "model.onnx"), prompts, COUNT, progress=False)
    assert trace.batch_tokens == [llama.greedy(prompt, COUNT)[0] for prompt in prompts]


@forms
def test_a_graph_is_valid_onnx_of_its_opset_with_modules_in_its_names(form: str, folders: dict[str, Path]) -> None:
    path = folders[form] / "model.onnx"
    onnx.checker.check_model(path, full_check=True)
    proto = onnx.load(path, load_external_data=False)
    opsets = {entry.domain: entry.version for entry in proto.opset_import}
    assert opsets[""] == {"concat": 18, "attention": 23, "gqa": 23}[form]
    assert ("com.microsoft" in opsets) == (form == "gqa")
    scopes = {node.name.split("/")[1] for node in proto.graph.node}
    assert scopes == {"model", "lm_head"}
    assert len({node.name for node in proto.graph.node}) == len(proto.graph.node)
    read = {name for node in proto.graph.node for name in node.input}
    assert {weight.name for weight in proto.graph.initializer} <= read
    kinds = {"concat": {"Concat", "Softmax"}, "attention": {"Attention", "RotaryEmbedding", "RMSNormalization"}}
    assert kinds.get(form, {"GroupQueryAttention"}) <= {node.op_type for node in proto.graph.node}


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
