"""Quantised weights, conversions and products against onnxruntime."""

import gc

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import kvviz
from kvviz.ops.maths import quant
from kvviz.ops.numeric import FromWeights
from tests.ops.kernels import check, close, frozen, run, same
from tests.ops.ort_oracle import _session as session
from tests.ops.ort_oracle import one_node_model, ort_run

MICROSOFT = "com.microsoft"


def numbers(*shape, seed=0):
    """Normal numbers."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def whole(low, high, shape, dtype, seed=0):
    """Whole numbers of any dtype."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def packed(n, k, bits, block, seed=0):
    """Weights in blocks, their scales, and packed and plain zero points."""
    blocks = -(-k // block)
    weights = whole(0, 256, (n, blocks, block * bits // 8), np.uint8, seed)
    scales = np.abs(numbers(n, blocks, seed=seed)) * 0.1
    return weights, scales, whole(0, 256, (n, -(-blocks * bits // 8)), np.uint8, seed + 1), numbers(n, blocks, seed=9)


GEOMETRIES = [(8, 64, 16), (5, 70, 32), (16, 128, 64)]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("zero", ["none", "packed", "float"])
def test_matmulnbits_agrees_with_onnxruntime(bits, geometry, zero):
    if (bits, zero) == (8, "float"):
        zero = "none"  # onnxruntime has no kernel for it
    n, k, block = geometry
    weights, scales, packed_zeros, float_zeros = packed(n, k, bits, block)
    zeros = {"none": None, "packed": packed_zeros, "float": float_zeros}[zero]
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 1}
    for shape in ((1, 1, k), (2, 3, k), (4, k)):
        for bias in (None, numbers(n, seed=4)):
            inputs = [numbers(*shape, seed=3), weights, scales, zeros, None, bias]
            check("MatMulNBits", inputs, domain=MICROSOFT, rtol=1e-4, atol=1e-3, **attributes)
    (single,) = run("MatMulNBits", inputs, domain=MICROSOFT, **attributes)
    for level in (0, 2, 3):
        close(run("MatMulNBits", inputs, domain=MICROSOFT, **{**attributes, "accuracy_level": level})[0], single, 0, 0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("constant", [True, False])
def test_matmulnbits_at_level_4_rounds_its_input_where_the_weights_are_constant(bits, constant):
    # given
    weights, scales, *_ = packed(16, 128, bits, 32)
    feeds = {"x0": numbers(2, 3, 128, seed=3), "x1": weights, "x2": scales}
    attributes = {"K": 128, "N": 16, "bits": bits, "block_size": 32, "accuracy_level": 4}
    model = one_node_model("MatMulNBits", list(feeds.values()), domain=MICROSOFT, **attributes)
    if constant:
        for name in ("x1", "x2"):
            model.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
        del model.graph.input[1:]
    # when
    got = kvviz.run(kvviz.load(model), feeds).outputs["y0"]
    # then
    close(got, session(model.SerializeToString()).run(None, feeds)[0], 1e-4, 2e-4)


def test_matmulnbits_of_flat_scales_and_of_half_precision_agrees_with_onnxruntime():
    weights, scales, zeros, _ = packed(8, 64, 4, 16)
    attributes = {"K": 64, "N": 8, "bits": 4, "block_size": 16, "accuracy_level": 1}
    flat = [numbers(3, 64), weights, scales.reshape(-1), zeros.reshape(-1)]
    check("MatMulNBits", flat, domain=MICROSOFT, **attributes)
    narrow = [numbers(3, 64).astype(np.float16), weights, scales.astype(np.float16), zeros]
    check("MatMulNBits", narrow, domain=MICROSOFT, rtol=5e-3, atol=2e-2, **attributes)


def test_matmulnbits_columns_may_name_their_block():
    weights, scales, *_ = packed(8, 64, 4, 16)
    order = np.random.default_rng(1).permutation(np.arange(64) // 16).astype(np.int32)
    attributes = {"K": 64, "N": 8, "bits": 4, "block_size": 16}
    for named in (order, np.sort(order)):
        check("MatMulNBits", [numbers(3, 64), weights, scales, None, named], domain=MICROSOFT, atol=1e-4, **attributes)


def test_columns_that_name_the_block_they_lie_in_keep_its_zero_point():
    # onnxruntime 1.31 leaves the zero points out once there is a g_idx; without one it is the oracle for both.
    weights, scales, zeros, _ = packed(8, 64, 4, 16)
    attributes = {"K": 64, "N": 8, "bits": 4, "block_size": 16}
    wanted = ort_run("MatMulNBits", [numbers(3, 64), weights, scales, zeros], domain=MICROSOFT, **attributes)[0]
    named = (np.arange(64) // 16).astype(np.int32)
    close(quant.matmul_nbits(numbers(3, 64), weights, scales, zeros, named, **attributes), wanted, 1e-5, 1e-4)
    # Columns that have changed places together with the input's give the same sums.
    order = np.random.default_rng(1).permutation(64)
    numbers_of_columns = quant.unpacked(weights.reshape(8, -1), 4, 64)[:, order]
    moved = (numbers_of_columns[:, ::2] | numbers_of_columns[:, 1::2] << 4).reshape(weights.shape)
    a = numbers(3, 64)[:, order]
    close(quant.matmul_nbits(a, moved, scales, zeros, named[order], **attributes), wanted, 1e-5, 1e-4)


def test_read_only_weights_are_unpacked_once_and_dropped_with_them(monkeypatch):
    table = FromWeights(budget=1 << 20)
    monkeypatch.setattr(quant, "_weights", table)
    weights, scales, *_ = packed(8, 64, 4, 16)
    weights, scales = frozen([weights, scales])
    kernel = quant.matmul_nbits
    first = kernel(numbers(1, 64), weights, scales, K=64, N=8, block_size=16)
    matrix = table.get((weights, scales, None, None))
    assert matrix is not None
    again = kernel(numbers(1, 64), weights, scales, K=64, N=8, block_size=16)
    assert same(first, again)
    assert table.get((weights, scales, None, None)) is matrix
    assert (len(table), table.nbytes) == (1, matrix.nbytes)
    # A full table keeps what it has.
    (other,) = frozen([np.ones(4)])
    assert not table.put((other,), np.zeros(1 << 20, np.uint8)) and table.get((other,)) is None
    del weights
    gc.collect()
    assert (len(table), table.nbytes) == (0, 0)


def test_weights_that_can_be_written_are_unpacked_anew_each_time():
    weights, scales, *_ = packed(8, 64, 4, 16)
    a, attributes = numbers(1, 64), {"K": 64, "N": 8, "block_size": 16}
    view = weights.view()
    view.flags.writeable = False
    for given in (weights, view):
        quant.matmul_nbits(a, given, scales, **attributes)
        weights ^= 255
        wanted = ort_run("MatMulNBits", [a, weights, scales], domain=MICROSOFT, accuracy_level=1, **attributes)[0]
        close(quant.matmul_nbits(a, given, scales, **attributes), wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("form", ["inside", "beside"])
def test_what_is_computed_from_weights_of_a_model_is_kept(form, tmp_path):
    tensors = [numpy_helper.from_array(np.ones(n, np.float32), f"w{n}") for n in (3, 1 << 16)]
    tensors.append(helper.make_tensor("listed", TensorProto.FLOAT, [1 << 15], np.ones(1 << 15)))
    nodes = [helper.make_node("Identity", [tensor.name], [f"y{tensor.name}"]) for tensor in tensors]
    outputs = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes]
    model = helper.make_model(helper.make_graph(nodes, "g", [], outputs, tensors))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=form == "beside", size_threshold=0)
    weights = kvviz.load(tmp_path / "m.onnx").weights
    table = FromWeights(budget=100)
    assert all(table.put((weights[name],), np.zeros(1)) for name in weights) and len(table) == 3


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
    places = np.asarray(np.random.default_rng(5).integers(0, rows, indices))
    inputs = [data, places, numbers(rows, width // block), zeros if with_zeros else None]
    check("GatherBlockQuantized", inputs, domain=MICROSOFT, bits=bits, block_size=block)


def test_gathering_along_any_axis_agrees_with_onnxruntime():
    cases = [((6, 4, 32), (6, 4, 2), 1, 2), ((6, 32, 4), (6, 2, 4), 2, 1), ((6, 32, 4), (6, 2, 4), 0, 1)]
    for shape, scales, gather_axis, quantize_axis in cases:
        inputs = [whole(-8, 8, shape, ml_dtypes.int4), np.array([[1, -2, 0]]), numbers(*scales)]
        axes = {"gather_axis": gather_axis, "quantize_axis": quantize_axis}
        check("GatherBlockQuantized", inputs, domain=MICROSOFT, block_size=16, **axes)


QUANTISED = ["int8", "uint8", "int16", "uint16", "int4", "uint4", "float8_e4m3fn", "float8_e5m2"]
SCALES = [((), 1, 0), ((1,), 1, 0), ((4,), 1, 0), ((4,), -1, 0), ((3,), 0, 0), ((3, 2), 1, 2), ((2, 4), 0, 2)]


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize(("shape", "axis", "block"), SCALES)
def test_linear_quantisation_agrees_with_onnxruntime_both_ways(name, shape, axis, block):
    dtype = np.dtype(getattr(np, name, None) or getattr(ml_dtypes, name))
    scale = np.abs(numbers(*shape)) + np.float32(0.05)
    low, high = (0, 1) if name.startswith("float8") else (0, 8)
    zero = whole(low, high, shape, dtype)
    attributes = {"axis": axis, "block_size": block}
    (quantised,) = check("QuantizeLinear", [numbers(3, 4, seed=1) * 10, scale, zero], **attributes)
    check("DequantizeLinear", [quantised, scale, zero], **attributes)
    check("DequantizeLinear", [quantised, scale], **attributes)


def test_linear_quantisation_agrees_with_onnxruntime_at_every_opset():
    x, scale, zero = numbers(3, 4) * 10, np.float32(0.1), np.asarray(4, np.uint8)
    for opset, domain in ((10, ""), (13, ""), (19, ""), (21, MICROSOFT)):
        (quantised,) = check("QuantizeLinear", [x, scale, zero], opset=opset, domain=domain)
        check("DequantizeLinear", [quantised, scale, zero], opset=opset, domain=domain)
    assert check("QuantizeLinear", [x, scale])[0].dtype == np.uint8
    assert check("QuantizeLinear", [x, scale], output_dtype=3)[0].dtype == np.int8
    # An int32 keeps all its digits until it is scaled.
    check("DequantizeLinear", [np.array([2**31 - 1, -(2**31), 16777217], np.int32), np.float32(1e-9)], rtol=1e-6)


@pytest.mark.parametrize(
    "x",
    [numbers(3, 4) * 5, np.abs(numbers(7)), -np.abs(numbers(7)), np.zeros(3, np.float32)],
    ids=["mixed", "+", "-", "0"],
)
def test_dynamic_quantisation_agrees_with_onnxruntime(x):
    check("DynamicQuantizeLinear", [x], n_outputs=3)


@pytest.mark.parametrize("dtype", ["u1", "i1"])
@pytest.mark.parametrize("columns", [(), (6,)], ids=str)
def test_products_of_bytes_agree_with_onnxruntime(dtype, columns):
    low, high = (0, 256) if dtype == "u1" else (-128, 128)
    b, zero = whole(low, high, (20, 6), dtype), whole(low, high, columns, dtype, 1)
    scale, a = np.abs(numbers(*columns)) * np.float32(0.01), whole(0, 256, (2, 3, 20), np.uint8, 2)
    a_scale, a_zero = np.asarray(0.02, np.float32), np.asarray(3, np.uint8)
    for bias in (None, numbers(6)):
        for b_zero in (None, zero):
            check("DynamicQuantizeMatMul", [numbers(2, 3, 20), b, scale, b_zero, bias], domain=MICROSOFT, atol=1e-4)
            inputs = [a, b, a_scale, scale, a_zero, b_zero, bias]
            check("MatMulIntegerToFloat", inputs, domain=MICROSOFT, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_products_of_bytes_are_exact_where_pairs_of_them_exceed_16_bits(dtype):
    # Two products of 255 and 127 exceed an int16, into which processors without VNNI add them up.
    a = np.full((3, 8), 255, np.uint8)
    b = np.full((8, 2), np.iinfo(dtype).max, dtype)
    b[:, 1] = np.iinfo(dtype).min
    exact = a.astype(np.int64) @ b.astype(np.int64)
    one, zero, none = np.float32(1), np.asarray(0, np.uint8), np.asarray(0, dtype)
    assert np.array_equal(run("MatMulInteger", [a, b])[0], exact)
    assert np.array_equal(run("MatMulIntegerToFloat", [a, b, one, one, zero, none], domain=MICROSOFT)[0], exact)
    coarse = np.float32(4096)
    (y,) = run("QLinearMatMul", [a, one, zero, b, one, none, coarse, np.asarray(128, np.uint8)])
    assert np.array_equal(y, np.clip(np.rint(exact / 4096) + 128, 0, 255))
    image, filters = a.reshape(3, 8, 1, 1), np.ascontiguousarray(b.T).reshape(2, 8, 1, 1)
    assert np.array_equal(run("ConvInteger", [image, filters])[0][..., 0, 0], exact)
    layer = [image, one, zero, filters, one, none, coarse, np.asarray(128, np.uint8)]
    assert np.array_equal(run("QLinearConv", layer)[0][..., 0, 0], np.clip(np.rint(exact / 4096) + 128, 0, 255))


def test_quantised_layers_agree_with_onnxruntime():
    x, w = whole(0, 255, (1, 3, 7, 7), np.uint8), whole(0, 255, (4, 3, 3, 3), np.uint8, 1)
    x_zero, w_zero, scale = np.asarray(5, np.uint8), np.asarray(9, np.uint8), np.asarray(0.02, np.float32)
    check("ConvInteger", [x, w, x_zero, w_zero], pads=[1, 1, 1, 1])
    check("ConvInteger", [x, w])
    w_scale, y_scale, y_zero = np.abs(numbers(4)) * np.float32(0.01), np.asarray(0.3, "f4"), np.asarray(100, np.uint8)
    layer = [x, scale, x_zero, w, w_scale, np.full(4, 9, np.uint8), y_scale, y_zero, whole(-50, 50, 4, np.int32)]
    (got,), (wanted,) = run("QLinearConv", layer, pads=[1] * 4), ort_run("QLinearConv", layer, pads=[1] * 4)
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1
    a, b = whole(0, 255, (3, 8), np.uint8), whole(-9, 9, (8, 4), np.int8)
    check("QLinearMatMul", [a, scale, x_zero, b, w_scale, np.zeros(4, np.int8), np.asarray(0.01, "f4"), y_zero])
