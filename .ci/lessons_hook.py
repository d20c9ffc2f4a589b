"""Puts the lessons into the wheel: notebooks without their outputs, and the models that they read, as one archive.

The forms of one model share their weights, so that compressed together they are little larger than one of them.
"""

from __future__ import annotations

import io
import lzma
import re
import runpy
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MODELS = re.compile(r"assets/models/(\w+)")
_REFERENCE = "ref.npz"
PLACE = "kvviz/demo/lessons.tar.xz"


def lessons(root: Path) -> bytes:
    """The archive, of a checkout: the same bytes for the same files."""
    form = runpy.run_path(str(root / "kvviz" / "demo" / "lesson_form.py"))
    texts = {path: form["to_learn"](path) for path in sorted((root / "notebooks").glob("*.ipynb"))}
    models = sorted({name for text in texts.values() for name in _MODELS.findall(text)})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, text in texts.items():
            _add(archive, f"notebooks/{path.name}", text.encode())
        for path in sorted(path for kind in ("py", "md", "html") for path in (root / "notebooks").glob(f"*.{kind}")):
            _add(archive, f"notebooks/{path.name}", path.read_bytes())
        # Files of one name behind one another: their weights are alike.
        found = (path for name in models for path in (root / "assets" / "models" / name).rglob("*") if path.is_file())
        for path in sorted(found, key=lambda path: (path.name, path.as_posix())):
            data = _tokens_only(path) if path.name == _REFERENCE else path.read_bytes()
            _add(archive, path.relative_to(root).as_posix(), data)
    return lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def _tokens_only(path: Path) -> bytes:
    """Reference values without those of inner runs, which no lesson reads."""
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(packed, "w") as part:
        for name in ("prompt.npy", "tokens.npy"):
            if name in whole.namelist():
                part.writestr(zipfile.ZipInfo(name), whole.read(name))
    return packed.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


class LessonsHook(BuildHookInterface[Any]):
    """Called by hatchling for each wheel; an editable one reads the checkout itself."""

    PLUGIN_NAME = "lessons"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        # Removed with the object, when the wheel is written.
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / Path(PLACE).name
        path.write_bytes(lessons(Path(self.root)))
        build_data["force_include"][str(path)] = PLACE
