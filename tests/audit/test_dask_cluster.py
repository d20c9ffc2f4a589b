"""An audit on a real scheduler of Dask with two worker processes."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest

import kvviz
from tests.audit.small_models import chain, killer, slow
from tests.graph.build import MODELS


def test_a_model_that_kills_every_worker_and_one_that_is_slow_are_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(tmp_path / "models" / "good.onnx")
    slow(tmp_path / "models" / "slow.onnx")
    killer(tmp_path / "models" / "killer.onnx", monkeypatch)  # before the workers start
    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        found = kvviz.audit(
            tmp_path / "models", client.get_executor(), timeout=4, cache=tmp_path / "cache", progress=False
        )
    assert {row.name: row.state for row in found} == {
        "good.onnx": "done", "slow.onnx": "time limit", "killer.onnx": "killed",
    }  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as made:
        yield made


def test_a_worker_that_dies_in_the_middle_loses_nothing_and_counts_nothing_twice(client: Any, tmp_path: Path) -> None:
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

    # when
    found = kvviz.audit(
        tmp_path / "models", client.get_executor(), cache=tmp_path / "cache", on_row=kill_one, progress=False
    )
    # then
    assert [row.state for row in found] == ["done"] * 40
    assert Counter(seen) == Counter(f"{number:02}.onnx" for number in range(40))
    assert [row.policies["ideal"]["figures"]["steps"] for row in found] == [2 + number for number in range(40)]
    client.wait_for_workers(2, timeout=120)
    assert killed[0] not in client.run(os.getpid).values()


def test_a_cluster_gives_the_same_rows_as_processes(client: Any, tmp_path: Path) -> None:
    models = [MODELS / name / "model.onnx" for name in ("o06_mobius_static_llama_op24", "o07_genai_llama_int4")]
    there = kvviz.audit(models, client.get_executor(), cache=tmp_path / "dask", progress=False)
    here = kvviz.audit(models, jobs=2, cache=tmp_path / "processes", progress=False)
    assert [(row.name, row.state, row.policies, row.need) for row in there] == [
        (row.name, row.state, row.policies, row.need) for row in here
    ]
