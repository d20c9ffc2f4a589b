"""Execute notebooks in place: their form to read. Their form as lessons is the same without outputs.

``python .ci/notebooks.py NOTEBOOK...``

Widget state is stored (a trusted notebook then shows the live widget on opening). What changes from run to run without
meaning anything is taken out or made equal, so that a diff shows only what really changed.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from kvviz.atomic_write import write_text
from kvviz.lessons.questions.question import READ

WIDGETS = "application/vnd.jupyter.widget-state+json"


def execute(path: Path) -> NotebookNode:
    """Run every cell in the notebook's own folder; the first error is raised with its traceback."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("widgets", None)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        store_widget_state=True,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute(env={**os.environ, READ: "1"})
    return notebook


def settle(notebook: NotebookNode) -> NotebookNode:
    """Number widget models and still pictures in order, and drop the interpreter's version."""
    notebook.metadata.get("language_info", {}).pop("version", None)
    text = nbformat.writes(notebook)
    for number, model in enumerate(notebook.metadata.get("widgets", {}).get(WIDGETS, {}).get("state", {})):
        text = text.replace(model, f"{number:032x}")
    # A still picture and its widget know each other by a key.
    for number, key in enumerate(dict.fromkeys(re.findall(r'data-kv-still=\\"([0-9a-f]{32})', text))):
        text = text.replace(key, f"a{number:031x}")
    return nbformat.reads(text, as_version=4)


def main(paths: list[str]) -> int:
    for name in paths:
        path = Path(name).resolve()
        print(f"running {name}", flush=True)
        notebook = settle(execute(path))
        nbformat.validate(notebook)
        write_text(path, nbformat.writes(notebook).rstrip("\n") + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
