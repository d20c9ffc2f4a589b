"""Recording out of a running llama.cpp: here a small one, whose tensors are laid out in memory as ggml's."""

import sys
import types
from pathlib import Path

import pytest

import kvviz
from kvviz.errors import KvvizError, SaveError
from tests.ggml.fake_llama import FakeLlama, Ggml
from tests.ggml.recordings import DATA


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> FakeLlama:
    found = FakeLlama()
    modules = {
        "llama_cpp": types.SimpleNamespace(__name__="llama_cpp", __version__="0.3.36"),
        "llama_cpp.llama_cpp": found.low,
        "llama_cpp._ggml": types.SimpleNamespace(libggml=Ggml(found.tensors)),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return found


def test_three_lines_record_what_is_executed_with_its_hidden_dependency(llama: FakeLlama) -> None:
    with kvviz.ggml.record(llama) as recording:
        llama(3)
        llama()
    assert [graph.step for graph in recording.graphs] == ["prefill", "decode0"]
    assert [node.name for node in recording.graphs[0].nodes] == ["Kcur-0", "cache_k_l0 (view)", "k", "kq-0"]
    found = [kvviz.hazards(graph)[0] for graph in recording.graphs]
    # three rows of four f32, then one
    assert [(one.kind, one.first, one.second, one.root, one.bytes) for one in found] == [
        ("RAW", 1, 3, "cache_k_l0", 48),
        ("RAW", 1, 3, "cache_k_l0", 16),
    ]
    roles = {leaf.name: leaf.role for leaf in recording.graphs[1].leafs}
    expected = {"blk.0.attn_k.weight": "weight", "cache_k_l0": "state", "inp": "input", "k_idxs": "input"}
    assert roles == expected and recording.meta["llama_cpp_python"] == "0.3.36"
    # weights and caches are the same tensors in both
    kept = [{leaf for leaf in graph.leafs if leaf.role != "input"} for graph in recording.graphs]
    assert kept[0] == kept[1] and len(kept[0]) == 2


def test_after_an_error_inside_the_model_is_as_it_was(llama: FakeLlama) -> None:
    before = llama._ctx.ctx
    with pytest.raises(ZeroDivisionError), kvviz.ggml.record(llama):
        llama(1 // 0)
    assert llama._ctx.ctx == before and list(llama.contexts) == [before]


def test_a_saved_recording_is_read_again(llama: FakeLlama, tmp_path: Path) -> None:
    with kvviz.ggml.record(llama) as recording:
        llama._ctx.encode(types.SimpleNamespace(batch=types.SimpleNamespace(n_tokens=3)))
        llama()
    assert [graph.step for graph in recording.graphs] == ["encode", "decode0"]
    assert "encode" not in vars(llama._ctx)
    for name in ("one.jsonl", "one.jsonl.gz"):
        recording.save(tmp_path / name)
        again = kvviz.ggml.load(tmp_path / name)
        assert [run.text for run in again.trace.runs] == ["encode", "decode0"]
        assert [node.name for node in again.graphs[0].nodes] == [node.name for node in recording.graphs[0].nodes]
        assert kvviz.hazards(again.graphs[0]) == kvviz.hazards(recording.graphs[0])
    with pytest.raises(SaveError, match="was not recorded here"):
        again.save(tmp_path / "two.jsonl")


def test_what_cannot_be_recorded_is_refused(llama: FakeLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(model: object, why: str) -> None:
        with pytest.raises(KvvizError, match=why), kvviz.ggml.record(model):
            pass

    refused(llama, "executed no graph")
    refused("model.gguf", r"a str is not a llama_cpp\.Llama")
    # another struct is found before anything is read
    other = types.SimpleNamespace(libggml=Ggml(llama.tensors, shifted=8))
    monkeypatch.setitem(sys.modules, "llama_cpp._ggml", other)
    refused(llama, "unknown layout of struct ggml_tensor")
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    refused(object(), "pip install llama-cpp-python")


def test_recordings_are_taken_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kvviz.cli import main

    file = str(DATA / "tiny_mamba.jsonl.gz")
    assert main(["report", file]) == 0 and "318 steps in 3 runs" in capsys.readouterr().out
    assert main(["html", file, "-o", str(tmp_path / "page.html")]) == 0
    assert "cache_r_l0" in (tmp_path / "page.html").read_text("utf-8")
    assert main(["report", file, "--policy", "rten"]) == 2
    assert "is a recording, so nothing runs" in capsys.readouterr().err
