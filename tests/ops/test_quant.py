"""Quantised weights, conversions and products against onnxruntime."""

import gc
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import kvviz
from kvviz.ops.maths import quant
from kvviz.ops.numeric import FromWeights
from tests.graph.build import model, node
from tests.ops.kernels import check, close, rand, run, same
from tests.ops.ort_oracle import one_node_model, ort_run
from tests.ort_session import session_of

MS = "com.microsoft"


def whole(low: int, high: int, shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Whole numbers of any dtype."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def packed(n: int, k: int, bits: int, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Weights in blocks, their scales, and packed and plain zero points."""
    blocks = -(-k // block)
    weights, zeros = (
        whole(0, 256, (n, blocks, block * bits // 8), "u1"),
        whole(0, 256, (n, -(-blocks * bits // 8)), "u1", 1),
    )
    return weights, np.abs(rand(n, blocks)) * np.float32(0.1), zeros, rand(n, blocks, seed=9)


WEIGHTS, SCALES, ZEROS, _ = packed(8, 64, 4, 16)
NBITS: dict[str, Any] = {"K": 64, "N": 8, "bits": 4, "block_size": 16}
A = rand(3, 64)
BLOCK_OF = (np.arange(64) // 16).astype(np.int32)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("geometry", [(8, 64, 16), (5, 70, 32), (16, 128, 64)], ids=str)
@pytest.mark.parametrize("zero", ["none", "packed", "float"])
def test_matmulnbits_agrees_with_onnxruntime(bits: int, geometry: tuple[int, int, int], zero: str) -> None:
    n, k, block = geometry
    weights, scales, packed_zeros, float_zeros = packed(n, k, bits, block)
    # onnxruntime has no kernel for bytes with plain zero points.
    zeros = {"packed": packed_zeros, "float": float_zeros if bits < 8 else None}.get(zero)
    attributes: dict[str, Any] = {"K": k, "N": n, "bits": bits, "block_size": block}
    for shape in ((1, 1, k), (2, 3, k), (4, k)):
        for bias in (None, rand(n, seed=4)):
            inputs = [rand(*shape, seed=3), weights, scales, zeros, None, bias]
            single = check("MatMulNBits", inputs, domain=MS, rtol=1e-4, atol=1e-3, accuracy_level=1, **attributes)[0]
    for level in (0, 2, 3):
        close(run("MatMulNBits", inputs, domain=MS, accuracy_level=level, **attributes)[0], single, 0, 0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("constant", [True, False])
def test_matmulnbits_at_level_4_rounds_its_input_where_the_weights_are_constant(bits: int, constant: bool) -> None:
    weights, scales, *_ = packed(16, 128, bits, 32)
    feeds = {"x0": rand(2, 3, 128, seed=3), "x1": weights, "x2": scales}
    attributes: dict[str, Any] = {"K": 128, "N": 16, "bits": bits, "block_size": 32, "accuracy_level": 4}
    proto = one_node_model("MatMulNBits", list(feeds.values()), domain=MS, **attributes)
    if constant:
        for name in ("x1", "x2"):
            proto.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
        del proto.graph.input[1:]
    close(kvviz.run(kvviz.load(proto), feeds).outputs["y0"], session_of(proto).run(None, feeds)[0], 1e-4, 2e-4)


def test_matmulnbits_of_flat_scales_and_of_half_precision_agrees_with_onnxruntime() -> None:
    flat = [A, WEIGHTS, SCALES.reshape(-1), ZEROS.reshape(-1)]
    check("MatMulNBits", flat, domain=MS, accuracy_level=1, **NBITS)
    narrow = [A.astype(np.float16), WEIGHTS, SCALES.astype(np.float16), ZEROS]
    check("MatMulNBits", narrow, domain=MS, rtol=5e-3, atol=2e-2, accuracy_level=1, **NBITS)


def test_columns_may_name_their_block_and_keep_its_zero_point() -> None:
    order = np.random.default_rng(1).permutation(64)
    for named in (BLOCK_OF[order], BLOCK_OF):
        check("MatMulNBits", [A, WEIGHTS, SCALES, None, named], domain=MS, atol=1e-4, **NBITS)
    # onnxruntime 1.31 leaves the zero points out once there is a g_idx; without one it is the oracle for both.
    wanted = ort_run("MatMulNBits", [A, WEIGHTS, SCALES, ZEROS], domain=MS, **NBITS)[0]
    close(quant.matmul_nbits(A, WEIGHTS, SCALES, ZEROS, BLOCK_OF, **NBITS), wanted, 1e-5, 1e-4)
    # Columns that have changed places together with the input's give the same sums.
    columns = quant.unpacked(WEIGHTS.reshape(8, -1), 4, 64)[:, order]
    moved = (columns[:, ::2] | columns[:, 1::2] << 4).reshape(WEIGHTS.shape)
    close(quant.matmul_nbits(A[:, order], moved, SCALES, ZEROS, BLOCK_OF[order], **NBITS), wanted, 1e-5, 1e-4)


def held(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The same in memory that nobody can write to, as weights lie."""
    return [np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape) for array in arrays]


def test_read_only_weights_are_unpacked_once_and_dropped_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    table = FromWeights(budget=1 << 20)
    monkeypatch.setattr(quant, "_weights", table)
    weights, scales = held([WEIGHTS, SCALES])
    first = quant.matmul_nbits(A, weights, scales, **NBITS)
    matrix = table.get((weights, scales, None, None))
    assert matrix is not None
    assert same(quant.matmul_nbits(A, weights, scales, **NBITS), first)
    assert table.get((weights, scales, None, None)) is matrix
    assert (len(table), table.nbytes) == (1, matrix.nbytes)
    # A full table keeps what it has.
    (other,) = held([np.ones(4)])
    assert not table.put((other,), np.zeros(1 << 20, np.uint8)) and table.get((other,)) is None
    del weights
    gc.collect()
    assert (len(table), table.nbytes) == (0, 0)


def test_weights_that_can_be_written_are_unpacked_anew_each_time() -> None:
    weights, (scales,) = WEIGHTS.copy(), held([SCALES])
    view = weights.view()
    view.flags.writeable = False
    # The last time it is read-only itself, and its owner changes it all the same.
    for given, writeable in ((weights, True), (view, True), (weights, False)):
        weights.flags.writeable = writeable
        quant.matmul_nbits(A, given, scales, **NBITS)
        weights.flags.writeable = True
        weights ^= 255
        wanted = ort_run("MatMulNBits", [A, weights, SCALES], domain=MS, accuracy_level=1, **NBITS)[0]
        close(quant.matmul_nbits(A, given, scales, **NBITS), wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("form", ["inside", "beside"])
def test_what_is_computed_from_weights_of_a_model_is_kept(form, tmp_path):
    weights: dict[str, Any] = {"w3": np.ones(3, np.float32), "w4": np.ones(1 << 16, np.float32)}
    names = (*weights, "listed")
    made = model(
        [node("Identity", name, f"y{name}") for name in names], [], [f"y{name} float" for name in names], **weights
    )
    made.graph.initializer.append(helper.make_tensor("listed", TensorProto.FLOAT, [1 << 15], np.ones(1 << 15)))
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=form == "beside", size_threshold=0)
    table, found = FromWeights(budget=100), kvviz.load(tmp_path / "m.onnx").weights
    assert all(table.put((found[name],), np.zeros(1)) for name in found) and len(table) == 3


@pytest.mark.parametrize("indices", [(), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize(("dtype", "bits"), [("uint8", 4), ("uint8", 8), ("uint4", 4), ("int4", 4)])
@pytest.mark.parametrize("with_zeros", [False, True])
def test_gathered_rows_are_dequantised_as_in_onnxruntime(indices, dtype, bits, with_zeros):
    rows, width, block = 10, 64, 16
    if dtype == "uint8":
        data = whole(0, 256, (rows, width * bits // 8), np.uint8)
        zeros = whole(0, 256, (rows, width // block * bits // 8), np.uint8)
    else:
        data = whole(-8 if dtype == "int4" else 0, 8, (rows, width), getattr(ml_dtypes, dtype))
        zeros = whole(0, 8, (rows, width // block), data.dtype)
    inputs = [data, whole(0, rows, indices, np.int64, 5), rand(rows, width // block), zeros if with_zeros else None]
    check("GatherBlockQuantized", inputs, domain=MS, bits=bits, block_size=block)


def test_gathering_along_any_axis_agrees_with_onnxruntime():
    cases = [((6, 4, 32), (6, 4, 2), 1, 2), ((6, 32, 4), (6, 2, 4), 2, 1), ((6, 32, 4), (6, 2, 4), 0, 1)]
    for shape, scales, gather_axis, quantize_axis in cases:
        inputs = [whole(-8, 8, shape, ml_dtypes.int4), np.array([[1, -2, 0]]), rand(*scales)]
        axes = {"gather_axis": gather_axis, "quantize_axis": quantize_axis}
        check("GatherBlockQuantized", inputs, domain=MS, block_size=16, **axes)


QUANTISED = ["int8", "uint8", "int16", "uint16", "int4", "uint4", "float8_e4m3fn", "float8_e5m2"]
COVERED = [((), 1, 0), ((1,), 1, 0), ((4,), 1, 0), ((4,), -1, 0), ((3,), 0, 0), ((3, 2), 1, 2), ((2, 4), 0, 2)]


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize(("shape", "axis", "block"), COVERED)
def test_linear_quantisation_agrees_with_onnxruntime_both_ways(name, shape, axis, block):
    dtype = np.dtype(getattr(np, name, None) or getattr(ml_dtypes, name))
    scale = np.abs(rand(*shape)) + np.float32(0.05)
    low, high = (0, 1) if name.startswith("float8") else (0, 8)
    zero = whole(low, high, shape, dtype)
    attributes = {"axis": axis, "block_size": block}
    (quantised,) = check("QuantizeLinear", [rand(3, 4, seed=1) * 10, scale, zero], **attributes)
    check("DequantizeLinear", [quantised, scale, zero], **attributes)
    check("DequantizeLinear", [quantised, scale], **attributes)


def test_linear_quantisation_agrees_with_onnxruntime_at_every_opset():
    x, scale, zero = rand(3, 4) * 10, np.float32(0.1), np.asarray(4, np.uint8)
    for opset, domain in ((10, ""), (13, ""), (19, ""), (21, MS)):
        (quantised,) = check("QuantizeLinear", [x, scale, zero], opset=opset, domain=domain)
        check("DequantizeLinear", [quantised, scale, zero], opset=opset, domain=domain)
    assert check("QuantizeLinear", [x, scale])[0].dtype == np.uint8
    assert check("QuantizeLinear", [x, scale], output_dtype=3)[0].dtype == np.int8
    # An int32 keeps all its digits until it is scaled.
    check("DequantizeLinear", [np.array([2**31 - 1, -(2**31), 16777217], np.int32), np.float32(1e-9)], rtol=1e-6)
    for x in (rand(3, 4) * 5, np.abs(rand(7)), -np.abs(rand(7)), np.zeros(3, np.float32)):
        check("DynamicQuantizeLinear", [x], n_outputs=3)


@pytest.mark.parametrize("dtype", ["u1", "i1"])
@pytest.mark.parametrize("columns", [(), (6,)], ids=str)
def test_products_of_bytes_agree_with_onnxruntime(dtype, columns):
    low, high = (0, 256) if dtype == "u1" else (-128, 128)
    b, zero = whole(low, high, (20, 6), dtype), whole(low, high, columns, dtype, 1)
    scale, a = np.abs(rand(*columns)) * np.float32(0.01), whole(0, 256, (2, 3, 20), np.uint8, 2)
    a_scale, a_zero = np.asarray(0.02, np.float32), np.asarray(3, np.uint8)
    for bias in (None, rand(6)):
        for b_zero in (None, zero):
            check("DynamicQuantizeMatMul", [rand(2, 3, 20), b, scale, b_zero, bias], domain=MS, atol=1e-4)
            inputs = [a, b, a_scale, scale, a_zero, b_zero, bias]
            check("MatMulIntegerToFloat", inputs, domain=MS, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_products_of_bytes_are_exact_where_pairs_of_them_exceed_16_bits(dtype):
    # Two products of 255 and 127 exceed an int16, into which processors without VNNI add them up.
    a = np.full((3, 8), 255, np.uint8)
    b = np.full((8, 2), np.iinfo(dtype).max, dtype)
    b[:, 1] = np.iinfo(dtype).min
    exact = a.astype(np.int64) @ b.astype(np.int64)
    one, zero, none = np.float32(1), np.asarray(0, np.uint8), np.asarray(0, dtype)
    assert np.array_equal(run("MatMulInteger", [a, b])[0], exact)
    assert np.array_equal(run("MatMulIntegerToFloat", [a, b, one, one, zero, none], domain=MS)[0], exact)
    coarse, rounded = (np.float32(4096), np.asarray(128, np.uint8)), np.clip(np.rint(exact / 4096) + 128, 0, 255)
    assert np.array_equal(run("QLinearMatMul", [a, one, zero, b, one, none, *coarse])[0], rounded)
    image, filters = a.reshape(3, 8, 1, 1), np.ascontiguousarray(b.T).reshape(2, 8, 1, 1)
    assert np.array_equal(run("ConvInteger", [image, filters])[0][..., 0, 0], exact)
    layer = [image, one, zero, filters, one, none, *coarse]
    assert np.array_equal(run("QLinearConv", layer)[0][..., 0, 0], rounded)


def test_quantised_layers_agree_with_onnxruntime():
    x, w = whole(0, 255, (1, 3, 7, 7), np.uint8), whole(0, 255, (4, 3, 3, 3), np.uint8, 1)
    x_zero, w_zero, scale = np.asarray(5, np.uint8), np.asarray(9, np.uint8), np.asarray(0.02, np.float32)
    check("ConvInteger", [x, w, x_zero, w_zero], pads=[1, 1, 1, 1])
    check("ConvInteger", [x, w])
    w_scale, y_scale, y_zero = np.abs(rand(4)) * np.float32(0.01), np.asarray(0.3, "f4"), np.asarray(100, np.uint8)
    layer = [x, scale, x_zero, w, w_scale, np.full(4, 9, np.uint8), y_scale, y_zero, whole(-50, 50, (4,), np.int32)]
    (got,), (wanted,) = run("QLinearConv", layer, pads=[1] * 4), ort_run("QLinearConv", layer, pads=[1] * 4)
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1
    a, b = whole(0, 255, (3, 8), np.uint8), whole(-9, 9, (8, 4), np.int8)
    check("QLinearMatMul", [a, scale, x_zero, b, w_scale, np.zeros(4, np.int8), np.asarray(0.01, "f4"), y_zero])
