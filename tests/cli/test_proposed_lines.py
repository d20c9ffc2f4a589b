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
from tests.test_cli import LLAMA, Capture, failed, ran

CHOSEN = "lengths chosen: "


def chosen(capsys: Capture, *arguments: str) -> tuple[str, list[str]]:
    """What a command printed, and the options that say which lengths it took."""
    status = cli.main(arguments)
    told = capsys.readouterr()
    assert status == 0, told.err
    assert told.err.startswith(CHOSEN)
    options = shlex.split(told.err.removeprefix(CHOSEN))
    assert told.out == ran(capsys, *arguments, *options)
    return told.out, options


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_every_model_is_reported_without_an_option_and_by_the_line_that_about_proposes(
    capsys: Capture, path: Path
) -> None:
    ran(capsys, "report", str(path))
    _, command, *rest = shlex.split(ran(capsys, "about", str(path)).partition("next: ")[2])
    assert command == "html"
    ran(capsys, "report", *rest)


def _of_two() -> Any:
    """An input that has two elements, and does not say so."""
    weights: Any = {"w": np.ones(2, np.float32)}
    return model([node("Add", "x w", "y")], ["x float samples"], ["y float ?"], **weights)


def _window() -> Any:
    weights: Any = {"w": np.ones((1, 1, 40), np.float32)}
    return model([node("Conv", "x w", "y")], ["x float batch 1 samples"], ["y float ? 1 ?"], **weights)


def _named(*names: Any) -> Any:
    """Two lengths that are called so, or are declared as such a number."""
    proto = model([node("Identity", "x", "y")], ["x float n m"], ["y float ? ?"])
    for dim, name in zip(proto.graph.input[0].type.tensor_type.shape.dim, names):
        if isinstance(name, str):
            dim.dim_param = name
        else:
            dim.dim_value = name
    return proto


def test_lengths_are_chosen_that_the_graph_takes_and_can_be_pasted(capsys: Capture, tmp_path: Path) -> None:
    for make, lengths in [
        (lambda: _named(-1, 3), ["--dim", "x.0=1"]),
        (lambda: _named("-lead", 'it\'s = "two"'), ["--dim=-lead=4", '--dim=it\'s = "two"=4']),
        (_window, ["--dim", "batch=1", "samples=48"]),
    ]:
        path = tmp_path / "one.onnx"
        onnx.save(make(), path)
        assert chosen(capsys, "report", str(path))[1] == lengths


def test_lengths_are_blamed_where_they_were_chosen_alone(capsys: Capture, tmp_path: Path) -> None:
    path = str(tmp_path / "two.onnx")
    onnx.save(_of_two(), path)
    assert "were chosen" not in failed(capsys, "report", path, "--dim", "samples=5")
    line = failed(capsys, "report", path)
    assert line.endswith("; the lengths were chosen, give others in place of --dim samples=4")
    assert failed(capsys, "report", LLAMA, "--policy", "nosuch").endswith("or pass a kvviz.Policy")
    line = failed(capsys, "report", LLAMA, "--kv-capacity", "2")
    assert "capacity 2 is less than the 4 rows" in line and line.endswith("past_sequence_length=4")
    assert "twice, as 1 and as 2" in failed(capsys, "report", LLAMA, "--dim", "batch_size=1", "batch_size=2")


