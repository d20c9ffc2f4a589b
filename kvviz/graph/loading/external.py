"""External data: which file a weight may be read from, and whether it has, and still has, the declared size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from kvviz.errors import LoadError, quoted
from kvviz.memory.storage import Blocks


def read_external(path: str, offset: int, data: memoryview, source: Source) -> None:
    """Fill ``data`` with bytes of a file; raises LoadError if it has become too short."""
    with open(path, "rb") as file:
        file.seek(offset)
        if file.readinto(data) < data.nbytes:
            raise LoadError(
                f"the data file {quoted(path)} of {source.label} was cut short after the model was loaded: its weights "
                f"need {offset + data.nbytes:,} bytes and it has {file.seek(0, 2):,}; get it again and load the "
                "model anew"
            )


class MissingDataError(LoadError):
    """The data of a weight are missing. Layouts can be computed without them."""


DEFAULT_LIMIT = 8 << 30
LFS = b"version https://git-lfs"
_LONGEST_POINTER = 1024  # bytes, by the specification of Git LFS


class ModelFile(NamedTuple):
    """Identity of a model: the name of its file, and the SHA-256 of its contents without external data. Both are empty
    for a model made in memory."""

    name: str = ""
    sha256: str = ""


NO_FILE = ModelFile()


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model came from and what may be read for it."""

    label: str  # path or kind of the model, for messages
    folder: str | None = None  # where external data lies; None for bytes and protos
    # that of the model file once links are followed: download caches keep model and data as links into one folder
    real_folder: str | None = None
    limit: int = DEFAULT_LIMIT  # largest size of one tensor, in bytes
    # location to array, or what has ``numpy()``, for weights that exist in memory already
    held: Mapping[str, Any] = field(default_factory=dict)
    blocks: Blocks = field(default_factory=lambda: Blocks(growing=True))  # for large weights
    file: ModelFile = NO_FILE


def find_external(entries: Mapping[str, str], nbytes: int, what: str, source: Source) -> tuple[str, int]:
    """The absolute path and the offset of a weight's external data, ``entries``. The rules follow the ONNX
    specification: a relative path, inside the model's folder even after links are followed, to a regular file that is
    long enough. Raises `MissingDataError`: if the file is missing, or a Git LFS pointer."""
    location = entries.get("location", "")
    if source.folder is None:
        raise MissingDataError(
            f"{what} of {source.label} is kept in the external file {quoted(location)}, and there is no folder "
            "to look in; pass the path of the model file in place of its contents"
        )
    path = _contained(location, what, source)
    offset = _number(entries, "offset", 0, what, source)
    length = _number(entries, "length", nbytes, what, source)
    if length != nbytes:
        raise LoadError(
            f"{what} of {source.label} has {length:,} bytes in {quoted(location)} where its shape needs {nbytes:,}; "
            "model and data do not belong together, export them again"
        )
    if not os.path.exists(path):
        raise MissingDataError(
            f"{what} of {source.label} is kept in the external file {quoted(location)}, which is missing; "
            f"put it next to the model, in {source.folder or os.curdir}"
        )
    if not os.path.isfile(path):
        raise LoadError(f"{what} of {source.label} is kept in {quoted(location)}, which is not a regular file")
    size = os.stat(path).st_size
    if size < _LONGEST_POINTER:
        with open(path, "rb") as file:
            if file.read(len(LFS)) == LFS:
                raise MissingDataError(
                    f"{what} of {source.label} lies in {quoted(location)}, which is a Git LFS pointer, not the data; "
                    "run git lfs pull"
                )
    if offset + length > size:
        raise LoadError(
            f"{what} of {source.label} lies at bytes {offset:,} to {offset + length:,} of {quoted(location)}, "
            f"which has only {size:,}; the data file is cut short or belongs to another model, get it again"
        )
    return path, offset


def _contained(location: str, what: str, source: Source) -> str:
    """The real path of a location that stays in the model's folder."""
    windows = PureWindowsPath(location)
    outside = (
        not location
        or "\0" in location
        or PurePosixPath(location).is_absolute()
        or bool(windows.drive or windows.root)
        or ".." in windows.parts
    )
    folder = os.path.abspath(source.folder or os.curdir)
    path = folder if outside else os.path.realpath(os.path.join(folder, location))
    allowed = [os.path.realpath(folder), *([source.real_folder] if source.real_folder else [])]
    drive = os.path.splitdrive(path)[0]
    near = [root for root in allowed if os.path.splitdrive(root)[0] == drive]
    if outside or not any(os.path.commonpath([path, root]) == root for root in near):
        raise LoadError(
            f"{what} of {source.label} names the external file {quoted(location)}, which is outside "
            "the model's folder; put the data next to the model and name it by a relative path"
        )
    return path


def _number(entries: Mapping[str, str], key: str, default: int, what: str, source: Source) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    # A plain decimal number only: int() would also take "1_0" and other digits.
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise LoadError(f"{what} of {source.label} has the external {key} {quoted(text)}, which is not a byte count")
    return int(text)
