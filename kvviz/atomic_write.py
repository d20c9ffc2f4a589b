"""Writing files so that an old one stays complete until the new one is: write beside it, then rename.

Invariant: whatever stops a write (a full disk, an interrupt, an error in the content), the path holds either the old
contents or all of the new ones, and nothing is left beside it. Parts left by killed processes are removed by a write
into that folder a day later.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from kvviz.errors import SaveError

_PART = re.compile(r"\.kvviz-[0-9a-f]{12}\.part")
_AGE = 24 * 3600  # seconds since a part was written to: longer than anybody writes


@contextmanager
def replacing(path: Any) -> Iterator[IO[bytes]]:
    """A binary file to write; it replaces ``path`` when the block ends without an error. A link is followed, and the
    permissions of an old file are kept. Anything but a regular file (a pipe, a terminal), and an open file instead of a
    path, is written to directly. Raises `SaveError`: if the file cannot be written; the old one is unchanged."""
    if hasattr(path, "write"):
        yield path
        return
    with _reported(path):
        target = _target(path)
        if is_device(target):
            with open(target, "wb") as file:
                yield file
            return
        mode = _mode(target)
        beside, number = _beside(target)
        try:
            with os.fdopen(number, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if mode is not None:
                os.chmod(beside, mode)
            os.replace(beside, target)
        except BaseException:
            _removed(beside)
            raise


def check_writable(path: Any) -> None:
    """Raise `SaveError` if `replacing` would, before the work on the contents."""
    with _reported(path):
        target = _target(path)
        if not is_device(target):
            _mode(target)
            beside, number = _beside(target)
            os.close(number)
            _removed(beside)


@contextmanager
def replacing_files(folder: Path, last: str) -> Iterator[Path]:
    """A folder to write several related files into; they move to ``folder`` when all of them are there, ``last``, which
    completes the others, at the end. Raises `SaveError`: if something cannot be written; the old files are
    unchanged."""
    with _reported(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        staged = folder / _name()
        staged.mkdir()
        try:
            yield staged
            for file in sorted(staged.iterdir(), key=lambda made: made.name == last):
                os.replace(file, folder / file.name)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def write_text(path: Any, text: str) -> None:
    """Replace a file by a text in UTF-8; letters that cannot be encoded become question marks."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", "replace"))


@contextmanager
def _reported(path: Any) -> Iterator[None]:
    """Turn errors of the operating system into one sentence."""
    try:
        yield
    except SaveError:
        raise
    except OSError as error:
        name = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else str(path)
        if isinstance(error, FileNotFoundError) and not os.path.isdir(os.path.dirname(os.path.realpath(name))):
            raise SaveError(f"cannot write {name}: its folder does not exist") from error
        why = error.strerror or " ".join(str(error).split()) or type(error).__name__
        raise SaveError(f"cannot write {name}: {why}; what was there before is unchanged") from error


def _target(path: Any) -> str:
    """The file at the end of all links."""
    name = os.fsdecode(path)
    if name.endswith((os.sep, os.altsep or os.sep)):
        raise IsADirectoryError(0, "Is a directory")
    return os.path.realpath(name)


def is_device(target: str) -> bool:
    return os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target)


def _beside(target: str) -> tuple[str, int]:
    """A new file beside a target: its path, and its file descriptor."""
    _remove_abandoned(os.path.dirname(target))
    path = os.path.join(os.path.dirname(target), _name())
    # Only a new name: existing files and links are not ours.
    return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)


def _mode(target: str) -> int | None:
    """Permissions of the replaced file; None if there is none."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(0, "Is a directory")
    if not os.access(target, os.W_OK):
        raise PermissionError(0, "it is read-only")
    return stat.S_IMODE(found.st_mode)


def _name() -> str:
    # Short, so that it fits wherever the file's own name did, and hidden from listings and watchers of *.html.
    return f".kvviz-{secrets.token_hex(6)}.part"


def _remove_abandoned(folder: str | os.PathLike[str]) -> None:
    """Remove parts left here by killed processes: only old ones, with names like ours."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _PART.fullmatch(entry.name) and time.time() - entry.stat(follow_symlinks=False).st_mtime > _AGE:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    _removed(entry.path)


def _removed(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
