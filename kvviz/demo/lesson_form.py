"""The two forms of a lesson: as committed it has outputs, for reading; for learning it has none, and the answer to a
question appears when the question was answered, or when the next cell runs.

It needs only Python, since the build of the wheel calls it, too.
"""

from __future__ import annotations

import json
from pathlib import Path


def to_learn(path: Path) -> str:
    notebook = json.loads(path.read_text("utf-8"))
    notebook.get("metadata", {}).pop("widgets", None)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def write_lessons(notebooks: Path, folder: Path) -> Path:
    """Write the lessons of a checkout to a folder beside its notebooks, so that they find the models. Changed lessons
    stay; the others are updated from the notebooks."""
    folder.mkdir(exist_ok=True)
    for path in sorted(path for kind in ("ipynb", "py", "md", "html") for path in notebooks.glob(f"*.{kind}")):
        place, made = folder / path.name, folder / ".made" / path.name
        text = to_learn(path) if path.suffix == ".ipynb" else path.read_text("utf-8")
        if place.exists() and not (made.exists() and made.read_text("utf-8") == place.read_text("utf-8")):
            continue
        made.parent.mkdir(exist_ok=True)
        for one in (place, made):
            one.write_text(text, "utf-8")
    return folder
