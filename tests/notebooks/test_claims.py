"""What the notebooks conclude, measured again: copies and peaks by kvviz, answers of models by onnxruntime."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest

import kvviz

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
    said = re.search(rf"([\d,]+) B (?:in all )?with {re.escape(op)}", text("05"))
    trace = kvviz.decode(kvviz.load(STORYTELLER / form / "model.onnx"), max_new_tokens=45, kv_capacity=64, **STORY)
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
    graph = kvviz.load(STORYTELLER / "concat" / "model.onnx")
    orders = ["model", "rten", "onnxruntime", "depth_first", "least_live"]
    bare = replace(kvviz.policies.rten, name="bare", pool=None)
    story = {**STORY, "max_new_tokens": 4}
    pooled = kvviz.compare(graph, policies=["rten"], schedules=orders, **story)
    without = kvviz.compare(graph, policies=[bare], schedules=orders, **story)
    assert sorted(pooled, key=lambda row: -row.peak)[1].name == "rten (least-live order)"
    low, high = sorted({row.above_weights for row in without})
    assert list(without)[4].above_weights == high
    assert f"{low:,} B and {high:,} B" in text("03")
