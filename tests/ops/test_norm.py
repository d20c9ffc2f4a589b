"""Normalisations against onnxruntime."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import check, close, kernel_named, run, same, spec_of, takes_over
from tests.ops.ort_oracle import ort_run

MICROSOFT = "com.microsoft"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)


def numbers(*shape, seed=0, dtype="f4"):
    """Normal numbers."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("axis", [-1, 2, 1, 0, -2])
@pytest.mark.parametrize("with_bias", [False, True])
def test_layer_norm_agrees_with_onnxruntime(axis, with_bias):
    x = numbers(2, 3, 8)
    tail = x.shape[axis:]
    inputs = [x, numbers(*tail, seed=1), numbers(*tail, seed=2) if with_bias else None]
    check("LayerNormalization", inputs, n_outputs=3, axis=axis)
    check("LayerNormalization", inputs, axis=axis, epsilon=0.1)


@pytest.mark.parametrize("axis", [-1, 2, 1])
def test_rms_norm_agrees_with_onnxruntime(axis):
    x = numbers(2, 3, 8)
    check("RMSNormalization", [x, numbers(*x.shape[axis:], seed=1)], opset=23, axis=axis, epsilon=0.01)


def test_rms_norm_goes_by_its_onnxruntime_name_in_two_domains():
    inputs = [numbers(2, 3, 8), numbers(8, seed=1)]
    check("SimplifiedLayerNormalization", inputs, n_outputs=2, axis=-1, epsilon=1e-5, stash_type=1)
    (default,) = run("SimplifiedLayerNormalization", inputs)
    assert same(run("SimplifiedLayerNormalization", inputs, domain=MICROSOFT)[0], default)
    assert same(run("RMSNormalization", inputs, opset=23)[0], default)


