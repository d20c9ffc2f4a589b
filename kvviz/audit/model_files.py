"""The files of models: those in a folder, the files of one model, and a local copy of a remote one."""

from __future__ import annotations

import os
import posixpath
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvviz.errors import InputError
from kvviz.text import needed

ENDINGS = (".onnx", ".gguf")
# The entry "location" of a tensor's external data, as protobuf encodes it: a length of one or two bytes, then the name.
_LOCATION = re.compile(rb"\n\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])")


def model_paths(given: Sequence[Any]) -> dict[str, str]:
    """The models at these paths, by name. ``given``: a file, a folder (all models in it, at any depth), a URL of
    either, or several of these. A name is the path from the common folder, so that it is the same on another
    machine."""
    found = list(dict.fromkeys(model for path in given for model in _models_in(os.fspath(path))))
    if not found:
        raise InputError(
            f"there is no model ({', '.join(ENDINGS)}) in {', '.join(str(path) for path in given) or 'nothing'}"
        )
    bare, first = [_bare(path) for path in found], os.fspath(given[0])
    root = _bare(first) if len(given) == 1 and first not in found else _common(bare)
    return {posixpath.relpath(name, root) if root else name: path for name, path in zip(bare, found)}


def _bare(path: str) -> str:
    return path.split("://")[1].lstrip("/") if "://" in path else path.replace(os.sep, "/")


def _common(names: Iterable[str]) -> str:
    folders = [posixpath.dirname(name) for name in names]
    return posixpath.commonpath(folders) if len({folder[:1] == "/" for folder in folders}) == 1 else ""


def _models_in(path: str) -> list[str]:
    if "://" in path:
        system, inner = _remote(path)
        if not system.isdir(inner):
            return [path]
        scheme = path.split("://")[0]
        return [f"{scheme}://{name}" for name in sorted(system.find(inner)) if name.endswith(ENDINGS)]
    if not os.path.isdir(path):
        return [path]
    return sorted(str(file) for file in Path(path).rglob("*") if file.suffix in ENDINGS and file.is_file())


def external_names(data: bytes) -> list[str]:
    names = []
    for match in _LOCATION.finditer(data):
        length = match[1][0] if len(match[1]) == 1 else (match[1][0] & 0x7F) | match[1][1] << 7
        names.append(data[match.end() : match.end() + length].decode("utf-8", "replace"))
    return sorted(set(names))


@contextmanager
def local_model(path: str) -> Iterator[str]:
    """The path of a file on this machine: the file itself, or a copy of a remote model with its external data."""
    if "://" not in path:
        yield path
        return
    system, inner = _remote(path)
    with tempfile.TemporaryDirectory(prefix="kvviz-") as folder:
        local = Path(folder, posixpath.basename(inner))
        system.get_file(inner, str(local))
        for name in external_names(local.read_bytes()) if local.suffix == ".onnx" else ():
            beside = Path(folder, name)
            if not beside.resolve().is_relative_to(Path(folder).resolve()):
                raise InputError(f"{path} names external data outside of its folder: {name}")
            beside.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(posixpath.join(posixpath.dirname(inner), name), str(beside))
        yield str(local)


def remote_state(path: str) -> str:
    """A remote file's size, time or checksum, to notice changes."""
    system, inner = _remote(path)
    return str(system.ukey(inner))


def _remote(path: str) -> tuple[Any, str]:
    system, inner = needed("fsspec", "fsspec").core.url_to_fs(path)
    return system, inner
