"""The notebook for a model of one's own serves other models than the one that it was committed with."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.ui.server import isolated

ROOT = Path(__file__).resolve().parents[2]
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
