"""Model folders: which graph is meant, and what lies beside it; and graphs that go to another process."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest

import kvviz
from kvviz.decode.model_kind import model_kind
from kvviz.errors import InputError, LoadError
from tests.graph.build import MODELS, model, node

STORY = MODELS / "storyteller"
HIDDEN = "last_hidden_state float batch seq 1"
TINY = model([node("Relu", "x", "y")], ["x float n"], ["y float n"])


def folder_of(place: Path, *files: str, **texts: Any) -> Path:
    for name in files:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(TINY, place / name)
    for name, data in texts.items():
        (place / f"{name}.json").write_text(json.dumps(data), "utf-8")
    return place


GENAI = {"model": {"decoder": {"filename": "b.onnx"}}}


def test_one_graph_of_a_folder_is_meant_or_all_are_listed(tmp_path: Path) -> None:
    for number, (names, texts, graph, meant) in enumerate([
        ("decoder.onnx", {}, None, "decoder.onnx"),
        ("a.onnx b.onnx", {"genai_config": GENAI}, None, "b.onnx"),
        ("a.onnx b.onnx", {}, "a", "a.onnx"),
        ("a.onnx b.onnx", {"genai_config": GENAI}, "a.onnx", "a.onnx"),
        ("model.onnx model_fp16.onnx model_q4.onnx", {}, None, "model.onnx"),
        ("onnx/model.onnx onnx/model_quantized.onnx", {}, None, "onnx/model.onnx"),
        ("onnx/model.onnx onnx/model_q4.onnx", {}, "model_q4", "onnx/model_q4.onnx"),
        ("encoder_model.onnx decoder_model_merged.onnx", {}, "decoder_model_merged", "decoder_model_merged.onnx"),
        ("encoder_model.onnx decoder_model.onnx", {}, None, "has 2 graphs; say which: graph='decoder_model.onnx'"),
        ("model.onnx encoder.onnx", {}, None, "there are 'encoder.onnx', 'model.onnx'"),
        ("model.onnx", {}, "decoder", "has no graph 'decoder'; there are 'model.onnx'"),
        ("", {}, None, r"no \.onnx file in it, nor in onnx/ below it"),
    ]):  # fmt: skip
        files, place = names.split(), tmp_path / str(number)
        place.mkdir()
        folder_of(place, *files, **texts)
        if " " in meant:
            with pytest.raises(LoadError, match=meant):
                kvviz.load(place, graph=graph)
            continue
        loaded = kvviz.load(place, graph=graph)
        assert loaded.file.name == Path(meant).name
        assert loaded.folder == str((place / meant).parent)
        assert loaded.companions is not None and loaded.companions.files == tuple(sorted(files))


def test_which_graph_is_taken_is_logged_and_one_is_chosen_in_folders_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder_of(tmp_path, "model.onnx", "model_q4.onnx")
    with caplog.at_level("INFO", "kvviz"):
        kvviz.load(tmp_path)
    assert any(record.getMessage().endswith("model.onnx is taken") for record in caplog.records)
    for given in (tmp_path / "model.onnx", TINY):
        with pytest.raises(LoadError, match="chooses among the files of a folder"):
            kvviz.load(given, graph="a")


def test_what_lies_above_onnx_counts_as_beside(tmp_path: Path) -> None:
    folder_of(tmp_path, "onnx/model.onnx")
    shutil.copy(STORY / "vocab.json", tmp_path)
    for given in (tmp_path, tmp_path / "onnx" / "model.onnx"):
        companions = kvviz.load(given).companions
        assert companions is not None and companions.tokenizer.encode("once upon") == [1, 77, 108]


def test_a_text_is_decoded_by_what_lies_beside_the_model_until_its_end(tmp_path: Path) -> None:
    shutil.copy(STORY / "gqa_int4" / "model.onnx", tmp_path)
    shutil.copy(STORY / "gqa_int4" / "genai_config.json", tmp_path)
    shutil.copy(STORY / "vocab.json", tmp_path)
    graph = kvviz.load(tmp_path)
    text = "once upon a time there was a brave owl named rosa ."
    told = kvviz.decode(graph, text, 90, progress=False)
    whole = kvviz.decode(graph, text, len(told.tokens) + 3, stop_tokens=(), progress=False, record=False)
    assert told.words is not None and told.words[1:5] == ["once", "upon", "a", "time"]
    assert told.tokens[-1] == 2 and 2 not in told.tokens[:-1]
    assert whole.tokens[: len(told.tokens)] == told.tokens and len(whole.tokens) == len(told.tokens) + 3
    # token numbers are decoded on as asked
    assert len(kvviz.decode(graph, [1, 102, 36, 2], 2, progress=False).tokens) == 2
    with pytest.raises(InputError, match=r"pass tokenizer= .* or put the model's own tokenizer\.json beside it"):
        kvviz.decode(kvviz.load(MODELS / "o01_optimum_llama"), "hello", 2)


class Program:
    """Like torch's ONNXProgram: what holds its weights is not made to copy them."""

    def __init__(self, proto: Any, model: Any = None) -> None:
        self.model, self._proto = model, proto

    @property
    def model_proto(self) -> Any:
        assert self._proto is not None, "the weights were copied"
        return self._proto


