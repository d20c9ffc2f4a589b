"""Where weights lie in memory; and data files that change after a model was loaded, which never ends the process."""

import os
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import kvviz
from kvviz.errors import LoadError
from kvviz.graph import load
from kvviz.memory.storage import address, root_of
from tests.graph.test_bad_models import adding, external

CUT_SHORT = r"^the data file '.*w\.data' of '.*m\.onnx' was cut short .* need 16 bytes and it has 8; .* load the model"


def test_a_data_file_that_is_cut_short_or_gone_before_it_is_read_is_one_clear_error(tmp_path: Path) -> None:
    loaded = load(external(tmp_path / "m"))
    os.truncate(tmp_path / "m" / "w.data", 8)
    with pytest.raises(LoadError, match=CUT_SHORT):
        kvviz.run(loaded, {"x": np.zeros(4, np.float32)})
    with pytest.raises(LoadError, match=CUT_SHORT):
        loaded.weights["w"]
    loaded = load(external(tmp_path / "n"))
    (tmp_path / "n" / "w.data").unlink()
    with pytest.raises(LoadError, match=r"weight 'w'.*cannot be read"):
        loaded.weights["w"]


def replaced(file: Path) -> None:
    file.with_name("m.onnx").replace(file)


@pytest.mark.parametrize("change", [partial(os.truncate, length=0), replaced, Path.unlink])
def test_weights_that_were_read_stay_as_they_were_whatever_becomes_of_their_file(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    loaded = load(external(tmp_path / "m"))
    assert loaded.weights["w"].tolist() == [1] * 4
    change(tmp_path / "m" / "w.data")
    assert loaded.weights["w"].tolist() == [1] * 4
    assert kvviz.run(loaded, {"x": np.ones(4, np.float32)}).outputs["y"].tolist() == [2] * 4


def test_large_weights_lie_in_blocks_of_4_mib_at_least_at_cache_lines_and_are_storages_of_their_own(
    tmp_path: Path,
) -> None:
    # given: weights in the file, beside it, and small
    rng = np.random.default_rng(3)
    arrays = {f"w{i}": rng.random((200 + i, 100), np.float32) for i in range(100)} | {"small": np.ones(5, np.float32)}
    proto = adding()
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "w"))
    inline = proto.SerializeToString()
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    # when, then
    for model in (inline, tmp_path / "m.onnx"):
        weights = load(model).weights
        for name, array in arrays.items():
            np.testing.assert_array_equal(weights[name], array)
            assert root_of(weights[name]).nbytes == array.nbytes
        large = sorted((address(weights[name]), weights[name].nbytes) for name in arrays if name != "small")
        assert all(at % 64 == 0 for at, _ in large)
        assert all(at + size <= after for (at, size), (after, _) in pairwise(large))
        blocks = 1 + sum(after - at - size >= 64 for (at, size), (after, _) in pairwise(large))
        assert blocks == 2  # 4 MiB and 8 MiB


def test_many_weights_in_one_file_need_one_descriptor(tmp_path: Path) -> None:
    proto = adding()
    proto.graph.initializer.extend(numpy_helper.from_array(np.ones(4, np.float32), f"w{i}") for i in range(300))
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    loaded = load(tmp_path / "m.onnx")
    before = len(os.listdir("/dev/fd"))
    assert all(array.sum() == 4 for array in loaded.weights.values())
    assert len(os.listdir("/dev/fd")) <= before
