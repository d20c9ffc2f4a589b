"""The first lesson: decoding without a cache, the work of a run, and its pictures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz import lessons
from tests.ort_session import session_of

STORYTELLER = Path(__file__).resolve().parents[2] / "assets" / "models" / "storyteller"
WORDS: list[str] = json.loads((STORYTELLER / "vocab.json").read_text())
PROMPT = "once upon a time there was a brave owl named rosa ."
# The shape of the storyteller, by assets/models/README.md.
LAYERS, HIDDEN, HEADS, KV_HEADS, SIZE, WIDE, VOCABULARY = 3, 64, 4, 2, 16, 160, 128
WEIGHTS = LAYERS * (2 * HIDDEN * HEADS * SIZE + 2 * HIDDEN * KV_HEADS * SIZE + 3 * HIDDEN * WIDE) + HIDDEN * VOCABULARY
# Of the rotary embedding: one number for each pair of elements of a head, multiplied with each position.
ANGLES = SIZE // 2


@pytest.fixture(scope="module")
def graph() -> Any:
    return kvviz.load(STORYTELLER / "concat" / "model.onnx")


@pytest.fixture(scope="module")
def trace(graph: Any) -> kvviz.Trace:
    return kvviz.decode(graph, PROMPT, 6, tokenizer=WORDS, kv_capacity=24, progress=False)


@pytest.mark.parametrize("form", ["concat", "attention_23", "attention_24"])
def test_without_a_cache_the_same_words_come_out_of_the_same_logits(form: str) -> None:
    one = kvviz.load(STORYTELLER / form / "model.onnx")
    with_cache = kvviz.decode(one, PROMPT, 4, tokenizer=WORDS, progress=False)
    without = lessons.recompute(one, PROMPT, 4, WORDS)
    assert (without.tokens, without.words) == (with_cache.tokens, with_cache.words)
    for found, expected in zip(without.logits, with_cache.logits, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-4)
    assert without.rows == [13, 14, 15, 16]
    assert [run.rows_written for run in with_cache.caches[0].runs] == [13, 1, 1, 1]


def test_only_one_prompt_and_only_growing_caches_are_decoded_without_one(graph: Any) -> None:
    with pytest.raises(kvviz.KvvizError, match="give one prompt, not 2"):
        lessons.recompute(graph, [[1, 2], [1, 3]], 2)  # type: ignore[list-item]
    static = kvviz.load(STORYTELLER / "tensor_scatter" / "model.onnx")
    with pytest.raises(kvviz.KvvizError, match="use the form with Concat"):
        lessons.recompute(static, [1, 2], 2)


def test_the_work_of_a_run_is_what_the_shape_of_the_model_says(trace: kvviz.Trace) -> None:
    for run in (0, 1, 5):
        fed, length = (13, 13) if run == 0 else (1, 13 + run)
        found = lessons.work(trace, run)
        # queries times keys, and weights times values
        attention = 2 * 2 * LAYERS * HEADS * SIZE * fed * length
        assert found.flops == 2 * WEIGHTS * fed + attention + 2 * ANGLES * fed
        assert found.weight_bytes == 4 * (WEIGHTS + ANGLES)
        assert found.cache_bytes == 2 * LAYERS * KV_HEADS * SIZE * 4 * length
        assert found.tokens == fed
        assert found.intensity == found.flops / (found.weight_bytes + found.cache_bytes)
    with pytest.raises(kvviz.KvvizError, match="there is no run 6; the trace has 6"):
        lessons.work(trace, 6)
    fused = kvviz.decode(kvviz.load(STORYTELLER / "gqa" / "model.onnx"), [1, 5], 1, progress=False)
    with pytest.raises(kvviz.KvvizError, match="inside GroupQueryAttention"):
        lessons.work(fused)


def test_a_value_is_found_by_its_name_and_run(trace: kvviz.Trace) -> None:
    found = lessons.value_in_run(trace, "present.1.key", 2)
    assert found.shape == (1, KV_HEADS, 15, SIZE)
    np.testing.assert_array_equal(found, trace.outputs["present.1.key"][:, :, :15])
    with pytest.raises(kvviz.KvvizError, match="no op of run 2 makes 'present"):
        lessons.value_in_run(trace, "present.9.key", 2)
    with pytest.raises(kvviz.KvvizError, match="there is no run 6"):
        lessons.value_in_run(trace, "present.1.key", 6)


def test_computed_rows_are_drawn_behind_those_that_were_found_and_changes_in_panels() -> None:
    figure = lessons.computed_rows({"without": [3, 4], "with": [3, 1]}, [3, 4])
    spans = [[(bar.get_x(), bar.get_width()) for bar in ax.patches] for ax in figure.axes]
    assert spans == [[(0, 0), (0, 0), (0, 3), (0, 4)], [(0, 0), (0, 3), (0, 3), (3, 1)]]
    # row changes have a panel for each change and layer
    figure = lessons.row_changes({"one": np.eye(3, 4), "two": np.zeros((3, 4))}, ["a", "b", "c", "d"])
    titles = [ax.get_title(loc="left") or ax.get_title() for ax in figure.axes]
    assert titles == [f"layer {layer}: {name}" for name in ("one", "two") for layer in range(3)]
    assert [bar.get_height() for bar in figure.axes[1].patches] == [0, 1, 0, 0]
    assert {bar.get_height() for bar in figure.axes[5].patches} == {0}


def test_a_token_changes_its_own_row_and_above_the_first_layer_those_after_it(graph: Any) -> None:
    # given rows that onnxruntime computes with one token exchanged, and with three more behind
    prompt = [WORDS.index(word) for word in PROMPT.split()]
    others = [[*prompt[:8], WORDS.index("cat"), *prompt[9:]], [*prompt, 7, 8, 9]]
    session = session_of(onnx.load(STORYTELLER / "concat" / "model.onnx"))

    def keys(tokens: list[int]) -> list[np.ndarray]:
        feeds: dict[str, Any] = {"input_ids": np.array([tokens]), "position_ids": np.arange(len(tokens))[None]}
        feeds |= {"attention_mask": np.ones((1, len(tokens)), np.int64)}
        feeds |= {
            c.name: np.zeros((1, KV_HEADS, 0, SIZE), np.float32) for c in session.get_inputs() if "past" in c.name
        }
        found: list[np.ndarray] = session.run([f"present.{layer}.key" for layer in range(LAYERS)], feeds)
        return found

    changed = [lessons.changed_rows(graph, prompt, other) for other in others]
    for change, other in zip(changed, others):
        expected = [abs(a - b[:, :, : len(prompt)]).max((0, 1, 3)) for a, b in zip(keys(prompt), keys(other))]
        assert np.allclose(change, expected, atol=1e-5)
    assert [np.flatnonzero(layer > 1e-4).tolist() for layer in changed[0]] == [[8], [8, 9, 10, 11], [8, 9, 10, 11]]
    assert changed[1].max() < 1e-5
    with pytest.raises(kvviz.KvvizError, match=f"give at least as many as there are rows, {len(prompt)}"):
        lessons.changed_rows(graph, prompt, prompt[:4])


def test_a_picture_carries_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    keep = lambda data, **options: shown.append((data, options["metadata"]))  # noqa: E731
    monkeypatch.setattr("kvviz.lessons.lesson_charts.display", keep)
    figure = lessons.computed_rows({"with": [1]}, [1])
    lessons.picture(figure, "One row.")
    data, metadata = shown[0]
    assert data["text/plain"] == "One row." == metadata["image/png"]["alt"]
    assert data["image/png"].startswith("iVBORw0KGgo")
    assert 'alt="One row."' in data["text/html"] and data["image/png"] in data["text/html"]
    with pytest.raises(kvviz.KvvizError, match="needs a text"):
        lessons.picture(figure, " ")