def test_a_program_is_read_by_its_model_or_its_proto() -> None:
    for program in (Program(TINY), Program(None, onnx_ir.from_proto(TINY))):
        assert [n.op_type for n in kvviz.load(program).nodes] == ["Relu"]


def _text_model(output: str, *more: str) -> Any:
    return model(
        [node("Cast", "input_ids", "f", to=1), node("Unsqueeze", "f axes", output.split()[0])],
        ["input_ids int64 batch seq", *more],
        [output],
        axes=[2],
    )


def test_decoders_of_every_exporter_are_decoders_and_other_kinds_are_told_by_what_goes_in_and_out() -> None:
    for path in [*STORY.glob("*/model.onnx"), MODELS / "o01_optimum_llama", MODELS / "o05_dynamo_llama_op23"]:
        assert model_kind(kvviz.load(path)).decodes, path
    kinds = {
        "o03_optimum1_merged_whisper/model.onnx": "the decoder of an encoder-decoder model",
        "o03_optimum1_merged_whisper/encoder.onnx": "a speech encoder",
        "o08_silero_vad_sequence/model.onnx": "a model that carries a state on",
    }
    assert {path: model_kind(kvviz.load(MODELS / path)).name for path in kinds} == kinds


def test_the_configuration_goes_before_names(tmp_path: Path) -> None:
    cases: list[tuple[str, Any, str]] = [
        (HIDDEN, {}, "an embedding model"),
        ("sentence_embedding float batch seq 1", {}, "an embedding model"),
        (HIDDEN, {"is_encoder_decoder": True}, "the encoder of an encoder-decoder model"),
        ("logits float batch seq 1", {"architectures": ["BertForMaskedLM"]}, "a masked language model"),
        ("logits float batch seq 1", {"architectures": ["BertForSequenceClassification"]}, "a text classifier"),
        ("logits float batch seq 1", {"architectures": ["LlamaForCausalLM"]}, "a text decoder"),
        ("logits float batch seq 1", {}, "a model that scores tokens"),
    ]
    for output, config, name in cases:
        onnx.save(_text_model(output), tmp_path / "model.onnx")
        (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
        kind = model_kind(kvviz.load(tmp_path))
        assert (kind.name, kind.decodes) == (name, name == "a text decoder")


DECODERS = ["o01_optimum_llama", "o02_optimum1_merged_gpt2", "storyteller/gqa_int4"]


@pytest.mark.parametrize("name", DECODERS)
def test_an_unpickled_graph_decodes_as_before_without_its_file(name: str, tmp_path: Path) -> None:
    # given a graph whose file is gone once it is pickled
    path = shutil.copytree(MODELS / name, tmp_path / "model")
    graph = kvviz.load(path / "model.onnx")
    before = kvviz.decode(graph, [5, 17, 33], 4)
    packed = pickle.dumps(graph)
    shutil.rmtree(path)
    after = kvviz.decode(pickle.loads(packed), [5, 17, 33], 4)
    assert after.tokens == before.tokens
    assert (after.peak_bytes, after.bytes_copied) == (before.peak_bytes, before.bytes_copied)


def test_weights_in_a_file_beside_the_model_go_along(tmp_path: Path) -> None:
    path = MODELS / "o01_optimum_llama" / "model.onnx"
    model = onnx.load(path)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    graph = kvviz.load(tmp_path / "m.onnx")
    packed = pickle.dumps(graph)
    (tmp_path / "m.data").unlink()
    again = pickle.loads(packed)
    assert kvviz.decode(again, [5, 17], 3).tokens == kvviz.decode(kvviz.load(path), [5, 17], 3).tokens
    name = next(iter(again.weights))
    assert not again.weights[name].flags.writeable
    assert np.array_equal(again.weights[name], kvviz.load(path).weights[name])
