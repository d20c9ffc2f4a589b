"""What the notebooks on static and circular caches claim, held against onnxruntime and their own print-outs."""

import ast
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import onnx
import pytest
from onnx import helper, parser

import kvviz
from kvviz.engine.sessions.io_binding import bind
from kvviz.lessons.cache_rows import RowTest, circular
from kvviz.lessons.legal_orders import orders
from kvviz.verification.session_record import run_bound
from tests.ort_session import session_of

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "06_static_caches.ipynb"
FORM = ROOT / "assets" / "models" / "storyteller" / "tensor_scatter"
MODEL = FORM / "model.onnx"
CELLS = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]


def from_the_notebook(name: str, **needs: Any) -> Callable[..., Any]:
    """A function as the notebook defines it, with the constants of its cell; nothing else of the cell runs."""
    source = next(cell.source for cell in CELLS if f"def {name}(" in cell.source)
    kept = [part for part in ast.parse(source).body if _defines(part)]
    scope: dict[str, Any] = {**needs, "np": np, "onnx": onnx, "helper": helper, "parser": parser, "kvviz": kvviz}
    exec(compile(ast.Module(kept, []), NOTEBOOK.name, "exec"), scope)
    found: Callable[..., Any] = scope[name]
    return found


def _defines(part: ast.stmt) -> bool:
    constant = isinstance(part, ast.Assign) and all(isinstance(t, ast.Name) and t.id.isupper() for t in part.targets)
    return constant or isinstance(part, ast.FunctionDef)


def in_onnxruntime(proto: onnx.ModelProto, prompt: list[int], count: int, rows: int) -> list[int]:
    """The story with a circular cache, each run a call of onnxruntime."""
    session = session_of(proto)
    names = [output.name for output in session.get_outputs()]
    kept = {one.name: np.zeros((1, rows, 32), np.float32) for one in session.get_inputs() if "cache" in one.name}
    new, past, tokens = prompt, 0, []
    for _ in range(count):
        feeds = {"input_ids": np.array([new]), "position_ids": np.arange(past, past + len(new))[None]}
        feeds |= {"write_indices": np.array([past]), "nonpad_kv_seqlen": np.array([min(past + len(new), rows)])}
        outputs = dict(zip(names, session.run(None, {**feeds, **kept}), strict=True))
        past += len(new)
        new = [int(outputs["logits"][0, -1].argmax())]
        tokens += new
        kept = {name: outputs[f"updated_{name}"] for name in kept}
    return tokens


@pytest.mark.parametrize("rows", [96, 48, 13])
def test_a_circular_cache_of_any_size_tells_what_onnxruntime_tells(rows: int) -> None:
    reference = np.load(FORM / "ref.npz")
    prompt, truth = reference["prompt"].ravel().tolist(), reference["tokens"][:73].tolist()
    trace = kvviz.decode(kvviz.load(circular(MODEL, rows)), prompt, 73, progress=False, poison=True)
    assert trace.tokens == in_onnxruntime(circular(MODEL, rows, weights=False), prompt, 73, rows)
    assert (trace.tokens == truth) == (rows == 96)
    assert not any(run.bytes_copied for cache in trace.caches for run in cache.runs)


def test_the_lost_row_of_the_animal_and_no_other_brings_the_animal_back() -> None:
    # given the story in a cache of 48 rows, which forgets it
    vocabulary = json.loads((FORM.parent / "vocab.json").read_text())
    reference = np.load(FORM / "ref.npz")
    prompt, truth = reference["prompt"].ravel().tolist(), reference["tokens"]
    graph = kvviz.load(MODEL)
    told: dict[str, Any] = {"prompt": prompt, "max_new_tokens": 73, "tokenizer": vocabulary, "progress": False}
    whole = kvviz.decode(graph, **told)
    small = kvviz.decode(kvviz.load(circular(MODEL, 48)), **told)
    run = next(i for i, (have, want) in enumerate(zip(small.tokens, truth)) if have != want)
    said = RowTest(whole).put_back(small, run)
    assert vocabulary[small.tokens[run]] != vocabulary[truth[run]] == "owl"
    assert [position for position, found in said.items() if found.argmax() == truth[run]] == [9]
    assert whole.words is not None and whole.words[9] == "owl"


