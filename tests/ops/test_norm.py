"""Normalisations against onnxruntime."""

import numpy as np

from tests.ops.kernels import check, close, run, same, spec_of
from tests.ops.ort_oracle import ort_run

MICROSOFT = "com.microsoft"


def numbers(*shape, seed=0, dtype="f4"):
    """Normal numbers."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def test_rms_norm_goes_by_its_onnxruntime_name_in_two_domains():
    inputs = [numbers(2, 3, 8), numbers(8, seed=1)]
    check("SimplifiedLayerNormalization", inputs, n_outputs=2, axis=-1, epsilon=1e-5, stash_type=1)
    (default,) = run("SimplifiedLayerNormalization", inputs)
    assert same(run("SimplifiedLayerNormalization", inputs, domain=MICROSOFT)[0], default)
    assert same(run("RMSNormalization", inputs, opset=23)[0], default)


def test_batch_norm_of_opset_7_may_have_statistics_for_each_position():
    x = numbers(2, 3, 4)
    parameters = [numbers(3, 4, seed=s) for s in (1, 2, 3)] + [np.abs(numbers(3, 4, seed=4)) + 0.1]
    flat = [x.reshape(2, 12), *(p.reshape(12) for p in parameters)]
    wanted = ort_run("BatchNormalization", flat, opset=9)[0].reshape(x.shape)
    close(run("BatchNormalization", [x, *parameters], opset=7, spatial=0)[0], wanted, 1e-5, 1e-6)


def test_an_output_in_the_dtype_of_the_scale_does_not_fit_another_input():
    fits = spec_of("RMSNormalization", 23).fits
    assert fits is not None
    x, scale = numbers(2, 8).astype(np.float16), numbers(8)
    assert fits([x, scale], 0, {}) == "dtype"
    (y,) = run("RMSNormalization", [x, scale], opset=23)
    assert y.dtype == np.float32
    assert fits([x, scale.astype(np.float16)], 0, {}) == ""
    # A skip that is broadcast has no room for the output.
    fits = spec_of("SkipLayerNormalization", domain=MICROSOFT).fits
    assert fits is not None
    args = [numbers(2, 3, 8), numbers(3, 8), numbers(8)]
    assert fits(args, 1, {}) == "shape"
    assert fits(args, 0, {}) == ""
