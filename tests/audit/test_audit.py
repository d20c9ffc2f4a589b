"""Audits: rows of all kinds, names, the cache, and what is compared with a baseline."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

import kvviz
from kvviz.audit.dispatching import row_key
from kvviz.audit.model_files import external_names
from kvviz.errors import InputError
from tests.audit.small_models import chain, killer, slow
from tests.graph.build import MODELS

SPAWN = multiprocessing.get_context("spawn")


def quick(paths: Any, tmp_path: Path, **how: Any) -> kvviz.Audit:
    with ThreadPoolExecutor(1) as one:
        return kvviz.audit(paths, one, cache=tmp_path / "cache", progress=False, **how)


def test_a_broken_a_slow_and_a_killing_model_are_rows_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models"
    for name in ("a", "b", "c"):
        chain(folder / name / "model.onnx")
    (folder / "broken.onnx").write_bytes(b"no model")
    slow(folder / "slow.onnx")
    killer(folder / "killer.onnx", monkeypatch)
    # when two processes of its own work on them
    seen: list[str] = []
    found = kvviz.audit(
        folder, jobs=2, timeout=4, cache=tmp_path / "cache", progress=False, on_row=lambda row: seen.append(row.name)
    )
    # then every model is one row
    states = {row.name: row.state for row in found}
    assert states == {
        "a/model.onnx": "done", "b/model.onnx": "done", "c/model.onnx": "done",
        "broken.onnx": "failed", "slow.onnx": "time limit", "killer.onnx": "killed",
    }  # fmt: skip
    assert sorted(seen) == sorted(states)
    assert "not done after 4 s" in found["slow.onnx"].error
    assert found.summary == "6 models, 1 failed, 1 killed, 1 time limit"
    assert {name for name, _ in kvviz.Audit(found.rows, limits=("peak>1GB",)).exceeded} == {
        "broken.onnx", "slow.onnx", "killer.onnx",
    }  # fmt: skip
    # and a row of the data frame, without figures where there are none
    frame = found.to_pandas()
    assert found.to_arrow().to_pylist() == found.table().rows
    assert frame[frame.peak.isna()].model.tolist() == ["broken.onnx", "killer.onnx", "slow.onnx"]


def test_figures_are_those_of_a_run_of_the_model_itself_also_where_it_stays_dry(tmp_path: Path) -> None:
    path = MODELS / "storyteller" / "concat" / "model.onnx"
    (real,) = quick(path, tmp_path)
    trace = kvviz.decode(path, [1] * 8, 4, policy="onnxruntime", progress=False)
    figures = real.policies["onnxruntime"]["figures"]
    assert real.need == kvviz.dry(path, prompt_tokens=8, max_new_tokens=4).peak_bytes
    expected = (trace.peak_bytes, trace.bytes_allocated, trace.bytes_copied)
    assert (figures["peak"], figures["allocated"], figures["copied"]) == expected
    titles = [one.title for one in kvviz.findings(trace) if not one.calm and one.kind != "peak"]
    assert [one["title"] for one in real.policies["onnxruntime"]["findings"]] == titles
    kept = real.trace("onnxruntime")
    assert kept is not None and kept.peak_bytes == trace.peak_bytes
    # one that needs more than a worker may take
    (small,) = quick(path, tmp_path, memory=100_000)
    (asked,) = quick(path, tmp_path, dry=True)
    assert small.dry.startswith("a run needs 606 kB, more than the 100 kB") and "dry: a run needs" in small.note
    assert (real.dry, asked.dry) == ("", "asked for")
    for policy in ("ideal", "onnxruntime"):
        assert real.policies[policy] == small.policies[policy] == asked.policies[policy]


def test_what_did_not_change_comes_from_the_cache(tmp_path: Path) -> None:
    one, two = (chain(tmp_path / "models" / f"{name}.onnx") for name in "ab")
    first = quick(tmp_path / "models", tmp_path)
    again = quick(tmp_path / "models", tmp_path)
    assert [row.cached for row in first] == [False, False]
    assert [row.cached for row in again] == [True, True]
    assert [row.policies for row in again] == [row.policies for row in first]
    # when one model, then an option changes
    chain(two, ops=5)
    assert [row.cached for row in quick(tmp_path / "models", tmp_path)] == [True, False]
    assert [row.cached for row in quick(tmp_path / "models", tmp_path, policies="never")] == [False, False]
    assert row_key(str(one), {"timeout": 5}) == row_key(str(one), {"timeout": 7})
    # when its external data change
    data = tmp_path / "weights.bin"
    data.write_bytes(b"1234")
    data.rename(one.parent / "weights.bin")
    assert external_names(b"..\n\x08location\x12\x0bweights.bin..") == ["weights.bin"]
    one.write_bytes(b"\n\x08location\x12\x0bweights.bin")
    key = row_key(str(one), {})
    (one.parent / "weights.bin").write_bytes(b"12345")
    assert row_key(str(one), {}) != key


def test_an_interrupted_audit_goes_on_where_it_was(tmp_path: Path) -> None:
    for number in range(5):
        chain(tmp_path / "models" / f"{number}.onnx", ops=2 + number)
    seen: list[str] = []

    def stop(row: Any) -> None:
        seen.append(row.name)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick(tmp_path / "models", tmp_path, on_row=stop)
    again = quick(tmp_path / "models", tmp_path)
    assert {row.name for row in again if row.cached} >= set(seen[:2])
    assert [row.policies["ideal"]["figures"]["steps"] for row in again] == [2, 3, 4, 5, 6]


def test_threads_and_processes_of_the_caller_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("o06_mobius_static_llama_op24", "o07_genai_llama_int4", "o08_silero_vad_sequence")
    models = [MODELS / name / "model.onnx" for name in names]
    # one of them breaks a process, which loses no other model
    killing = killer(tmp_path / "killer.onnx", monkeypatch)
    rows = []
    for number, made in enumerate((ThreadPoolExecutor(1), ThreadPoolExecutor(3), ProcessPoolExecutor(2, SPAWN))):
        with made as executor:
            given = [*models, killing] if number == 2 else models
            found = kvviz.audit(given, executor, jobs=1, cache=tmp_path / str(number), progress=False)
        rows.append([(row.state, row.policies, row.need) for row in found if row.done])
    assert rows[0] == rows[1] == rows[2] and len(rows[0]) == 3
    assert [(Path(row.name).name, row.state) for row in found if not row.done] == [("killer.onnx", "killed")]


def test_ctrl_c_ends_the_command_and_its_workers(tmp_path: Path) -> None:
    # given a command that has one model to go, which is slow
    chain(tmp_path / "models" / "a.onnx")
    slow(tmp_path / "models" / "slow.onnx")
    line = [sys.executable, "-m", "kvviz", "audit", str(tmp_path / "models"), "--jobs", "1"]
    line += ["--cache", str(tmp_path / "cache")]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list(tmp_path.glob("cache/*.json")):
        assert process.poll() is None
        time.sleep(0.1)
    # when Ctrl-C reaches the whole session
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate()
    # then it ends at once, with what is done kept
    assert process.returncode == 130
    assert "the same command goes on from there" in error and "Traceback" not in error
    assert [row.cached for row in quick(tmp_path / "models" / "a.onnx", tmp_path)] == [True]


def test_models_are_named_by_their_folders_their_url_or_their_preset(tmp_path: Path) -> None:
    files = [chain(tmp_path / folder / "model.onnx", ops) for folder, ops in (("one", 2), ("two", 4))]
    for paths in (tmp_path, files):
        found = quick(paths, tmp_path)
        steps = {row.name: row.policies["ideal"]["figures"]["steps"] for row in found}
        assert steps == {"one/model.onnx": 2, "two/model.onnx": 4}
    assert [row.name for row in quick(files[0], tmp_path)] == ["model.onnx"]
    # a model at a URL is read by the worker
    fsspec.filesystem("memory").pipe("/fleet/tiny/model.onnx", files[0].read_bytes())
    found = quick("memory://fleet", tmp_path)
    assert [(row.name, row.state) for row in found] == [("tiny/model.onnx", "done")]
    assert quick("memory://fleet/tiny/model.onnx", tmp_path)[0].cached
    # a graph without weights
    (row,) = quick(["shapes:llama-3-8b?form=gqa&layers=2"], tmp_path, policies=["ideal"])
    trace = kvviz.dry(kvviz.shapes.preset("llama-3-8b", form="gqa", layers=2), prompt_tokens=8, max_new_tokens=4)
    assert row.policies["ideal"]["figures"]["peak"] == row.need == trace.peak_bytes > 1e9
    assert row.dry.startswith("a run needs")
    # one that a worker could hold has no numbers, either
    (small,) = quick(["shapes:smollm2-135m?form=concat&layers=2"], tmp_path, policies=["ideal"])
    assert (small.state, small.dry) == ("done", "it was made from its shapes and has no weights")


def test_a_saved_audit_is_the_baseline_of_the_next_one(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    chain(folder / "same.onnx")
    chain(folder / "gone.onnx")
    grown = chain(folder / "grown.onnx", width=64)
    quick(folder, tmp_path, save=tmp_path / "old")
    (folder / "gone.onnx").unlink()
    chain(folder / "new.onnx")
    chain(grown, ops=4, width=96)
    found = quick(folder, tmp_path, baseline=tmp_path / "old", fail_on=["peak>+5%", "steps>+0"])
    changes = {(change.name, change.policy): change for change in found.changes}
    assert {name: change.state for (name, _), change in changes.items()} == {
        "same.onnx": "same", "gone.onnx": "gone", "grown.onnx": "changed", "new.onnx": "new",
    }  # fmt: skip
    change = changes["grown.onnx", "ideal"]
    assert change.after["peak"] == 1.5 * change.before["peak"] and "(+50.0%)" in change.grown("peak")
    assert "step 3: " in change.first_op and "op3" in change.first_op
    assert all(one["bytes"] > before for each in changes.values() for one, before in each.larger)
    assert {name for name, _ in found.exceeded} == {"grown.onnx"} and len(found.exceeded) == 4
    assert "(+50.0%), so the limit peak>+5% fails" in found.exceeded[0][1]
    assert quick(folder, tmp_path, baseline=found, fail_on="peak>+0%").exceeded == []


def test_a_baseline_of_another_version_is_compared_and_named(tmp_path: Path) -> None:
    path = chain(tmp_path / "model.onnx")
    file = quick(path, tmp_path).save(tmp_path / "old")
    data = json.loads(file.read_text())
    data["rows"][0] |= {"kvviz": "0.0.9", "added_by_a_later_version": 1}
    file.write_text(json.dumps(data))
    found = quick(path, tmp_path, baseline=file)
    assert found.versions.startswith("The baseline was made by kvviz 0.0.9")
    assert found.versions in found.to_markdown() and found.versions in found.to_html()
    file.write_text(json.dumps({**data, "schema": {"name": "kvviz-audit", "version": 2}}))
    with pytest.raises(InputError, match="has version 2 of the format"):
        kvviz.Audit.load(file)
    file.write_text("[]")
    with pytest.raises(InputError, match="is not an audit"):
        kvviz.Audit.load(file)


def test_wrong_arguments_are_reported_before_anything_runs(tmp_path: Path) -> None:
    path = chain(tmp_path / "model.onnx")
    for how, why in (
        ({"fail_on": "peak>+5%"}, "needs a baseline"),
        ({"fail_on": "peek>3"}, "there is no .peek"),
        ({"policies": ["nosuch"]}, "there is no policy 'nosuch'"),
        ({"dry": "maybe"}, "dry is True, False or 'auto'"),
    ):
        with pytest.raises(kvviz.KvvizError, match=why):
            quick(path, tmp_path, **how)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there is no model"):
        quick(tmp_path / "empty", tmp_path)