def test_onnxruntime_gives_the_wrong_sums_that_the_hazards_announce() -> None:
    # given the contract's graph, past and present one buffer
    listed = from_the_notebook("listed")
    feeds = {"past": np.zeros((1, 2, 4, 3), np.float32), "row": np.ones((1, 2, 1, 3), np.float32), "at": np.array([1])}
    # when kvviz runs it in every legal order, and onnxruntime in those that listings and modes give
    bound = bind(kvviz.policies.ideal, {"present": "past"})
    found = orders(kvviz.load(listed("write", "old", "new")), feeds, donate=["past"], policy=bound)
    seen = set()
    for names, way in itertools.product(itertools.permutations(("write", "old", "new")), ("DEFAULT", "PRIORITY_BASED")):
        if names.index("write") > names.index("new"):
            continue
        seen.add(float(run_bound(listed(*names), feeds, {"present": "past"}, way)["before"]))
    # then a broken order is a wrong result, none is a right one, and onnxruntime gives both
    for order in found:
        assert any(h.broken for h in order.hazards) == ("before" in order.wrong)
    assert seen == {float(order.trace.outputs["before"]) for order in found} == {0.0, 6.0}


# Is it only a scatter?

SCATTER: dict[str, Any] = {"np": np, "kvviz": kvviz, "parser": onnx.parser}
exec(next(cell.source for cell in CELLS if "def beside_tensor_scatter" in cell.source), SCATTER)
beside_tensor_scatter, row_writer, write_costs = (
    SCATTER[name] for name in ("beside_tensor_scatter", "row_writer", "write_costs")
)
POLICIES = ("ideal", "never", "rten", "onnxruntime")


def test_dense_row_numbers_are_right_for_one_head_and_spill_after_the_last_row() -> None:
    by_dense_rows = from_the_notebook("by_dense_rows")
    for shape, new, at in (((2, 1, 4, 3), 1, [2, 1]), ((3, 1, 5, 2), 2, [0, 3, 1]), ((2, 1, 4, 3), 4, [0, 0])):
        assert beside_tensor_scatter(by_dense_rows, shape, new, at) == {"by hand": "right", "TensorScatter": "right"}
    for batch in (1, 2):
        said = beside_tensor_scatter(by_dense_rows, (batch, 2, 4, 3), 1, [2, 1][:batch])
        assert said["by hand"].startswith("refused: shape mismatch") and said["TensorScatter"] == "right"
    said = beside_tensor_scatter(by_dense_rows, (2, 1, 4, 3), 2, [3, 2])
    assert said["by hand"] == "wrong: sequence 2 holds a row of sequence 1"
    assert said["TensorScatter"] == "refused: batch entry 0 would write rows 3 to 4 of a cache with capacity 4"


def test_a_general_scatter_writes_the_rows_that_tensor_scatter_writes_and_copies_what_the_table_says() -> None:
    costs = list(write_costs(POLICIES, (2, 2, 160, 16)))
    cache = 2 * 2 * 160 * 16 * 4
    copied = {row["written by"]: [row[policy] for policy in POLICIES] for row in costs}
    assert copied["TensorScatter"] == copied["ScatterElements"] == [0, cache, cache, 0]
    # flattening, under rten, also copies the new rows, which are the caller's
    assert copied["ScatterND"] == [0, cache, cache + 2 * 2 * 16 * 4, 2 * cache]
    assert [row["row numbers"] for row in costs] == [2 * 8, 2 * 2 * 16 * 8, 2 * 2 * 8]
    (shown,) = [out for cell in CELLS for out in cell.outputs if "table(write_costs(" in cell.source]
    assert all(f"{number:,}" in shown["data"]["text/plain"] for row in copied.values() for number in row)


def test_onnxruntime_writes_the_same_rows_by_all_three_operators() -> None:
    shape, found = (2, 2, 5, 3), []
    past, row = np.zeros(shape, np.float32), np.random.default_rng(0).random((2, 2, 1, 3), np.float32)
    for op, at in (
        ("TensorScatter", np.array([2, 2])),
        ("ScatterElements", np.full((2, 2, 1, 3), 2)),
        ("ScatterND", np.array([[2], [7], [12], [17]])),
    ):
        session = session_of(row_writer(op, shape, 1, at.shape))
        found.append(session.run(None, {"past": past, "row": row, "at": at})[0])
    assert all(np.array_equal(one, found[0]) for one in found) and np.array_equal(found[0][:, :, 2:3], row)
