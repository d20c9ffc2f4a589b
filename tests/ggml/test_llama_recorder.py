"""Recording out of a running llama.cpp: here a small one, whose tensors are laid out in memory as ggml's."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kvviz
from kvviz.errors import KvvizError, SaveError
from kvviz.ggml.recording.llama_recorder import TensorStruct
from tests.ggml.recordings import DATA

OPS = ["NONE", "VIEW", "SET_ROWS", "MUL_MAT", "CPY"]
TYPES = {0: ("f32", 1, 4), 27: ("i64", 1, 8)}
EVAL = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
ABORT = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
WEIGHTS, COMPUTE, CACHE = 0x100, 0x200, 0x300
USAGES = {WEIGHTS: 1, COMPUTE: 2, CACHE: 0}


class Params(ctypes.Structure):
    """The part of ``llama_context_params`` that a recorder sets."""

    _fields_ = [("n_ctx", ctypes.c_uint32), ("cb_eval", EVAL), ("abort_callback", ABORT)]


class Memory:
    """Tensors that live as long as this does."""

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.bases = {}
        for buffer in USAGES:
            self.held.append(ctypes.create_string_buffer(4096))
            self.bases[buffer] = ctypes.addressof(self.held[-1])

    def tensor(
        self, name: str, ne: tuple[int, int], op: int = 0, type_: int = 0, src: tuple[int, ...] = (), **more: Any
    ) -> int:
        one = TensorStruct()
        size = TYPES[type_][2]
        one.type, one.op, one.name, one.flags = type_, op, name.encode(), 16 if op else 0
        one.ne[:] = (*ne, 1, 1)
        one.nb[:] = (size, size * ne[0], size * ne[0] * ne[1], size * ne[0] * ne[1])
        for place, address in enumerate(src):
            one.src[place] = address
        one.buffer = more.get("buffer", COMPUTE)
        one.view_src, one.view_offs = more.get("view_src"), more.get("view_offs", 0)
        one.data = self.bases[one.buffer] + more.get("at", 0) + one.view_offs
        self.held.append(one)
        return ctypes.addressof(one)


class Ggml:
    """The functions of libggml that a recorder calls."""

    def __init__(self, memory: Memory, shifted: int = 0) -> None:
        def new(_: Any, type_: int, a: int, b: int) -> int:
            return memory.tensor("", (a, b), type_=type_)

        def view(_: Any, of: int, n: int, offset: int) -> int:
            whole = TensorStruct.from_address(of)
            found = memory.tensor(" (view)", (n, 1), 1, whole.type, (of,), view_src=of, view_offs=offset)
            made = TensorStruct.from_address(found)
            made.op_params[0], made.data = offset, whole.data + offset + shifted
            return found

        answers: dict[str, Callable[..., Any]] = {
            "ggml_op_name": lambda op: OPS[op].encode(),
            "ggml_op_desc": lambda address: b"",
            "ggml_type_name": lambda number: TYPES[number][0].encode(),
            "ggml_type_size": lambda number: TYPES[number][2],
            "ggml_blck_size": lambda number: TYPES[number][1],
            "ggml_init": lambda params: 1,
            "ggml_free": lambda context: None,
            "ggml_tensor_overhead": lambda: ctypes.sizeof(TensorStruct) + 32,
            "ggml_new_tensor_2d": new,
            "ggml_view_1d": view,
            "ggml_backend_buffer_get_base": lambda buffer: memory.bases[buffer],
            "ggml_backend_buffer_get_size": lambda buffer: 4096,
            "ggml_backend_buffer_name": lambda buffer: b"CPU",
            "ggml_backend_buffer_get_usage": lambda buffer: USAGES[buffer],
            "ggml_backend_buffer_is_host": lambda buffer: True,
        }
        for name, answer in answers.items():
            setattr(self, name, answer)


class FakeLlama:
    """As ``llama_cpp.Llama`` and its context: each call writes a row of a cache and reads it all."""

    def __init__(self) -> None:
        self.tensors = Memory()
        self.context_params = self.params = Params(n_ctx=8)
        self.contexts: dict[int, tuple[Params, dict[str, int]]] = {}
        self.low = types.SimpleNamespace(
            ggml_backend_sched_eval_callback=EVAL,
            ggml_abort_callback=ABORT,
            llama_init_from_model=self._init,
            llama_free=self.contexts.pop,
            llama_get_memory=lambda context: context + 1000,
            llama_state_get_size=lambda context: 8,
            llama_state_get_data=self._get,
            llama_state_set_data=self._set,
        )
        self._ctx, self.model = self, types.SimpleNamespace(model="model")
        self.ctx = self._init("model", self.params)
        self.memory = self.low.llama_get_memory(self.ctx)
        self.cache = self.tensors.tensor("cache_k_l0", (4, 8), buffer=CACHE)
        self.weight = self.tensors.tensor("blk.0.attn_k.weight", (4, 4), buffer=WEIGHTS)

    def __call__(self, tokens: int = 1) -> int:
        """Returns how many tokens the context knows."""
        self.decode(types.SimpleNamespace(batch=types.SimpleNamespace(n_tokens=tokens)))
        return self.contexts[self.ctx][1]["tokens"]

    def decode(self, batch: Any) -> None:
        """One ``llama_decode``."""
        self.run(batch.batch.n_tokens)

    encode = decode

    def _init(self, _: Any, params: Params) -> int:
        self.contexts[len(self.contexts) + 1] = params, {"tokens": 0}
        return len(self.contexts)

    def _get(self, context: int, data: Any, size: int) -> int:
        data[:8] = self.contexts[context][1]["tokens"].to_bytes(8, "little")
        return size

    def _set(self, context: int, data: Any, size: int) -> int:
        self.contexts[context][1]["tokens"] = int.from_bytes(bytes(data[:8]), "little")
        return size

    def run(self, n: int) -> None:
        """Execute a graph, and ask about its nodes as a scheduler does."""
        params, known = self.contexts[self.ctx]
        memory = self.tensors
        index = memory.tensor("k_idxs", (n, 1), type_=27, at=2048)
        rows = (ctypes.c_int64 * n).from_address(TensorStruct.from_address(index).data)
        rows[:] = list(range(known["tokens"], known["tokens"] + n))
        inputs = memory.tensor("inp", (4, n), at=512)
        row = memory.tensor("Kcur-0", (4, n), 3, src=(self.weight, inputs), at=1024)
        write = memory.tensor(
            "cache_k_l0 (view)", (4, 8), 2, src=(row, index, self.cache), buffer=CACHE, view_src=self.cache
        )
        view = memory.tensor("k", (4, 8), 1, src=(self.cache,), buffer=CACHE, view_src=self.cache)
        read = memory.tensor("kq-0", (8, n), 3, src=(view, row), at=1536)
        for node in (row, write, view, read):
            if params.cb_eval and params.cb_eval(node, True, None):
                raise AssertionError("the recorder wants to see a value")
        if params.abort_callback and params.abort_callback(None):
            raise AssertionError("the recorder wants to stop")
        known["tokens"] += n


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
