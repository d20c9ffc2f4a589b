"""Lengths that are chosen, and command lines that errors propose: pasted as they are, they work."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz import cli
from kvviz.errors import InputError
from tests.decode.small import small
from tests.decode.test_synthetic_inputs import FILES, file_id
from tests.decode.test_without_cache import fixed, plain
from tests.graph.build import model, node
from tests.test_cli import LLAMA, failed, ran

CHOSEN = "lengths chosen: "


def chosen(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, list[str]]:
    """What a command printed, and the options that say which lengths it took."""
    status = cli.main(arguments)
    told = capsys.readouterr()
    assert status == 0, told.err
    assert told.err.startswith(CHOSEN)
    options = shlex.split(told.err.removeprefix(CHOSEN))
    assert told.out == ran(capsys, *arguments, *options)
    return told.out, options


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_every_model_is_reported_without_an_option(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    ran(capsys, "report", str(path))


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_the_line_that_about_proposes_works(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    _, command, *rest = shlex.split(ran(capsys, "about", str(path)).partition("next: ")[2])
    assert command == "html"
    ran(capsys, "report", *rest)


def test_a_model_that_declares_negative_lengths_is_told_with_lengths_by_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # given
    proto = model([node("Relu", "x", "y")], ["x float n 3"], ["y float n 3"])
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    path = tmp_path / "free.onnx"
    onnx.save(proto, path)
    # when
    _, options = chosen(capsys, "report", str(path))
    # then
    assert options == ["--dim", "x.0=1"]
    assert "24 B written" in ran(capsys, "report", str(path), "--dim", "x.0=2")


def test_a_run_that_fails_on_chosen_lengths_says_which_they_were(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # given an input that has two elements, and does not say so
    path = tmp_path / "two.onnx"
    weights: Any = {"w": np.ones(2, np.float32)}
    onnx.save(model([node("Add", "x w", "y")], ["x float samples"], ["y float ?"], **weights), path)
    assert "were chosen" not in failed(capsys, "report", str(path), "--dim", "samples=5")
    # when
    line = failed(capsys, "report", str(path))
    # then
    assert line.endswith("; the lengths were chosen, give others in place of --dim samples=4")


def test_lengths_are_not_blamed_for_what_they_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(capsys, "report", LLAMA, "--policy", "nosuch").endswith("or pass a kvviz.Policy")
    line = failed(capsys, "report", LLAMA, "--kv-capacity", "2")
    assert "capacity 2 is less than the 4 rows" in line and line.endswith("past_sequence_length=4")
    assert "twice, as 1 and as 2" in failed(capsys, "report", LLAMA, "--dim", "batch_size=1", "batch_size=2")


def test_names_that_look_like_options_can_be_pasted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "names.onnx"
    proto = model([node("Identity", "x", "y")], ["x float n m"], ["y float ? ?"])
    for dim, name in zip(proto.graph.input[0].type.tensor_type.shape.dim, ("-lead", 'it\'s = "two"')):
        dim.dim_param = name
    onnx.save(proto, path)
    _, options = chosen(capsys, "report", str(path))
    assert options == ["--dim=-lead=4", '--dim=it\'s = "two"=4']


def test_of_several_graphs_one_is_proposed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("decoder_model.onnx", "decoder_model_merged.onnx", "encoder_model.onnx"):
        shutil.copy(LLAMA, tmp_path / name)
    told = failed(capsys, "report", str(tmp_path), "--prompt", "1,2", "--tokens", "2")
    proposed = shlex.split(told.partition("for example: kvviz ")[2])
    assert proposed[-2:] == ["--graph", "decoder_model_merged.onnx"]
    ran(capsys, *proposed)


def test_of_a_folder_with_several_graphs_the_next_line_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("model.onnx", "other.onnx"):
        shutil.copy(LLAMA, tmp_path / name)
    (tmp_path / "a.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "model.onnx").rename(tmp_path / "z.onnx")
    about = ran(capsys, "about", str(tmp_path)).partition("next: kvviz ")[2]
    assert "text decoder" in ran(capsys, *shlex.split(about))


def test_a_proposed_line_works_for_a_folder_that_begins_with_a_dash(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-a  'model'").mkdir()
    for name in ("one.onnx", "two.onnx"):
        shutil.copy(LLAMA, tmp_path / "-a  'model'" / name)
    told = failed(capsys, "report", "--", "-a  'model'")
    ran(capsys, *shlex.split(told.partition("for example: kvviz ")[2]))


def test_lengths_are_chosen_that_the_graph_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "window.onnx"
    weights: Any = {"w": np.ones((1, 1, 40), np.float32)}
    onnx.save(model([node("Conv", "x w", "y")], ["x float batch 1 samples"], ["y float ? 1 ?"], **weights), path)
    _, options = chosen(capsys, "report", str(path))
    assert options == ["--dim", "batch=1", "samples=48"]


def test_only_the_lengths_that_were_not_given_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    told, options = chosen(capsys, "report", LLAMA, "--json", "--dim", "batch_size=1")
    assert options == ["--dim", "sequence_length=1", "past_sequence_length=4"]
    assert json.loads(told)["steps"] == 400


def test_a_comparison_says_which_lengths_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    told, options = chosen(capsys, "compare", LLAMA, "--policies", "rten", "ideal")
    assert options[-1] == "past_sequence_length=4"
    assert "rten" in told


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


# -- about ------------------------------------------------------------------------------------------------------------


def _bert() -> Any:
    """Tokens and segments without telling names, and three classes."""
    shapes = {"E": (60, 8), "T": (2, 8), "O": (8, 3)}
    weights: Any = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    nodes = [node("Gather", "E a", "e"), node("Gather", "T b", "t"), node("Add", "e t", "x")]
    nodes += [node("MatMul", "x O", "y")]
    return model(nodes, ["a int64 batch seq", "b int64 batch seq"], ["y float batch seq 3"], **weights)


def _sequence() -> Any:
    """An input that cannot be made up."""
    proto = model([node("SequenceLength", "s", "n")], [], ["n int64 -"])
    kind = onnx.helper.make_tensor_sequence_value_info("s", 1, None)
    proto.graph.input.append(kind)
    return proto


def _rows(name: str, rows: int, length: int | None = 1) -> Any:
    """A decoder with a cache of so many rows, that takes so many tokens a run."""
    proto = fixed(small(name).proto, length or 0, ["length"] if length else [])
    for value in (*proto.graph.input, *proto.graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 4 and rows:
            dims[2].dim_value = rows
    return proto


LINES = {
    "16 rows, one token a run": (lambda: _rows("scatter_nd", 16), "--prompt 5,17 --tokens 15"),
    "18 rows": (lambda: _rows("tensor_scatter", 18, None), "--prompt 5,17"),
    "2 rows": (lambda: _rows("tensor_scatter", 2), "--prompt 5,17 --tokens 1"),
    "1 row": (lambda: _rows("tensor_scatter", 1), "--prompt 5 --tokens 1"),
    "a cache, 4 tokens a run": (lambda: _rows("concat", 0, 4), "--prompt 5,17,5,17 --tokens 1"),
    "no cache, 6 tokens": (lambda: fixed(plain(), 6, ["length"]), "--prompt 5,17 --tokens 5"),
    "no cache, any length": (plain, "--prompt 5,17"),
    "a batch of 2": (lambda: fixed(plain(), 2, ["batch"]), ""),
    "classes of tokens": (_bert, ""),
}


@pytest.mark.parametrize("case", LINES)
def test_about_proposes_a_line_that_fits_the_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, case: str
) -> None:
    make, options = LINES[case]
    path = tmp_path / "one.onnx"
    onnx.save(make(), path)
    _, command, *rest = shlex.split(ran(capsys, "about", str(path)).partition("next: ")[2])
    assert command == "html" and shlex.join(rest) == shlex.join([str(path), *options.split()])
    ran(capsys, "report", *rest)


def test_about_proposes_no_line_where_none_works_without_more_inputs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    onnx.save(_sequence(), tmp_path / "one.onnx")
    told = ran(capsys, "about", str(tmp_path / "one.onnx")).partition("next: ")[2]
    assert told.startswith("run it with your own inputs (--inputs FILE): input 's' (sequence) cannot be generated")


def test_more_tokens_than_the_model_has_positions_are_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match=r"'cache_position' is looked up in 64 positions, .* need 65"):
        kvviz.decode(kvviz.load(small("concat").proto), [3], 65)