@pytest.mark.parametrize("skip", [(2, 3, 8), (3, 8), (1, 3, 8)], ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("n_outputs", [1, 4])
def test_norms_of_a_residual_sum_agree_with_onnxruntime(skip, with_bias, n_outputs):
    x, skipped, gamma, beta = numbers(2, 3, 8), numbers(*skip, seed=1), numbers(8, seed=2), numbers(8, seed=3)
    bias = numbers(8, seed=4) if with_bias else None
    for name, inputs in (
        ("SkipSimplifiedLayerNormalization", [x, skipped, gamma, bias]),
        ("SkipLayerNormalization", [x, skipped, gamma, beta, bias]),
        ("SkipLayerNormalization", [x, skipped, gamma, None, bias]),
    ):
        wanted = ort_run(name, inputs, n_outputs, domain=MICROSOFT, epsilon=1e-5)
        got = kernel_named(name, domain=MICROSOFT)(*inputs, epsilon=1e-5, n_outputs=n_outputs)
        got = got if isinstance(got, tuple) else (got,)
        assert len(got) == n_outputs
        close(got[0], wanted[0], 1e-5, 1e-6)
        if n_outputs == 4:
            close(got[3], wanted[3], 0, 1e-6)
            assert not np.shares_memory(got[0], got[3])


def test_a_skip_that_would_widen_its_input_is_refused():
    with pytest.raises(OpError, match="does not fit"):
        run("SkipLayerNormalization", [numbers(3, 8), numbers(2, 3, 8), numbers(8)], domain=MICROSOFT)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize(
    ("name", "domain", "opset", "shapes"),
    [
        ("LayerNormalization", "", 21, [(2, 64), (64,), (64,)]),
        ("RMSNormalization", "", 23, [(2, 64), (64,)]),
        ("SkipSimplifiedLayerNormalization", MICROSOFT, 21, [(2, 64), (2, 64), (64,)]),
        ("SkipLayerNormalization", MICROSOFT, 21, [(2, 64), (2, 64), (64,), (64,)]),
    ],
)
def test_norms_of_half_precision_are_float32_rounded_once(dtype, name, domain, opset, shapes):
    inputs = [numbers(*shape, seed=i).astype(dtype) for i, shape in enumerate(shapes)]
    wanted = ort_run(name, [x.astype(np.float32) for x in inputs], opset=opset, domain=domain)[0].astype(dtype)
    (got,) = run(name, inputs, opset=opset, domain=domain)
    assert got.dtype == dtype
    close(got, wanted, rtol=0.01 if dtype == BFLOAT16 else 2e-3, atol=1e-3)


def test_statistics_of_half_precision_stay_float32():
    x = numbers(2, 8).astype(np.float16)
    _, mean, inverse = run("LayerNormalization", [x, np.ones(8, np.float16)], n_outputs=3)
    assert (mean.dtype, inverse.dtype) == (np.float32, np.float32)
    close(mean, ort_run("ReduceMean", [x.astype(np.float32), np.array([1])])[0], 1e-5, 1e-7)


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_norm_uses_the_running_statistics_at_every_opset(rank, opset):
    x = numbers(2, 3, *(4, 5, 2)[: rank - 2])
    parameters = [numbers(3, seed=1), numbers(3, seed=2), numbers(3, seed=3), np.abs(numbers(3, seed=4)) + 0.1]
    check("BatchNormalization", [x, *parameters], opset=opset, epsilon=1e-3)


def test_batch_norm_in_training_mode_uses_those_of_the_batch():
    x = numbers(4, 3, 5)
    parameters = [numbers(3, seed=1), numbers(3, seed=2), numbers(3, seed=3), np.abs(numbers(3, seed=4)) + 0.1]
    attributes: dict[str, Any] = {"epsilon": 1e-3, "momentum": 0.7}
    got = run("BatchNormalization", [x, *parameters], n_outputs=3, opset=15, training_mode=1, **attributes)
    mean = ort_run("ReduceMean", [x, np.array([0, 2])], keepdims=0)[0]
    square = ort_run("ReduceMean", [x * x, np.array([0, 2])], keepdims=0)[0]
    var = square - mean * mean
    wanted = ort_run("BatchNormalization", [x, *parameters[:2], mean, var], opset=15, epsilon=1e-3)[0]
    close(got[0], wanted, 1e-4, 1e-5)
    close(got[1], 0.7 * parameters[2] + 0.3 * mean, 1e-5, 1e-6)
    close(got[2], 0.7 * parameters[3] + 0.3 * var, 1e-5, 1e-6)
    older = run("BatchNormalization", [x, *parameters], n_outputs=5, opset=9, **attributes)
    assert all(same(a, b) for a, b in zip(older[:3], got))
    close(older[3], mean, 1e-5, 1e-6)


def test_batch_norm_of_opset_7_may_have_statistics_for_each_position():
    x = numbers(2, 3, 4)
    parameters = [numbers(3, 4, seed=s) for s in (1, 2, 3)] + [np.abs(numbers(3, 4, seed=4)) + 0.1]
    flat = [x.reshape(2, 12), *(p.reshape(12) for p in parameters)]
    wanted = ort_run("BatchNormalization", flat, opset=9)[0].reshape(x.shape)
    close(run("BatchNormalization", [x, *parameters], opset=7, spatial=0)[0], wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 4, 3, 5)], ids=str)
def test_norms_by_channel_agree_with_onnxruntime(shape):
    x, scale, bias = numbers(*shape), numbers(4, seed=1), numbers(4, seed=2)
    check("InstanceNormalization", [x, scale, bias], epsilon=1e-3, atol=1e-5)
    check("GroupNormalization", [x, scale, bias], num_groups=2, epsilon=1e-3, atol=1e-5)
    check("GroupNormalization", [x, scale[:2], bias[:2]], opset=18, num_groups=2, epsilon=1e-3, atol=1e-5)
    check("LRN", [x], size=3, alpha=0.5, beta=0.6, bias=1.5) if x.ndim == 4 else None
    check("MeanVarianceNormalization", [x], axes=[0, 2], atol=1e-5)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_norm_agrees_with_onnxruntime_and_leaves_zeros(p, axis):
    x = numbers(3, 4)
    x[0] = 0
    x[:, 1] = 0
    check("LpNormalization", [x], p=p, axis=axis)


