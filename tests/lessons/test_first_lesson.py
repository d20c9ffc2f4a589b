"""The first lesson: decoding without a cache, the work of a run, its pictures, and graphs written as text."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz import lessons
from kvviz.lessons import print_steps, small_graph, step_that_makes, table, value_in_run
from tests.lessons.story import PROMPT, STORYTELLER, WORDS, story
from tests.ort_session import session_of

# The shape of the storyteller, by assets/models/README.md.
LAYERS, HIDDEN, HEADS, KV_HEADS, SIZE, WIDE, VOCABULARY = 3, 64, 4, 2, 16, 160, 128
WEIGHTS = LAYERS * (2 * HIDDEN * HEADS * SIZE + 2 * HIDDEN * KV_HEADS * SIZE + 3 * HIDDEN * WIDE) + HIDDEN * VOCABULARY
# Of the rotary embedding: one number for each pair of elements of a head, multiplied with each position.
ANGLES = SIZE // 2


@pytest.fixture(scope="module")
def graph() -> Any:
    return kvviz.load(STORYTELLER / "concat" / "model.onnx")


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    return story("concat", 6, kv_capacity=24)


@pytest.mark.parametrize("form", ["concat", "attention_23", "attention_24"])
def test_without_a_cache_the_same_words_come_out_of_the_same_logits(form: str) -> None:
    one = kvviz.load(STORYTELLER / form / "model.onnx")
    with_cache = story(form, 4)
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


ASSETS = Path(__file__).resolve().parents[2] / "assets" / "models"
LATER = "later (float[4] x) => (float[4] y) { a = Relu(x)  b = Sigmoid(a)  y = Add(a, b) }"


def test_each_step_is_a_line_with_its_blockers_below(capsys: pytest.CaptureFixture[str]) -> None:
    # given an input that the caller keeps, and a value with two readers
    trace = kvviz.run(small_graph(LATER), {"x": np.ones(4, np.float32)})
    print_steps(trace)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["Relu", "BORROWED_INPUT:", "Sigmoid", "NOT_LAST_USE:", "Add"]
    assert [line[1] for line in lines if not line[0].endswith(":")] == ["run", "run", "in_place"]
    # what an op can never do is not told
    graph = small_graph("product (float[2,2] x) => (float[2,2] y) { y = MatMul(x, x) }")
    print_steps(kvviz.run(graph, {"x": np.eye(2, dtype=np.float32)}, donate=["x"]))
    assert "OP_CANNOT" not in capsys.readouterr().out
    # an op of a branch is told with its frame
    graph = small_graph("""f (bool c, float[4] x) => (float[4] y) { y = If (c) <
        then_branch = yes () => (float[4] o) { o = Sigmoid(x) },
        else_branch = no () => (float[4] p) { p = Neg(x) }> }""")
    print_steps(kvviz.run(graph, {"c": np.array(True), "x": np.ones(4, np.float32)}))
    assert capsys.readouterr().out.startswith("y[then_branch]/Sigmoid ")


def test_a_text_that_is_no_graph_is_refused_with_what_was_expected() -> None:
    with pytest.raises(kvviz.KvvizError, match=r"not a graph in ONNX's text form:(?s:.)*Identifier expected"):
        small_graph("later (")


def test_the_step_that_makes_a_value_of_a_branch_is_the_op_inside_it() -> None:
    # given a decoder with its graph inside an If
    trace = kvviz.decode(kvviz.load(ASSETS / "o02_optimum1_merged_gpt2" / "model.onnx"), [7, 70, 21], 3, progress=False)
    name = trace.caches[0].output
    step = step_that_makes(trace, name, run=2)
    assert (step.run, step.op_type, bool(step.frame)) == (2, "Concat", True)
    assert np.array_equal(value_in_run(trace, name, 2), trace.value(name, step.index))
    for wrong, run, said in ((name, 3, "there is no run 3"), ("z", 0, "no op of run 0 makes 'z'")):
        with pytest.raises(kvviz.KvvizError, match=said):
            step_that_makes(trace, wrong, run)


ROWS = [
    {"way": "no room", "copied": 1165824, "peak": "674,377 B", "same": True},
    {"way": "room", "copied": 0, "peak": "679,881 B", "same": False},
]


def test_numbers_of_a_table_get_separators_and_stand_to_the_right_and_html_has_its_title() -> None:
    lines = str(table(ROWS)).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["no", "room", "1,165,824", "674,377", "B", "yes"],
        ["room", "0", "679,881", "B", "no"],
    ]
    assert lines[1].index("674,377") == lines[2].index("679,881")
    assert lines[1].index("1,165,824") + len("1,165,824") == lines[2].index("0 ") + 1
    html = table(ROWS, "two <ways>")._repr_html_()
    assert "<caption>two &lt;ways&gt;</caption>" in html and "674,377\u00a0B" in html
    assert re.findall(r"<th [^>]*>(\w+)</th>", html) == ["way", "copied", "peak", "same"]
    # it may be empty, and takes any iterable
    assert len(table(())) == 0
    assert [row["n"] for row in table({"n": n} for n in (1, 2000))] == ["1", "2,000"]
