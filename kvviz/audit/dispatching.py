"""Submitting models to an executor, and collecting rows as they are done.

Invariant: every model has exactly one row, even if a worker dies. When a pool breaks, it is unknown which of its models
was the cause, so each of them runs again alone, in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from queue import SimpleQueue
from typing import Any

from kvviz.audit.audit_worker import audit_one
from kvviz.version import VERSION

_AHEAD = 64  # models that a caller's executor holds at a time; more only cost memory
_LOST = "the worker was killed while it ran this model: by the system for its memory, or by a crash in native code"


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
