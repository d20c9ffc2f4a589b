"""Data files that change after a model was loaded: an error, never the end of the process."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import kvviz
from kvviz.errors import LoadError
from kvviz.graph import load
from tests.decode.small import small
from tests.graph.test_bad_models import adding, external

CUT_SHORT = r"^the data file '.*w\.data' of '.*m\.onnx' was cut short .* need 16 bytes and it has 8; .* load the model"


@pytest.mark.parametrize("when", ["before the first use", "after the first use"])
def test_a_data_file_that_is_cut_short_after_reading_is_one_clear_error(when: str, tmp_path: Path) -> None:
    # given
    loaded = load(external(tmp_path / "m"))
    x = np.zeros(4, np.float32)
    if when == "after the first use":
        assert kvviz.run(loaded, {"x": x}).outputs["y"].tolist() == [1] * 4
    # when
    os.truncate(tmp_path / "m" / "w.data", 8)
    # then
    with pytest.raises(LoadError, match=CUT_SHORT):
        kvviz.run(loaded, {"x": x})
    with pytest.raises(LoadError, match=CUT_SHORT):
        loaded.weights["w"]


def test_a_data_file_that_is_cut_short_between_two_runs_of_a_decode_ends_it_with_an_error(tmp_path: Path) -> None:
    # given: a decoder whose weights lie outside, in pages that are read in every run
    proto = onnx.ModelProto.FromString(small("concat").proto.SerializeToString())
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    seen: list[int] = []

    class Cutting:
        """A tokenizer that cuts the file after the second run."""

        def encode(self, text: str) -> list[int]:
            return [int(word) for word in text.split()]

        def decode(self, tokens: Sequence[int]) -> str:
            seen.extend(tokens)
            if len(seen) == 5:
                os.truncate(tmp_path / "w.data", 0)
            return ""

    # when, then
    with pytest.raises(LoadError, match="was cut short"):
        kvviz.decode(load(tmp_path / "m.onnx"), "3 1 4", 8, tokenizer=Cutting())
    assert len(seen) == 5


def test_a_data_file_that_is_replaced_or_removed_stays_as_it_was_mapped(tmp_path: Path) -> None:
    loaded = load(external(tmp_path / "m"))
    assert loaded.weights["w"].tolist() == [1] * 4
    (tmp_path / "new").write_bytes(b"")
    (tmp_path / "new").replace(tmp_path / "m" / "w.data")
    assert loaded.weights["w"].tolist() == [1] * 4
    (tmp_path / "m" / "w.data").unlink()
    assert kvviz.run(loaded, {"x": np.ones(4, np.float32)}).outputs["y"].tolist() == [2] * 4


def test_many_weights_in_one_file_need_one_descriptor(tmp_path: Path) -> None:
    proto = adding()
    proto.graph.initializer.extend(numpy_helper.from_array(np.ones(4, np.float32), f"w{i}") for i in range(300))
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    loaded = load(tmp_path / "m.onnx")
    before = len(os.listdir("/dev/fd"))
    assert all(array.sum() == 4 for array in loaded.weights.values())
    assert len(os.listdir("/dev/fd")) <= before + 1