def test_group_norm_refuses_groups_that_do_not_divide_the_channels():
    with pytest.raises(OpError, match="cannot reshape"):
        run("GroupNormalization", [numbers(1, 3, 4), numbers(3), numbers(3)], num_groups=2)


IN_PLACE = [
    ("LayerNormalization", "", 21, [(64,), (64,)], 0, {}),
    ("LayerNormalization", "", 21, [(3, 64)], 0, {"axis": 1}),
    ("RMSNormalization", "", 23, [(64,)], 0, {}),
    ("SimplifiedLayerNormalization", "", 21, [(64,)], 0, {}),
    ("SkipSimplifiedLayerNormalization", MICROSOFT, 21, [(2, 3, 64), (64,)], 0, {}),
    ("SkipSimplifiedLayerNormalization", MICROSOFT, 21, [(2, 3, 64), (64,), (64,)], 1, {}),
    ("SkipSimplifiedLayerNormalization", MICROSOFT, 21, [(3, 64), (64,)], 0, {}),
    ("SkipLayerNormalization", MICROSOFT, 21, [(2, 3, 64), (64,), (64,), (64,)], 0, {}),
    ("SkipLayerNormalization", MICROSOFT, 21, [(2, 3, 64), (64,), (64,), (64,)], 1, {}),
    ("BatchNormalization", "", 15, [(3,), (3,), (3,), (3,)], 0, {}),
    ("InstanceNormalization", "", 21, [(3,), (3,)], 0, {}),
    ("GroupNormalization", "", 21, [(3,), (3,)], 0, {"num_groups": 3}),
    ("GroupNormalization", "", 18, [(3,), (3,)], 0, {"num_groups": 3}),
    ("LpNormalization", "", 21, [], 0, {}),
    ("LRN", "", 21, [], 0, {"size": 3, "alpha": 0.5}),
    ("MeanVarianceNormalization", "", 21, [], 0, {"axes": (0, 2)}),
]


@pytest.mark.parametrize(("name", "domain", "opset", "others", "position", "attributes"), IN_PLACE)
@pytest.mark.parametrize("n_outputs", [1, 4])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_the_input_may_be_overwritten_with_the_same_bits(
    name, domain, opset, others, position, attributes, n_outputs, dtype
):
    n_outputs = n_outputs if name.startswith("Skip") else 1
    inputs = [np.abs(numbers(*s, seed=i, dtype=dtype)) for i, s in enumerate([(2, 3, 64), *others])]
    given = {"domain": domain, "opset": opset, **attributes}
    fits = spec_of(name, opset, domain).fits
    counted = {"n_outputs": n_outputs} if "n_outputs" in spec_of(name, opset, domain).wants else {}
    if n_outputs == 1:
        assert same(takes_over(name, inputs, position, **given)[0], run(name, inputs, **given)[0])
        return
    assert fits is None or fits(inputs, position, attributes) == ""
    kernel = kernel_named(name, opset, domain)
    fresh = kernel(*inputs, **counted, **attributes)
    target = inputs[position].copy()
    inputs[position] = target
    placed = kernel(*inputs, out=target, **counted, **attributes)
    assert placed[0] is target
    assert not np.shares_memory(placed[3], target)
    assert same(placed[0], fresh[0])
    assert same(placed[3], fresh[3])


def test_an_output_in_the_dtype_of_the_scale_does_not_fit_another_input():
    fits = spec_of("RMSNormalization", 23).fits
    assert fits is not None
    x, scale = numbers(2, 8).astype(np.float16), numbers(8)
    assert fits([x, scale], 0, {}) == "dtype"
    (y,) = run("RMSNormalization", [x, scale], opset=23)
    assert y.dtype == np.float32
    assert fits([x, scale.astype(np.float16)], 0, {}) == ""


def test_a_skip_that_is_broadcast_has_no_room_for_the_output():
    fits = spec_of("SkipLayerNormalization", domain=MICROSOFT).fits
    assert fits is not None
    args = [numbers(2, 3, 8), numbers(3, 8), numbers(8)]
    assert fits(args, 1, {}) == "shape"
    assert fits(args, 0, {}) == ""
