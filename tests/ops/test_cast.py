"""Conversions between dtypes against onnxruntime."""

import numpy as np
import pytest
from onnx import helper

from kvviz.ops.movement.cast import DTYPES
from tests.ops.kernels import check, kernel_named, run

PLAIN = ["f4", "f8", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"]


def number_of(dtype) -> int:
    """ONNX's number of an element type."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


@pytest.mark.parametrize("target", PLAIN)
@pytest.mark.parametrize("source", PLAIN)
def test_plain_conversions_agree_with_onnxruntime(source, target):
    values = np.array([[0, 1, 2, 100], [7, 3, 60, 127]])
    if source in ("f4", "f8", "f2"):
        values = values + 0.75
    check("Cast", [values.astype(source)], to=number_of(target), rtol=1e-3)


def test_a_conversion_to_its_own_dtype_is_the_tensor_itself():
    x = np.arange(6, dtype=np.float32)
    cast = kernel_named("Cast")
    assert cast(x, to=number_of("f4")) is x
    assert not np.shares_memory(x, cast(x, to=number_of("f8")))


@pytest.mark.parametrize("source", [d for d in DTYPES.values() if d.kind not in "Oc"], ids=str)
def test_one_and_two_survive_every_pair_of_element_types(source):
    numbers = np.array([1, 1 if source.kind == "b" or source.name == "int2" else 2]).astype(source)
    for number, target in DTYPES.items():
        if target.kind in "Oc" or target.name == "int2":
            continue
        (got,) = run("Cast", [numbers], to=number)
        assert got.dtype == target
        wanted = [1.0, 1.0 if target.kind == "b" else float(numbers[1])]
        assert got.astype(np.float32).tolist() == wanted, target


@pytest.mark.parametrize("target", ["f4", "f8", "i4", "i8"])
def test_text_becomes_numbers_as_in_onnxruntime(target):
    texts = ["1", "-7", "42"] if target[0] == "i" else ["1.5", "-2e-3", "1E8", "inf", "-INF", "NaN", "+INF"]
    check("Cast", [np.array(texts, object)], to=number_of(target))


@pytest.mark.parametrize("values", [np.array([1.5, -0.25, 3e7, 0.1], "f4"), np.array([3, -4])], ids=str)
def test_numbers_become_text_that_reads_back_the_same(values):
    (text,) = run("Cast", [values], to=helper.TensorProto.STRING)
    assert all(isinstance(word, str) for word in text)
    (back,) = run("Cast", [text], to=number_of(values.dtype))
    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize(("source", "target"), [("f4", "i4"), ("u1", "i1"), ("f8", "u8"), ("u2", "f2")])
def test_bitcast_keeps_every_bit_and_copies_nothing(source, target):
    x = np.arange(-4, 8).astype(source).reshape(3, 4)
    y = kernel_named("BitCast", 26)(x, to=number_of(target))
    assert y.dtype == np.dtype(target)
    assert y.tobytes() == x.tobytes()
    assert np.shares_memory(x, y)
