"""What the lessons conclude, measured again; that on serving by onnxruntime with a buffer written by the formula."""

import ast
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
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
from tests.lessons.story import PROMPT, ROOT, STORYTELLER, WORDS, story
from tests.ort_session import session_of

CELLS = nbformat.read(ROOT / "notebooks" / "08_what_serving_systems_do.ipynb", as_version=4).cells
OWL = [WORDS.index(word) for word in ("<s>", *PROMPT.split())]
NEW = 73
Rows = dict[str, np.ndarray]  # by cache: (1, heads, rows, size)


class Model:
    """The storyteller in onnxruntime, and the true story with the words of which it is sure."""

    def __init__(self) -> None:
        self.session = session_of(onnx.load(STORYTELLER / "concat" / "model.onnx"))
        self.names = [one.name for one in self.session.get_inputs() if "past" in one.name]
        self.truth: list[int] = np.load(STORYTELLER / "concat" / "ref.npz")["tokens"].ravel()[:NEW].tolist()
        whole = [*OWL, *self.truth[:-1]]
        logits = self.run(whole, range(len(whole)), self.empty())[0][len(OWL) - 1 :]
        chances = np.exp(logits - logits.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        assert chances.argmax(-1).tolist() == self.truth
        self.sure = [i for i, chance in enumerate(chances.max(-1)) if chance > 0.99]

    def empty(self) -> Rows:
        return {name: np.zeros((1, 2, 0, 16), np.float32) for name in self.names}

    def run(self, tokens: list[int], positions: range, past: Rows) -> tuple[np.ndarray, Rows]:
        held = past[self.names[0]].shape[2]
        feeds = {"input_ids": np.array([tokens]), "position_ids": np.array([positions])}
        feeds |= {"attention_mask": np.ones((1, held + len(tokens)), np.int64), **past}
        presents = [name.replace("past_key_values", "present") for name in self.names]
        logits, *after = self.session.run(["logits", *presents], feeds)
        return logits[0], dict(zip(self.names, after))

    def tell(self, past_of: Callable[[Rows, list[int]], tuple[Rows, list[int]]], fed: bool) -> list[int]:
        """The words, with a rule for what each step finds; the true words are fed, or its own."""
        logits, rows = self.run(OWL, range(len(OWL)), self.empty())
        said, held = [int(logits[-1].argmax())], list(range(len(OWL)))
        for at in range(len(OWL), len(OWL) + NEW - 1):
            rows, held = past_of(rows, [*held, at])
            due = (self.truth if fed else said)[at - len(OWL)]
            logits, rows = self.run([due], range(at, at + 1), rows)
            said.append(int(logits[-1].argmax()))
            held = [*held, at]
        return said

    def right(self, said: list[int]) -> int:
        return sum(said[i] == self.truth[i] for i in self.sure)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


def ring(size: int, first: int) -> Callable[[Rows, list[int]], tuple[Rows, list[int]]]:
    """A buffer of ``size`` rows: position p goes to row p, from ``first`` on to first + (p - first) mod the rest."""

    def past_of(rows: Rows, positions: list[int]) -> tuple[Rows, list[int]]:
        places = {p if p < first else first + (p - first) % (size - first): p for p in positions}
        kept = sorted(set(places.values()) - {positions[-1]})
        assert len(kept) < size
        at = [positions.index(position) for position in kept]
        return {name: array[:, :, at] for name, array in rows.items()}, kept

    return past_of


def test_the_table_of_eviction_is_that_of_a_ring_which_attends_to_n_rows(model: Model) -> None:
    (shown,) = [out for cell in CELLS for out in cell.get("outputs", []) if "prompt and last" in str(out.get("data"))]
    sizes = [int(size) for size in re.findall(r"N = (\d+)", shown["data"]["text/plain"].split("\n")[0])]
    lines = {
        line[:16].strip(): re.findall(r"(\d+) \((\d+)\)", line) for line in shown["data"]["text/plain"].split("\n")
    }
    assert sizes == [64, 48, 32, 24, 20, 16]
    for kept, first in (("last N", 0), ("first 4 and last", 4), ("prompt and last", 13)):
        for size, (sure, own) in zip(sizes, lines[kept], strict=True):
            assert model.right(model.tell(ring(size, first), fed=True)) == int(sure), (kept, size)
            said = model.tell(ring(size, first), fed=False)
            assert next((i for i, (a, b) in enumerate(zip(said, model.truth)) if a != b), NEW) == int(own), (kept, size)
    assert dict(zip(sizes, lines["prompt and last"]))[32][1] == "60"


def test_pinning_the_animal_and_the_name_keeps_all_words_of_which_the_model_is_sure(model: Model) -> None:
    def pinned(rows: Rows, positions: list[int]) -> tuple[Rows, list[int]]:
        old = positions[:-1]
        kept = [p for p in old if p in (9, 11)] + [p for p in old if p not in (9, 11)][-31:]
        return {name: array[:, :, [old.index(p) for p in kept]] for name, array in rows.items()}, kept

    assert [WORDS[OWL[p]] for p in (9, 11)] == ["owl", "rosa"]
    assert model.right(model.tell(pinned, fed=True)) == len(model.sure) == 58


@pytest.mark.parametrize(("bits", "right"), [(4, 58), (3, 58), (2, 52)])
def test_so_many_words_stay_right_with_so_few_bits(model: Model, bits: int, right: int) -> None:
    steps = 2 ** (bits - 1) - 1

    def rounded(rows: Rows, positions: list[int]) -> tuple[Rows, list[int]]:
        made = {}
        for name, array in rows.items():
            scale = np.abs(array).max(-1, keepdims=True) / steps
            made[name] = (np.round(array / scale) * scale).astype(np.float32)
        return made, positions[:-1]

    assert model.right(model.tell(rounded, fed=True)) == right
    (alt,) = [cell.source for cell in CELLS if "sure words stay right down to" in cell.source]
    assert f"down to 3 bits; with 2 bits {right} do" in alt or bits > 2


def test_the_balances_of_the_roofline_are_those_of_the_data_sheet() -> None:
    said = text("01")
    assert "19.5 TFLOP/s in float32 and 312 in bfloat16, and reads 2,039 GB/s" in said
    assert f"balances of {19500 / 2039:.0f} and {312000 / 2039:.0f}" in said


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
    trace = story(form, 45, kv_capacity=64)
    assert sum(run.bytes_copied for cache in trace.caches for run in cache.runs) == 0
    assert said and trace.bytes_copied == int(said[1].replace(",", ""))


@pytest.mark.parametrize(("form", "rows"), [("concat", None), ("attention_23", None), ("static_scatter_nd", 160)])
def test_a_reshape_writes_every_row_out_for_every_query_head(form: str, rows: int | None) -> None:
    trace = story(form, 6)
    copied: Counter[int] = Counter()
    for step in trace.steps:
        copied[step.run] += step.copied if step.op_type == "Reshape" else 0
    prompt = len(trace.prompt)
    assert [copied[run] for run in range(1, 6)] == [REPEATED * (rows or prompt + run) for run in range(1, 6)]


def test_least_live_has_the_second_highest_peak_and_without_the_pool_one_of_two() -> None:
    graph = kvviz.load(STORYTELLER / "concat" / "model.onnx")
    orders = ["model", "rten", "onnxruntime", "depth_first", "least_live"]
    bare = replace(kvviz.policies.rten, name="bare", pool=None)
    told: dict[str, Any] = {"prompt": PROMPT, "tokenizer": WORDS, "max_new_tokens": 4, "schedules": orders}
    pooled = kvviz.compare(graph, policies=["rten"], **told)
    without = kvviz.compare(graph, policies=[bare], **told)
    assert sorted(pooled, key=lambda row: -row.peak)[1].name == "rten (least-live order)"
    low, high = sorted({row.above_weights for row in without})
    assert list(without)[4].above_weights == high
    assert f"{low:,} B and {high:,} B" in text("03")


NOTEBOOK = ROOT / "notebooks" / "06_static_caches.ipynb"
FORM = STORYTELLER / "tensor_scatter"
MODEL = FORM / "model.onnx"
STATIC = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]


def from_the_notebook(name: str, **needs: Any) -> Callable[..., Any]:
    """A function as the notebook defines it, with the constants of its cell; nothing else of the cell runs."""
    source = next(cell.source for cell in STATIC if f"def {name}(" in cell.source)
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


SCATTER: dict[str, Any] = {"np": np, "kvviz": kvviz, "parser": onnx.parser}
exec(next(cell.source for cell in STATIC if "def beside_tensor_scatter" in cell.source), SCATTER)
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
    (shown,) = [out for cell in STATIC for out in cell.outputs if "table(write_costs(" in cell.source]
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
