"""Command lines that errors propose: pasted as they are, they work."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.graph.build import model, node
from tests.test_cli import LLAMA, failed, ran


def test_a_model_that_declares_negative_lengths_is_reported_with_lengths_by_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # given
    proto = model([node("Relu", "x", "y")], ["x float n 3"], ["y float n 3"])
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    path = tmp_path / "free.onnx"
    onnx.save(proto, path)
    # when
    line = failed(capsys, "report", str(path))
    # then
    assert line.endswith("--dim x.0=1")
    assert "24 B written" in ran(capsys, "report", str(path), "--dim", "x.0=2")


def test_of_several_graphs_one_is_proposed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("decoder_model.onnx", "decoder_model_merged.onnx", "encoder_model.onnx"):
        shutil.copy(LLAMA, tmp_path / name)
    told = failed(capsys, "report", str(tmp_path), "--prompt", "1,2", "--tokens", "2")
    proposed = shlex.split(told.partition("for example: kvviz ")[2])
    assert proposed[-2:] == ["--graph", "decoder_model_merged.onnx"]
    ran(capsys, *proposed)


def test_of_several_graphs_one_is_proposed_with_the_lengths_that_it_leaves_open(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("model.onnx", "other.onnx"):
        shutil.copy(LLAMA, tmp_path / name)
    about = ran(capsys, "about", str(tmp_path)).partition("next: kvviz ")[2]
    assert "text decoder" in ran(capsys, *shlex.split(about))
    told = failed(capsys, "report", str(tmp_path))
    ran(capsys, *shlex.split(told.partition("for example: kvviz ")[2]))


def test_a_proposed_line_works_for_a_folder_that_begins_with_a_dash(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-a  'model'").mkdir()
    shutil.copy(LLAMA, tmp_path / "-a  'model'" / "model.onnx")
    told = failed(capsys, "report", "--", "-a  'model'")
    ran(capsys, *shlex.split(told.partition("for example: kvviz ")[2]))


def test_lengths_are_proposed_that_the_graph_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "window.onnx"
    weights: Any = {"w": np.ones((1, 1, 40), np.float32)}
    onnx.save(model([node("Conv", "x w", "y")], ["x float batch 1 samples"], ["y float ? 1 ?"], **weights), path)
    proposed = failed(capsys, "report", str(path)).partition("for example: kvviz ")[2].split()
    assert proposed[-2:] == ["batch=1", "samples=48"]
    ran(capsys, *proposed)


def test_all_open_dimensions_are_named_with_a_command_line_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    line = failed(capsys, "report", LLAMA, "--dim", "batch_size=1", "--json")
    assert "leaves sequence_length, past_sequence_length open" in line
    proposed = line.partition("for example: kvviz ")[2].split()
    assert proposed[0] == "report"
    assert json.loads(ran(capsys, *proposed))["steps"] == 400


@pytest.mark.parametrize("text", [["--text", "once"], ["--chat=once"]])
def test_without_a_tokenizer_the_command_line_that_needs_none_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: list[str]
) -> None:
    folder = tmp_path / "anyone's model"
    folder.mkdir()
    shutil.copy(LLAMA, folder / "model.onnx")
    told = failed(capsys, "report", str(folder), *text, "--tokens", "2")
    proposed = shlex.split(told.partition("for example: kvviz ")[2])
    assert proposed == ["report", str(folder), "--tokens", "2", "--prompt", "1,2,3"]
    ran(capsys, *proposed)
