"""An audit on a real scheduler of Dask with two worker processes."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import pytest

import kvviz
from tests.audit.small_models import chain, killer, slow


@contextmanager
def two_workers() -> Iterator[Any]:
    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        yield client


def test_rows_are_those_of_processes_also_of_a_model_that_kills_every_worker_and_of_a_slow_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models"
    slow(folder / "slow.onnx")
    good = chain(folder / "good.onnx")
    killer(folder / "killer.onnx", monkeypatch)  # before the workers start
    with two_workers() as client:
        there = kvviz.audit(folder, client.get_executor(), timeout=4, cache=tmp_path / "cache", progress=False)
    (here,) = kvviz.audit(good, jobs=1, cache=tmp_path / "processes", progress=False)
    states = {row.name: row.state for row in there}
    assert states == {"good.onnx": "done", "slow.onnx": "time limit", "killer.onnx": "killed"}
    assert (there["good.onnx"].policies, there["good.onnx"].need) == (here.policies, here.need)


def test_a_worker_that_dies_in_the_middle_loses_nothing_and_counts_nothing_twice(tmp_path: Path) -> None:
    # given forty models, and a worker that is killed after the third row
    for number in range(40):
        chain(tmp_path / "models" / f"{number:02}.onnx", ops=2 + number)
    seen: list[str] = []
    killed: list[int] = []

    def kill_one(row: Any) -> None:
        seen.append(row.name)
        if len(seen) == 3:
            killed.extend(client.run(os.getpid).values())
            os.kill(killed[0], signal.SIGKILL)

    with two_workers() as client:
        executor, cache = client.get_executor(), tmp_path / "cache"
        found = kvviz.audit(tmp_path / "models", executor, cache=cache, on_row=kill_one, progress=False)
        client.wait_for_workers(2, timeout=120)
        assert killed[0] not in client.run(os.getpid).values()
    assert [row.state for row in found] == ["done"] * 40
    assert Counter(seen) == Counter(f"{number:02}.onnx" for number in range(40))
    assert [row.policies["ideal"]["figures"]["steps"] for row in found] == [2 + number for number in range(40)]
