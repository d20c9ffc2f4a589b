"""The policy ``rten`` beside recordings of rten, from shapes alone."""

import gzip
import json
from pathlib import Path

import pytest

import kvviz
from kvviz.cli import main
from kvviz.errors import InputError, LoadError
from tests.engine.rten.records import DATA, MODELS, UNLOADED, models, recordings

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
