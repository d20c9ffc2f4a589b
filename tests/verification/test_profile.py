"""From what a session of elsewhere left behind: onnxruntime's profile and memory statistics, and recordings of rten."""

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest

import kvviz
from kvviz.cli import main
from kvviz.errors import InputError, LoadError
from kvviz.verification.session_record import observe
from kvviz.verification.verify import compared, run_session
from tests.engine.rten.records import DATA, UNLOADED, models, recordings
from tests.explain.test_fixes import file_id
from tests.graph.build import MODELS

FILES = sorted(MODELS.rglob("*.onnx"))
CONCAT = MODELS / "storyteller" / "concat" / "model.onnx"


class Left(NamedTuple):
    """Files of one session."""

    model: Path
    profile: Path
    record: Path


def session(path: Path, folder: Path, optimised: bool = True, runs: int = 1, options: Any = None) -> Left:
    """Run a model as its user would, with everything switched on that reports."""
    options = options or onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.add_session_config_entry("session.collect_node_memory_stats_to_file", str(folder / "memory.csv"))
    model = path
    if optimised:
        model = folder / "optimised.onnx"
        options.optimized_model_filepath = str(model)
    else:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    made = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = kvviz.inputs(path)
    for _ in range(runs):
        made.run(None, {one.name: np.asarray(feeds[one.name]) for one in made.get_inputs()})
    return Left(model, Path(made.end_profiling()), folder / "memory.csv")


def facts(found: Any) -> list[tuple[str, int, int]]:
    """A row for each op; names are made unique where kvviz runs the model."""
    return sorted((row.op, row.predicted, row.observed) for row in found.rows)


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_the_record_of_a_session_gives_what_the_session_gives(path: Path, tmp_path: Path) -> None:
    left = session(path, tmp_path)
    found = kvviz.verify(left.model, profile=left.profile, record=left.record)
    assert found.differences == () and found.agree == found.total > 20
    assert facts(found) == facts(kvviz.verify(path))


def test_without_statistics_the_order_and_the_times_are_known_and_nothing_is_counted(tmp_path: Path) -> None:
    left = session(CONCAT, tmp_path, runs=2)
    found = kvviz.verify(left.model, profile=left.profile)
    assert (found.agree, found.total, found.differences) == (0, 0, ())
    assert sum(row.microseconds > 0 for row in found.rows) > 100 and len(found.rows) == len(found.trace.graph.nodes)
    assert "nothing is compared" in str(found) and "does not say which onnxruntime" in str(found)
    assert not {*"✓✗"} & {*found._repr_html_()}


@pytest.mark.parametrize("optimised", [False, True])
def test_nodes_without_names_are_found_by_their_numbers_or_in_their_order(optimised: bool, tmp_path: Path) -> None:
    model = onnx.load(CONCAT)
    for node in model.graph.node:
        node.name = ""
    path = tmp_path / "nameless.onnx"
    onnx.save(model, path)
    left = session(path, tmp_path, optimised)
    found = kvviz.verify(left.model, profile=left.profile, record=left.record)
    assert found.differences == () and found.unknown == ()
    casts = len(kvviz.load(left.model).nodes) - found.total
    assert found.total > 300 and casts == (0 if optimised else 15)  # which change nothing: onnxruntime takes them out