def test_of_several_graphs_in_a_folder_of_any_name_one_is_proposed(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("-a  'model'")
    folder.mkdir()
    for name in ("decoder_model.onnx", "decoder_model_merged.onnx", "encoder_model.onnx"):
        shutil.copy(LLAMA, folder / name)
    (folder / "a.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    told = failed(capsys, "report", "--prompt", "1,2", "--tokens", "2", "--", str(folder))
    proposed = shlex.split(told.partition("for example: kvviz ")[2])
    assert "decoder_model_merged.onnx" in " ".join(proposed)
    ran(capsys, *proposed)
    about = ran(capsys, "about", "--", str(folder)).partition("next: kvviz ")[2]
    assert "text decoder" in ran(capsys, *shlex.split(about))


def test_only_the_lengths_that_were_not_given_are_chosen(capsys: Capture) -> None:
    told, options = chosen(capsys, "report", LLAMA, "--json", "--dim", "batch_size=1")
    assert options == ["--dim", "sequence_length=1", "past_sequence_length=4"]
    assert json.loads(told)["steps"] == 400
    told, options = chosen(capsys, "compare", LLAMA, "--policies", "rten", "ideal")
    assert options[-1] == "past_sequence_length=4" and "rten" in told


@pytest.mark.parametrize("text", [["--text", "once"], ["--chat=once"]])
def test_without_a_tokenizer_the_command_line_that_needs_none_is_told(
    capsys: Capture, tmp_path: Path, text: list[str]
) -> None:
    folder = tmp_path / "anyone's model"
    folder.mkdir()
    shutil.copy(LLAMA, folder / "model.onnx")
    told = failed(capsys, "report", str(folder), *text, "--tokens", "2")
    proposed = shlex.split(told.partition("for example: kvviz ")[2])
    assert proposed == ["report", str(folder), "--tokens", "2", "--prompt", "1,2,3"]
    ran(capsys, *proposed)


def _classes_of_tokens() -> Any:
    """Tokens and segments without telling names, and three classes."""
    shapes = {"E": (60, 8), "T": (2, 8), "O": (8, 3)}
    weights: Any = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    nodes = [node("Gather", "E a", "e"), node("Gather", "T b", "t"), node("Add", "e t", "x")]
    nodes += [node("MatMul", "x O", "y")]
    return model(nodes, ["a int64 batch seq", "b int64 batch seq"], ["y float batch seq 3"], **weights)


def _decoder(name: str, rows: int, length: int | None = 1) -> Any:
    """A decoder with a cache of so many rows, that takes so many tokens a run."""
    proto = fixed(small(name).proto, length or 0, ["length"] if length else [])
    for value in (*proto.graph.input, *proto.graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 4 and rows:
            dims[2].dim_value = rows
    return proto


def test_about_proposes_a_line_that_fits_the_model(capsys: Capture, tmp_path: Path) -> None:
    for make, options in [
        (lambda: _decoder("scatter_nd", 16), "--prompt 5,17 --tokens 15"),
        (lambda: _decoder("tensor_scatter", 18, None), "--prompt 5,17"),
        (lambda: _decoder("tensor_scatter", 2), "--prompt 5,17 --tokens 1"),
        (lambda: _decoder("tensor_scatter", 1), "--prompt 5 --tokens 1"),
        (lambda: _decoder("concat", 0, 4), "--prompt 5,17,5,17 --tokens 1"),
        # Without a cache: 6 tokens, any number, a batch of 2.
        (lambda: fixed(plain(), 6, ["length"]), "--prompt 5,17 --tokens 5"),
        (plain, "--prompt 5,17"),
        (lambda: fixed(plain(), 2, ["batch"]), ""),
        (_classes_of_tokens, ""),
    ]:
        path = tmp_path / "one.onnx"
        onnx.save(make(), path)
        _, command, *rest = shlex.split(ran(capsys, "about", str(path)).partition("next: ")[2])
        assert command == "html" and shlex.join(rest) == shlex.join([str(path), *options.split()])
        ran(capsys, "report", *rest)


def test_about_proposes_no_line_where_none_works_without_more_inputs(capsys: Capture, tmp_path: Path) -> None:
    proto = model([node("SequenceLength", "s", "n")], [], ["n int64 -"])
    proto.graph.input.append(onnx.helper.make_tensor_sequence_value_info("s", 1, None))
    onnx.save(proto, tmp_path / "one.onnx")
    told = ran(capsys, "about", str(tmp_path / "one.onnx")).partition("next: ")[2]
    assert told.startswith("run it with your own inputs (--inputs FILE): input 's' (sequence) cannot be generated")


def test_more_tokens_than_the_model_has_positions_are_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match=r"'cache_position' is looked up in 64 positions, .* need 65"):
        kvviz.decode(kvviz.load(small("concat").proto), [3], 65)
