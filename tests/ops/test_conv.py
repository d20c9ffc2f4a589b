"""Convolutions and pools against onnxruntime."""

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import check, close, run
from tests.ops.ort_oracle import ort_run


def numbers(*shape, seed=0, dtype="f4"):
    """Normal numbers."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def near(name, inputs, **attributes):
    """Compare with onnxruntime, whose sums are in another order."""
    return check(name, inputs, rtol=1e-4, atol=1e-5, **attributes)


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict]] = [
    ((1, 2, 9), (3, 2, 3), {}),
    ((2, 2, 9), (3, 2, 1), {}),
    ((2, 2, 9), (3, 2, 1), {"strides": [2]}),
    ((2, 2, 9), (3, 2, 1), {"pads": [1, 1]}),
    ((2, 3, 9), (4, 3, 4), {"pads": [2, 1], "strides": [2]}),
    ((2, 3, 9), (4, 3, 3), {"dilations": [2], "pads": [2, 2]}),
    ((1, 3, 7, 8), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 7, 8), (4, 3, 3, 2), {"strides": [2, 3], "pads": [0, 1, 2, 0]}),
    ((2, 3, 7, 8), (4, 3, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((2, 3, 7, 8), (4, 3, 2, 4), {"auto_pad": "SAME_LOWER"}),
    ((2, 3, 7, 8), (4, 3, 3, 2), {"auto_pad": "VALID"}),
    ((2, 4, 7, 8), (6, 2, 3, 3), {"group": 2}),
    ((2, 4, 7, 8), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1], "strides": [2, 1]}),
    ((2, 4, 9), (8, 1, 3), {"group": 4}),
    ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"dilations": [1, 2, 1]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_conv_agrees_with_onnxruntime(x, w, attributes, dtype):
    image, weights, bias = numbers(*x), numbers(*w, seed=1), numbers(w[0], seed=2)
    if dtype == "f4":
        near("Conv", [image, weights], **attributes)
        near("Conv", [image, weights, bias], **attributes)
        return
    narrow = [image.astype(dtype), weights.astype(dtype)]
    wanted = ort_run("Conv", [a.astype(np.float32) for a in narrow], **attributes)[0]
    (got,) = run("Conv", narrow, **attributes)
    assert got.dtype == np.dtype(dtype)
    close(got, wanted, 2e-3, 2e-3)


TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict]] = [
    ((1, 2, 5), (2, 3, 3), {}),
    ((2, 2, 5), (2, 3, 3), {"strides": [2], "pads": [1, 1]}),
    ((2, 2, 5), (2, 3, 3), {"strides": [3], "output_padding": [1]}),
    ((2, 2, 4, 5), (2, 3, 3, 2), {"strides": [2, 2], "pads": [1, 0, 0, 1]}),
    ((2, 2, 4, 5), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((2, 2, 4, 5), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((2, 2, 4, 5), (2, 3, 3, 3), {"strides": [2, 2], "output_shape": [8, 9]}),
    ((2, 4, 4, 5), (4, 3, 3, 3), {"group": 2, "dilations": [2, 1]}),
    ((1, 2, 3, 4, 3), (2, 1, 2, 2, 3), {"strides": [1, 2, 1]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), TRANSPOSED)
def test_transposed_conv_agrees_with_onnxruntime(x, w, attributes):
    bias = numbers(w[1] * attributes.get("group", 1), seed=2)
    near("ConvTranspose", [numbers(*x), numbers(*w, seed=1)], **attributes)
    near("ConvTranspose", [numbers(*x), numbers(*w, seed=1), bias], **attributes)


POOLS: list[tuple[tuple[int, ...], dict]] = [
    ((1, 2, 9), {"kernel_shape": [3]}),
    ((2, 2, 9), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ((2, 2, 7, 8), {"kernel_shape": [2, 3], "strides": [2, 2]}),
    ((2, 2, 7, 8), {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1]}),
    ((2, 2, 7, 8), {"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1}),
    ((2, 2, 7, 8), {"kernel_shape": [3, 3], "strides": [3, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]}),
    ((2, 2, 7, 8), {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((2, 2, 7, 8), {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER"}),
    ((2, 2, 9, 8), {"kernel_shape": [3, 2], "dilations": [2, 3]}),
    ((1, 2, 5, 6, 4), {"kernel_shape": [2, 2, 2]}),
]


@pytest.mark.parametrize(("x", "attributes"), POOLS)
def test_pools_agree_with_onnxruntime(x, attributes):
    image = numbers(*x)
    near("MaxPool", [image], **attributes)
    for order in (0, 1):
        near("MaxPool", [image], n_outputs=2, storage_order=order, **attributes)
    for include in (0, 1):
        near("AveragePool", [image], count_include_pad=include, **attributes)
    near("LpPool", [image], p=3, **attributes)


@pytest.mark.parametrize("dtype", ["i1", "u1"])
def test_max_pool_of_bytes_pads_with_the_lowest(dtype):
    image = np.random.default_rng(0).integers(0, 100, (1, 2, 5, 6)).astype(dtype) - (100 if dtype == "i1" else 0)
    near("MaxPool", [image.astype(dtype)], kernel_shape=[3, 3], pads=[1, 1, 1, 1])


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5)], ids=str)
def test_global_pools_agree_with_onnxruntime(shape):
    for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        near(name, [numbers(*shape)])
    close(
        run("GlobalAveragePool", [numbers(*shape).astype("f2")])[0],
        ort_run("GlobalAveragePool", [numbers(*shape)])[0],
        2e-3,
        2e-3,
    )


def test_a_transposed_image_gives_an_output_in_c_order():
    image = numbers(2, 7, 8, 3).transpose(0, 3, 1, 2)
    near("Conv", [image, numbers(4, 3, 3, 3, seed=1)])
    near("Conv", [image, numbers(4, 3, 1, 1, seed=1)])
    near("Conv", [image, numbers(3, 1, 3, 3, seed=1)], group=3)
    near("MaxPool", [image], kernel_shape=[2, 2])
    near("AveragePool", [image], kernel_shape=[2, 2])
    near("GlobalMaxPool", [image])


def test_weights_that_do_not_fit_the_channels_are_refused():
    with pytest.raises(OpError, match="do not fit"):
        run("Conv", [numbers(1, 3, 5), numbers(2, 2, 3)])


def test_a_window_larger_than_the_padded_image_is_refused():
    with pytest.raises(OpError, match="does not fit"):
        run("MaxPool", [numbers(1, 1, 3)], kernel_shape=[5])
