"""Rows of models: kept ones from the disk, and others from an executor, as they are done.

Invariant: every model has exactly one row, even if a worker dies. When a pool breaks, it is unknown which of its models
was the cause, so each of them runs again alone, in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import onnx

from kvviz.atomic_write import write_text
from kvviz.audit.audit_worker import DEFAULTS, SHAPES, audit_one, title_of
from kvviz.audit.model_files import external_names, remote_state
from kvviz.version import VERSION

_AHEAD = 64  # models that a caller's executor holds at a time; more only cost memory
_LOST = "the worker was killed while it ran this model: by the system for its memory, or by a crash in native code"


def finished(
    names: Mapping[str, str], options: Mapping[str, Any], folder: Path, executor: Any = None, jobs: int | None = None
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """The name of each model with its row, and whether that was kept on the disk; kept ones come first.

    ``names``: paths by name; the others are as in `completed`.
    """
    keys: dict[str, str] = {}
    left: dict[str, str] = {}
    for name, path in names.items():
        with suppress(Exception):  # whatever it is, the worker meets it, too, and reports it
            keys[name] = row_key(path, options)
        data = cached_row(folder, keys[name]) if name in keys else None
        if data is None:
            left[path] = name
        else:
            yield name, data, True
    for path, data in completed(list(left), options, executor, jobs):
        if left[path] in keys:
            keep_row(folder, keys[left[path]], data)
        yield left[path], data, False


def completed(
    paths: Sequence[str], options: Mapping[str, Any], executor: Any = None, jobs: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each path with its row, in the order in which they are done. ``executor``: anything with ``submit`` whose futures
    have ``add_done_callback``; by default ``jobs`` processes."""
    jobs = jobs or os.cpu_count() or 1
    pool = _processes(jobs) if executor is None else executor
    ahead = jobs + 1 if executor is None else _AHEAD
    waiting, suspects = deque(paths), list[str]()
    running: dict[Any, str] = {}
    done: SimpleQueue[Any] = SimpleQueue()
    try:
        while waiting or running:
            try:
                while waiting and len(running) < ahead:
                    future = pool.submit(audit_one, waiting[0], dict(options))
                    running[future] = waiting.popleft()
                    future.add_done_callback(done.put)
            except BrokenExecutor:
                if not running:
                    pool = _renewed(pool, executor, jobs)
                    continue
            future = done.get()
            path = running.pop(future)
            error = future.exception()
            if isinstance(error, BrokenExecutor):
                suspects.append(path)
                if not running:
                    pool = _renewed(pool, executor, jobs)
            else:
                yield path, future.result() if error is None else _lost(path, error)
        for path in suspects:
            yield path, _alone(path, options)
    finally:
        for future in running:
            future.cancel()
        if pool is not executor:
            _stop(pool) if running else pool.shutdown()


def _processes(jobs: int) -> ProcessPoolExecutor:
    # A fork of a process with threads (a notebook's kernel has some) may wait for a lock for ever. Ctrl-C reaches every
    # process of a terminal; the parent ends its workers.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), signal.signal, ignore)


def _renewed(pool: Any, executor: Any, jobs: int) -> Executor:
    """Processes of our own that replace a broken pool, even the caller's."""
    if pool is not executor:
        _stop(pool)
    return _processes(jobs)


def _stop(pool: Any) -> None:
    """End a pool of our own at once, with everything that still runs in it."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def _alone(path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    pool = _processes(1)
    try:
        return pool.submit(audit_one, path, dict(options)).result()
    except BrokenExecutor as error:
        return _lost(path, error)
    finally:
        _stop(pool)


def _lost(path: str, error: BaseException) -> dict[str, Any]:
    """The row of a model whose worker returned none. Dask raises KilledWorker after it has tried several workers."""
    killed = isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker"
    state, why = ("killed", _LOST) if killed else ("failed", f"{type(error).__name__}: {error}")
    return {"path": path, "state": state, "error": why, "seconds": 0.0, "kvviz": VERSION, "onnx": ""}


# -- finished rows ---------------------------------------------------------------------------------------------------
# Rows on the disk, so that an unchanged model is not run again, and an interrupted audit goes on.
#
# A row is found by what it depends on: the contents of the model, the options, and the versions of kvviz and onnx.
# Only rows that are done are kept: a failure may have causes outside of the model.


_READ = 64 << 20  # a larger file is known by its size and the time of its last change
_LIMITS = ("timeout",)  # options that change no row that is done
_BESIDE = ("config.json", "genai_config.json")  # they say what kind of model it is


def default_folder() -> Path:
    """``kvviz/audit`` in the user's folder of caches."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvviz" / "audit"


def row_key(path: str, options: Mapping[str, Any]) -> str:
    """Digest of everything that a row depends on.

    Raises `OSError`: if the model cannot be read.
    """
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
    """The row of that key; None if there is none, or if its file is damaged."""
    try:
        row: dict[str, Any] = json.loads((folder / f"{key}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return row if row.get("state") == "done" else None


def keep_row(folder: Path, key: str, row: Mapping[str, Any]) -> None:
    if row["state"] == "done":
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"{key}.json", json.dumps(row))
