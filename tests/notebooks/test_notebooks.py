"""Every notebook runs, that of one's own model with others too, and the committed file reads well without a kernel."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from tests.ui.server import isolated

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"

QUESTIONS = Path(__file__).with_name("asked_questions.py").read_text("utf-8")

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def models(notebook: NotebookNode) -> dict[str, Any]:
    return notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {})


def debuggers(notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode]]:
    """Widget id and output of each cell that shows a widget with a page of our own (progress bars are not)."""
    saved = models(notebook)
    for output in (output for cell in code_cells(notebook) for output in cell.outputs):
        view = output.get("data", {}).get(VIEW)
        if view and saved.get(view["model_id"], {"model_module": "anywidget"})["model_module"] == "anywidget":
            yield view["model_id"], output


# The two that may be told with a beginning of one's own.
CHANGED = {
    "00_quickstart": ("a brave owl named rosa .", "a quiet fox named tess ."),
    "01_what_is_a_kv_cache": ('animal, name = "owl", "rosa"', 'animal, name = "cat", "ada"'),
}

# Run with fewer tokens: the long text of the real model takes as long as all other notebooks.
SHORTER = {"09_real_llm": {"301": "101", "300": "100", "351": "151"}}


@pytest.mark.parametrize(
    ("path", "changed"),
    [(path, CHANGED.get(path.stem, ("", ""))) for path in [*NOTEBOOKS, ROOT / "notebooks" / "class.ipynb"]],
    ids=lambda value: value.stem if isinstance(value, Path) else value[1][-10:],
)
def test_it_runs_from_top_to_bottom(
    path: Path, changed: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a copy, with the models beside it
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    for folder in ("assets", "build"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for name, value in isolated(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    here = {"metadata": {"path": str(tmp_path / "notebooks")}}
    # when it runs, and its questions are answered
    notebook = read(path)
    for cell in notebook.cells:
        cell.source = cell.source.replace(*changed)
    assert changed[1] in "".join(cell.source for cell in notebook.cells)
    for number, fewer in SHORTER.get(path.stem, {}).items():
        assert any(re.search(rf"\b{number}\b", cell.source) for cell in code_cells(notebook))
        for cell in code_cells(notebook):
            cell.source = re.sub(rf"\b{number}\b", fewer, cell.source)
    notebook.cells.append(nbformat.v4.new_code_cell(QUESTIONS))
    done = NotebookClient(notebook, timeout=180, kernel_name="python3", resources=here).execute()
    asked = int(done.cells.pop().outputs[-1].text.split()[0])
    assert asked >= 3, "a lesson asks three questions at least"
    assert [output for cell in code_cells(done) for output in cell.outputs if output.output_type == "error"] == []
    assert len(list(debuggers(done))) == len(list(debuggers(read(path)))), "run make notebooks"


@every_notebook
def test_it_was_committed_executed_in_order_without_errors(path: Path) -> None:
    cells = code_cells(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run make notebooks"
    assert any(cell.outputs for cell in cells)
    outputs = [output for cell in cells for output in cell.outputs]
    assert [output for output in outputs if output.output_type == "error"] == []
    # A command line that fails raises nothing.
    assert [text for output in outputs if "Traceback (" in (text := "".join(output.get("text", "")))] == []


@every_notebook
def test_each_debugger_shows_a_picture_where_no_kernel_or_no_trust_is(path: Path) -> None:
    """Of an untrusted notebook JupyterLab shows PNG, and HTML images with a data address; inline SVG is stripped."""
    for cell in code_cells(notebook := read(path)):
        # The picture is an output of its own, behind the widget's.
        shown = [output.data for output in cell.outputs if "data" in output]
        html = "".join("".join(data.get("text/html", "")) for data in shown)
        # a question's answer folds out
        still = re.search(r'<img [^>]*src="data:image/|<table|<details', html) or any(
            "image/png" in data for data in shown
        )
        pages = [data[VIEW]["model_id"] for data in shown if VIEW in data]
        for model in {model for model, _ in debuggers(notebook)} & set(pages):
            assert still, f"widget {model} has no still picture, and no table"
    # each chart has a text for those who cannot see it
    outputs = [output for cell in code_cells(read(path)) for output in cell.outputs if "data" in output]
    for output in outputs:
        html = "".join(output.data.get("text/html", ""))
        # a PNG stands beside an HTML image, which has the text
        assert "image/png" not in output.data or "<img " in html, output.data.get("text/plain")
        assert all(re.search(r'alt="[^"]{10,}"', tag) for tag in re.findall(r"<img [^>]*>", html)), output.data


@every_notebook
def test_it_is_small_enough_to_open_and_its_code_to_read_in_a_lesson(path: Path) -> None:
    notebook = read(path)
    # each debugger was saved, so that a trusted notebook shows it live; each live page holds all its parts
    shown, saved = [model for model, _ in debuggers(notebook)], models(notebook)
    assert set(shown) <= saved.keys()
    assert len([model for model in shown if "question" not in saved[model]["state"]]) <= 3
    assert path.stat().st_size < 1_500_000
    assert sum(len(cell.source.splitlines()) for cell in code_cells(notebook)) <= 200
    # no output is an object that cannot show itself
    texts = ["".join(o.get("data", {}).get("text/plain", "")) for cell in code_cells(notebook) for o in cell.outputs]
    assert [text for text in texts if re.search(r" at 0x[0-9a-f]+>|^\w+\(\w+=", text)] == []
    # its links lead to notebooks that are there
    text = "".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    links = set(re.findall(r"\]\(([^):]+\.ipynb)\)", text))
    assert links, "it leads nowhere"
    assert {link for link in links if not (path.parent / link).exists()} == set()


def test_without_the_real_model_its_notebook_says_in_one_line_how_to_make_it(tmp_path: Path) -> None:
    notebook, here = read(ROOT / "notebooks" / "09_real_llm.ipynb"), {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources=here)
    with pytest.raises(CellExecutionError, match="type: make smollm2"):
        client.execute()
    (error,) = code_cells(notebook)[0].outputs
    assert error["traceback"] == [error["evalue"]]


NOTEBOOK = ROOT / "notebooks" / "10_your_model.ipynb"
MODELS = ROOT / "assets" / "models"
# What follows is about models of the project.
AFTER = "## 3."


def printed(cell: NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


@pytest.mark.parametrize(
    ("model", "dims", "prompt"),
    [
        ("o02_optimum1_merged_gpt2", {"batch_size": 1, "sequence_length": 1, "past_sequence_length": 4}, [7, 70]),
        ("o08_silero_vad_sequence", {"sequence_length": 16}, None),
    ],
    ids=["a merged decoder", "no decoder"],
)
def test_it_diagnoses_another_model(
    model: str, dims: dict[str, int], prompt: list[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in isolated(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    # given the notebook up to the end of its own diagnosis, with another model
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    end = next(i for i, cell in enumerate(notebook.cells) if cell.source.startswith(AFTER))
    notebook.cells = notebook.cells[:end]
    settings = next(cell for cell in notebook.cells if cell.cell_type == "code")
    changes = {"MODEL": f"Path({str(MODELS / model / 'model.onnx')!r})", "DIMS": repr(dims), "PROMPT": repr(prompt)}
    for name, value in changes.items():
        settings.source, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", settings.source, flags=re.M)
        assert count == 1, f"the first cell no longer sets {name}"
    resources = {"metadata": {"path": str(tmp_path)}}
    done = NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    # then no cell raised, and no command line failed
    calls = [cell for cell in done.cells if cell.cell_type == "code" and "{cli} " in cell.source]
    failed = [cell.source for cell in calls if re.search(r"^(kvviz: |Traceback|usage: )", printed(cell), re.M)]
    assert len(calls) >= 4
    assert failed == []
    assert model in printed(calls[1])
