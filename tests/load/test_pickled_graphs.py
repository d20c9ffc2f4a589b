"""A graph goes to another process and back: with its weights, and without the file that it came from."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import kvviz
from tests.graph.build import MODELS

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
