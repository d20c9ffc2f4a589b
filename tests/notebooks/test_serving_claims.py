"""What the lesson on serving concludes, worked out again by onnxruntime with a buffer written by the formula."""

import re
from collections.abc import Callable

import nbformat
import numpy as np
import onnx
import pytest

from tests.notebooks.test_claims import ROOT, STORY, STORYTELLER, WORDS
from tests.ort_session import session_of

CELLS = nbformat.read(ROOT / "notebooks" / "08_what_serving_systems_do.ipynb", as_version=4).cells
OWL = [WORDS.index(word) for word in ("<s>", *STORY["prompt"].split())]
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
    first = nbformat.read(ROOT / "notebooks" / "01_what_is_a_kv_cache.ipynb", as_version=4).cells
    text = "\n".join(cell.source for cell in first if cell.cell_type == "markdown")
    assert "19.5 TFLOP/s in float32 and 312 in bfloat16, and reads 2,039 GB/s" in text
    assert f"balances of {19500 / 2039:.0f} and {312000 / 2039:.0f}" in text
