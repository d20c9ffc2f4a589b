"""The demo: what the package itself brings along, and the commands that show it."""

import io
import json
import lzma
import tarfile
import webbrowser
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import kvviz
from kvviz import cli
from kvviz.cli import commands
from kvviz.demo import storyteller
from kvviz.demo.lesson_form import write_lessons
from kvviz.demo.storyteller import model, pack, unpack, vocabulary
from kvviz.lessons.questions.score import write_score
from tests.graph.build import MODELS
from tests.test_cli import Capture

PACKED = Path(storyteller.__file__).parent


def test_the_demo_tells_a_whole_story_and_writes_it_as_a_page(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert cli.main(["demo", "-o", str(path)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("once upon a time there was a brave owl named rosa .")
    assert told.splitlines()[0].endswith("the end .")
    assert "of past copied" in told and "kv_capacity=" in told
    text = path.read_text("utf-8")
    assert text.startswith("<!doctype html>") and "storyteller" in text
    assert path.stat().st_size < 800_000
    # what cannot be written is refused before it runs
    assert cli.main(["demo", "-o", str(tmp_path)]) == 2
    refused = capsys.readouterr()
    assert refused.out == "" and "1 of 3" not in refused.err and str(tmp_path) in refused.err


def test_the_demo_says_where_it_writes_before_it_runs_and_what_it_does_until_the_end(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a browser that takes every page, and a story that looks at what was said before it began
    monkeypatch.chdir(tmp_path)
    opened = Mock(return_value=True)
    monkeypatch.setattr(webbrowser, "open", opened)
    before: list[str] = []

    def short(*_: object, **__: object) -> kvviz.Trace:
        before.append(capsys.readouterr().err)
        return kvviz.decode(model(), [1, 77, 108], 3, tokenizer=vocabulary())

    monkeypatch.setattr(commands, "story", short)
    assert cli.main(["demo"]) == 0
    assert str(tmp_path / "kvviz-demo.html") in before[0] and "1 of 3" in before[0]
    after = capsys.readouterr().err
    places = [after.index(word) for word in ("2 of 3", "3 of 3", "wrote kvviz-demo.html")]
    assert places == sorted(places)
    opened.assert_called_once_with((tmp_path / "kvviz-demo.html").resolve().as_uri())


def test_the_page_of_the_demo_opens_on_a_tour_where_a_row_joins_a_cache() -> None:
    trace = kvviz.decode(model(), [1, 77, 108], 4, progress=False)
    opening = commands._opening(trace)
    step, cache = trace.steps[opening["step"]], trace.caches[opening["selection"]["id"]]
    assert step.op_type == "Concat" and step.copied == cache.runs[step.run].bytes_copied > 0
    assert len(opening["tour"].stops) == 8
    # a story that ends at once has no tour
    assert commands._opening(kvviz.decode(model(), [1, 77, 108], 1, progress=False)) == {}


def test_the_packed_model_is_the_storyteller_with_each_weight_within_half_a_step() -> None:
    data = (PACKED / "storyteller.onnx.xz").read_bytes()
    assert len(data) + (PACKED / "vocab.json").stat().st_size < 200_000
    assert (PACKED / "vocab.json").read_bytes() == (MODELS / "storyteller" / "vocab.json").read_bytes()
    whole = onnx.load(MODELS / "storyteller" / "concat" / "model.onnx")
    small = unpack(data)
    assert unpack(pack(small)) == small
    before = {tensor.name: numpy_helper.to_array(tensor) for tensor in whole.graph.initializer}
    after = {tensor.name: numpy_helper.to_array(tensor) for tensor in small.graph.initializer}
    assert before.keys() == after.keys()
    for name, array in before.items():
        step = np.abs(array).max(-1, keepdims=True) / 127 if array.dtype == np.float32 and array.size >= 256 else 0
        assert after[name].dtype == array.dtype
        assert np.all(np.abs(after[name] - array) <= step / 2 * 1.001), name
    del whole.graph.initializer[:], small.graph.initializer[:]
    assert whole == small


def test_lessons_are_copied_once_and_what_was_changed_in_them_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a wheel's archive
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("notebooks/00.ipynb", "assets/models/x/model.onnx"):
            entry = tarfile.TarInfo(name)
            entry.size = 3
            archive.addfile(entry, io.BytesIO(b"new"))
    wheel, folder = tmp_path / "wheel", tmp_path / "mine"
    wheel.mkdir()
    (wheel / "lessons.tar.xz").write_bytes(lzma.compress(packed.getvalue()))
    monkeypatch.setattr(storyteller, "files", lambda package: wheel)
    (folder / "notebooks").mkdir(parents=True)
    (folder / "notebooks" / "00.ipynb").write_text("mine")
    assert storyteller.unpack_lessons(folder) == folder / "notebooks"
    assert (folder / "notebooks" / "00.ipynb").read_text() == "mine"
    assert (folder / "assets" / "models" / "x" / "model.onnx").read_bytes() == b"new"


def test_the_score_of_a_class_is_read_code_by_code(capsys: Capture) -> None:
    codes = [write_score("story", marks) for marks in ([2, 2, 2], [1, 0, 2])]
    assert cli.main(["demo", "--score", *codes]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("story: 3 of 3 right, 3 at the first try") and second.endswith("not right: question 2")
    assert cli.main(["demo", "--score", codes[0][:-1] + "?"]) == 2
    assert cli.main(["demo", "--score", codes[0], "-o", "page.html"]) == 2
    assert "--score and --out" in capsys.readouterr().err


def test_in_a_checkout_the_lessons_are_its_notebooks_without_outputs_and_what_was_changed_in_them_stays(
    tmp_path: Path,
) -> None:
    notebooks = MODELS.parents[1] / "notebooks"
    folder = write_lessons(notebooks, tmp_path / "lessons")
    assert {path.name for path in folder.glob("*.ipynb")} == {path.name for path in notebooks.glob("*.ipynb")}
    for path in folder.glob("*.ipynb"):
        lesson = json.loads(path.read_text("utf-8"))
        assert not any(cell.get("outputs") for cell in lesson["cells"]) and "widgets" not in lesson["metadata"]
    # when: one was changed by its reader, one is of an older version
    (folder / "start.ipynb").write_text("mine")
    for old in (folder / "README.md", folder / ".made" / "README.md"):
        old.write_text("old")
    write_lessons(notebooks, folder)
    assert (folder / "start.ipynb").read_text() == "mine"
    assert (folder / "README.md").read_text("utf-8") == (notebooks / "README.md").read_text("utf-8")
