"""What the notebooks conclude, measured again: copies and peaks by kvviz, answers of models by onnxruntime."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import onnx
import onnxruntime as ort
import pytest

import kvviz
from tests.ort_session import session_of
from tests.smollm2.real import real_folder

ROOT = Path(__file__).resolve().parents[2]
STORYTELLER = ROOT / "assets" / "models" / "storyteller"
WORDS: list[str] = json.loads((STORYTELLER / "vocab.json").read_text())
STORY: dict[str, Any] = {
    "prompt": "once upon a time there was a brave owl named rosa .",
    "tokenizer": WORDS,
    "progress": False,
}
# Layers, key and value, query heads, head size, bytes of a float: one row, written out for every query head.
REPEATED = 3 * 2 * 4 * 16 * 4


def text(number: str) -> str:
    """The markdown of a notebook, on one line."""
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    return re.sub(r"\s+", " ", " ".join(cell.source for cell in cells if cell.cell_type == "markdown"))


@pytest.mark.parametrize(
    ("form", "op"),
    [("concat", "`Concat`"), ("attention_24", "`Attention` of opset 24"), ("gqa", "`GroupQueryAttention`")],
)
def test_with_room_the_caches_copy_nothing_and_the_graph_what_the_summary_says(form: str, op: str) -> None:
    # given
    said = re.search(rf"([\d,]+) B (?:in all )?with {re.escape(op)}", text("05"))
    # when
    trace = kvviz.decode(kvviz.load(STORYTELLER / form / "model.onnx"), max_new_tokens=45, kv_capacity=64, **STORY)
    # then
    assert sum(run.bytes_copied for cache in trace.caches for run in cache.runs) == 0
    assert said and trace.bytes_copied == int(said[1].replace(",", ""))


@pytest.mark.parametrize(("form", "rows"), [("concat", None), ("attention_23", None), ("static_scatter_nd", 160)])
def test_a_reshape_writes_every_row_out_for_every_query_head(form: str, rows: int | None) -> None:
    trace = kvviz.decode(kvviz.load(STORYTELLER / form / "model.onnx"), max_new_tokens=6, **STORY)
    copied: Counter[int] = Counter()
    for step in trace.steps:
        copied[step.run] += step.copied if step.op_type == "Reshape" else 0
    prompt = len(trace.prompt)
    assert [copied[run] for run in range(1, 6)] == [REPEATED * (rows or prompt + run) for run in range(1, 6)]


def test_least_live_has_the_second_highest_peak_and_without_the_pool_one_of_two() -> None:
    # given
    graph = kvviz.load(STORYTELLER / "concat" / "model.onnx")
    orders = ["model", "rten", "onnxruntime", "depth_first", "least_live"]
    bare = replace(kvviz.policies.rten, name="bare", pool=None)
    story = {**STORY, "max_new_tokens": 4}
    # when
    pooled = kvviz.compare(graph, policies=["rten"], schedules=orders, **story)
    without = kvviz.compare(graph, policies=[bare], schedules=orders, **story)
    # then
    assert sorted(pooled, key=lambda row: -row.peak)[1].name == "rten (least-live order)"
    low, high = sorted({row.above_weights for row in without})
    assert list(without)[4].above_weights == high
    assert f"{low:,} B and {high:,} B" in text("03")


class Told:
    """The true story in onnxruntime: rows of its caches, and what comes next from some of them."""

    def __init__(self) -> None:
        self.session = session_of(onnx.load(STORYTELLER / "tensor_scatter" / "model.onnx"))
        self.caches = [value.name for value in self.session.get_inputs() if "cache" in value.name]
        reference = np.load(STORYTELLER / "tensor_scatter" / "ref.npz")
        self.tokens = [*reference["prompt"].ravel().tolist(), *reference["tokens"][:73].tolist()]
        self.words = [WORDS[token] for token in self.tokens]
        self.rows = self._run(self.tokens, 0, {})[1]

    def next_word(self, at: int, rows: Iterable[int]) -> str:
        """The word after the one at a position, with some rows of the positions before it."""
        kept = list(rows)
        logits, _ = self._run([self.tokens[at]], at, {name: block[:, kept] for name, block in self.rows.items()})
        return WORDS[int(logits.argmax())]

    def in_a_circle(self, at: int, size: int) -> str:
        """The same with a circular cache: each word was computed from the last ``size`` rows."""
        rows: dict[str, np.ndarray] = {}
        for position in range(at + 1):
            logits, rows = self._run([self.tokens[position]], position, rows)
            rows = {name: block[:, -(size - 1) :] for name, block in rows.items()}
        return WORDS[int(logits.argmax())]

    def _run(self, new: list[int], at: int, rows: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        past = len(next(iter(rows.values()))[0]) if rows else 0
        feeds: dict[str, Any] = {"input_ids": np.array([new]), "position_ids": np.arange(at, at + len(new))[None]}
        feeds |= {"write_indices": np.array([past]), "nonpad_kv_seqlen": np.array([past + len(new)])}
        for name in self.caches:
            feeds[name] = np.zeros((1, 160, 32), np.float32)
            feeds[name][:, :past] = rows[name] if rows else 0
        logits, *blocks = self.session.run(["logits", *(f"updated_{name}" for name in self.caches)], feeds)
        return logits[0, -1], {name: block[:, : past + len(new)] for name, block in zip(self.caches, blocks)}


@pytest.fixture(scope="module")
def told() -> Told:
    return Told()


def test_the_animal_depends_on_one_row_and_on_no_other(told: Told) -> None:
    at = told.words.index("animal") + 4
    answers = [told.next_word(at, (row for row in range(at) if row != gone)) for gone in range(at)]
    assert [row for row, answer in enumerate(answers) if answer != "owl"] == [told.words.index("owl")] == [9]


def test_the_name_does_not_depend_on_the_rows_of_its_word_but_on_how_the_rows_were_computed(told: Told) -> None:
    at = max(i for i, word in enumerate(told.words) if word == "?")
    named = [i for i, word in enumerate(told.words[:at]) if word == "rosa"]
    # without all eight rows of the word, and from the last rows only, the name is there
    assert len(named) == 8 and told.next_word(at, (row for row in range(at) if row not in named)) == "rosa"
    assert {told.next_word(at, range(at - size + 1, at)) for size in (18, 16)} == {"rosa"}
    # as many rows that were computed from as few are not enough
    assert told.in_a_circle(at, 20) == "rosa"
    assert "rosa" not in {told.in_a_circle(at, size) for size in (18, 16, 11)}


def test_the_answer_survives_the_row_that_a_head_reads_and_not_the_loss_of_row_0() -> None:
    # given the real model in onnxruntime, before the run that answers
    folder = real_folder()
    words = kvviz.smollm2.tokenizer(folder)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")  # so that it maps the weights
    session = ort.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    caches = [value.name for value in session.get_inputs() if value.name.startswith("past")]
    presents = [name.replace("past_key_values", "present") for name in caches]

    def run(ids: list[int], at: int, rows: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        feeds = {"input_ids": np.array([ids]), "position_ids": np.arange(at, at + len(ids))[None]}
        feeds |= {"attention_mask": np.ones((1, rows[0].shape[2] + len(ids)), np.int64), **dict(zip(caches, rows))}
        logits, *after = session.run(["logits", *presents], feeds)
        chances = np.exp(logits[0, -1] - logits[0, -1].max())
        return chances / chances.sum(), after

    ids = words.encode(words.chat("What is the capital of France?") + "The capital of France is")
    empty = [np.zeros((1, 3, 0, 64), np.float32)] * len(caches)
    _, full = run(ids[:-1], 0, empty)
    question, answer = (i for i, token in enumerate(ids) if words.decode([token]) == " France")

    def paris_without(*gone: int) -> tuple[str, float]:
        rows = [np.delete(block, gone, axis=2) for block in full]
        chances = run(ids[-1:], len(ids) - 1, rows)[0]
        (target,) = words.encode(" Paris")
        return words.decode([int(chances.argmax())]), float(chances[target])

    # when single rows are deleted in all layers, then
    assert question == 29 and paris_without(question)[0] == paris_without(answer)[0] == " Paris"
    assert paris_without(question, answer)[0] == " Paris"
    assert paris_without(question)[1] > 0.9
    assert paris_without(0)[0] != " Paris" and paris_without(0)[1] < 0.05
    # of the five rows behind row 0 that are read most over all layers, the loss of two is felt
    read_most = {26: " the", 40: " France", 38: " capital", 36: "\n", 37: "The"}
    assert {row: words.decode([ids[row]]) for row in read_most} == read_most
    whole = paris_without()[1]
    assert [row for row in read_most if paris_without(row)[1] < whole - 0.02] == [40, 38]
