"""Finished rows on the disk, so that an unchanged model is not run again, and an interrupted audit continues.

A row is found by everything it depends on: the contents of the model, the options, and the versions of kvviz and onnx.
Only finished rows are kept: a failure may have causes outside of the model.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from kvviz.atomic_write import write_text
from kvviz.audit.audit_worker import DEFAULTS, SHAPES, title_of
from kvviz.audit.model_files import external_names, remote_state
from kvviz.version import VERSION

_READ = 64 << 20  # a larger file is known by its size and the time of its last change
_LIMITS = ("timeout",)  # options that change no row that is done
_BESIDE = ("config.json", "genai_config.json")  # they say what kind of model it is


def default_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvviz" / "audit"


def row_key(path: str, options: Mapping[str, Any]) -> str:
    """Digest of everything that a row depends on; raises `OSError` if the model cannot be read."""
    kept = {name: value for name, value in {**DEFAULTS, **options}.items() if name not in _LIMITS}
    digest = hashlib.sha256(json.dumps([VERSION, onnx.__version__, kept, _state(path)], sort_keys=True).encode())
    return digest.hexdigest()


def _state(path: str) -> list[Any]:
    if path.startswith(SHAPES):
        return [path]
    if "://" in path:
        return [remote_state(path)]
    folder, state = Path(path).parent, _file_state(Path(path))
    state.append(title_of(path))
    data = Path(path).read_bytes() if state[0] == "contents" else b""
    names = [name for name in _BESIDE if (folder / name).exists()]
    return [state, *(_file_state(folder / name, large=True) for name in (*names, *external_names(data)))]


def _file_state(file: Path, large: bool = False) -> list[Any]:
    """``large``: not to be read, whatever its size."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return ["missing", file.name]
    if large or found.st_size > _READ:
        return ["time", file.name, found.st_size, found.st_mtime_ns]
    return ["contents", hashlib.sha256(file.read_bytes()).hexdigest()]


def cached_row(folder: Path, key: str) -> dict[str, Any] | None:
    try:
        row: dict[str, Any] = json.loads((folder / f"{key}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return row if row.get("state") == "done" else None


def keep_row(folder: Path, key: str, row: Mapping[str, Any]) -> None:
    if row["state"] == "done":
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"{key}.json", json.dumps(row))