def test_what_is_no_profile_of_the_graph_or_has_no_statistics_of_it_is_refused(tmp_path: Path) -> None:
    left, other, file = session(CONCAT, tmp_path), tmp_path / "other", tmp_path / "profile.json"
    with pytest.raises(InputError, match="pass the optimised model that the session wrote"):
        kvviz.verify(CONCAT, profile=left.profile, record=left.record)
    for text, message in (("[]", "the profile has no node"), ("{", "no profile"), ("[1]", "no profile")):
        file.write_text(text)
        with pytest.raises(LoadError, match=message):
            kvviz.verify(CONCAT, profile=file)
    other.mkdir()
    foreign = session(MODELS / "o01_optimum_llama" / "model.onnx", other)
    found = kvviz.verify(left.model, profile=left.profile, record=foreign.record)
    assert "they may be of another run" in str(found) and len(found.unknown) > 100
    none = session(MODELS / "storyteller" / "gqa" / "model.onnx", other)
    with pytest.raises(InputError, match="have none of its nodes"):
        kvviz.verify(left.model, profile=left.profile, record=none.record)
    events = json.loads(left.profile.read_text())
    file.write_text(json.dumps(events[-len(events) // 2 :]))
    cut = kvviz.verify(left.model, profile=file, record=left.record)
    assert "nodes are not in the profile, which may be cut" in str(cut)
    left.record.write_text("#name,sizes\n")
    with pytest.raises(LoadError, match="has no statistics"):
        kvviz.verify(left.model, profile=left.profile, record=left.record)


def test_a_profile_of_a_parallel_session_needs_its_options(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    left = session(CONCAT, tmp_path, options=options)
    files: dict[str, Any] = {"profile": left.profile, "record": left.record}
    assert len(kvviz.verify(left.model, **files).differences) > 100
    found = kvviz.verify(left.model, options=options, **files)
    assert found.differences == () and found.total > 300


def test_what_is_known_of_another_version_is_one_sentence() -> None:
    graph = kvviz.load(CONCAT)
    record = observe(graph, partial(run_session, kvviz.inputs(graph)))
    assert compared(record, kvviz.inputs(graph)).notes == ()
    (note,) = compared(record._replace(version="1.26.0"), kvviz.inputs(graph)).notes
    assert "the rules are those of onnxruntime 1.31" in note and "made no mean" in note


NAMES = [name for name in models() if name not in UNLOADED]
LLAMA = "o01_optimum_llama"


def files(name: str) -> tuple[Path, Path]:
    return MODELS / name / "model.onnx", DATA / f"{name}.jsonl.gz"


@pytest.mark.parametrize("name", NAMES)
def test_every_op_of_every_run_is_as_recorded(name: str) -> None:
    model, record = files(name)
    found = kvviz.verify(model, record=record)
    runs = recordings(name)
    assert found.differences == () and found.unknown == () and found.total == len(runs[0].ops)
    others = [f"run {run.run} ({run.mode}): {len(run.ops):,} of {len(run.ops):,} ops as predicted" for run in runs[1:]]
    assert [note for note in found.notes if "as predicted" in note] == others


def changed(tmp_path: Path, op: str, **values: object) -> Path:
    """A recording in which the last op of a kind says something else."""
    lines = [json.loads(line) for line in gzip.decompress(files(LLAMA)[1].read_bytes()).splitlines()]
    record = next(line for line in reversed(lines) if line["t"] == "op" and line["op"] == op)
    record.update(values)
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_what_differs_comes_first_and_says_in_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(tmp_path, "Softmax", dispatch="run")
    found = kvviz.verify(files(LLAMA)[0], record=path)
    assert found.agree == found.total - 1 == 399
    assert found.rows[0].op == "Softmax" and "dispatched it as run, and the policy as in_place" in found.rows[0].cause
    assert main(["verify", str(files(LLAMA)[0]), "--record", str(path)]) == 1
    assert "differs: Softmax" in capsys.readouterr().out
    # a buffer that another value has
    out = dict(next(op for op in reversed(recordings(LLAMA)[-1].ops) if op["op"] == "Softmax")["out"][0])
    path = changed(tmp_path, "Softmax", out=[{**out, "how": "pool_miss", "same_buffer_as": None}])
    assert "lies in the buffer of nobody" in kvviz.verify(files(LLAMA)[0], record=path).rows[0].cause


def test_what_is_no_recording_of_the_model_is_refused(tmp_path: Path) -> None:
    model, _ = files(LLAMA)
    with pytest.raises(InputError, match="the recording is of another model"):
        kvviz.verify(model, record=files("o05_dynamo_llama_op23")[1])
    with pytest.raises(LoadError, match="has no run of rten"):
        kvviz.verify(model, record=DATA / f"{next(iter(UNLOADED))}.jsonl.gz")
    (tmp_path / "trace.jsonl").write_text('{"t": "op", "run": 0, "mode": "", "outputs": []}')
    with pytest.raises(LoadError, match="a record has no 'path'"):
        kvviz.verify(model, record=tmp_path / "trace.jsonl")
    (tmp_path / "trace.jsonl").write_text("{")
    with pytest.raises(LoadError, match="is no recording of rten"):
        kvviz.verify(model, record=tmp_path / "trace.jsonl")
