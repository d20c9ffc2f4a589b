"""Matrix products against onnxruntime."""

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import OpError
from kvviz.ops.registry import find
from tests.ops.kernels import check, close, run
from tests.ops.ort_oracle import ort_run

MICROSOFT = "com.microsoft"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
SHAPES = [
    ((2, 3), (3, 4)),
    ((1, 1, 64), (64, 32)),
    ((3, 5, 8), (8, 4)),
    ((2, 3, 5, 8), (8, 4)),
    ((1, 2, 3, 4), (1, 2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((3,), (3,)),
    ((4,), (2, 4, 3)),
    ((0, 3), (3, 2)),
    ((2, 0, 3), (3, 2)),
]


def numbers(shape, dtype="f4", seed=0):
    """Normal numbers, or small whole ones."""
    rng = np.random.default_rng((seed, *shape))
    dtype = np.dtype(dtype)
    return (rng.integers(0, 9, shape) if dtype.kind in "iu" else rng.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u4", "i8", "u8"])
def test_matmul_agrees_with_onnxruntime(shapes, dtype):
    check("MatMul", [numbers(shapes[0], dtype, 1), numbers(shapes[1], dtype, 2)])


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_matmul_over_an_empty_axis_is_zero(dtype):
    assert not check("MatMul", [numbers((2, 3, 0), dtype), numbers((0, 2), dtype)])[0].any()


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_matmul_of_half_precision_adds_up_in_float32(dtype):
    a, b = numbers((3, 300), seed=1).astype(dtype), numbers((300, 4), seed=2).astype(dtype)
    wanted = ort_run("MatMul", [a.astype(np.float32), b.astype(np.float32)])[0].astype(dtype)
    (got,) = run("MatMul", [a, b])
    assert got.dtype == dtype
    close(got, wanted, rtol=0.02, atol=0.02)


def test_matmul_of_transposed_views_gives_an_output_in_c_order():
    a, b = numbers((5, 2, 3, 4)).transpose(1, 0, 2, 3), numbers((5, 2, 6, 4), seed=1).transpose(1, 0, 3, 2)
    check("MatMul", [a, b])
    check("MatMul", [numbers((4, 3, 5)).transpose(1, 2, 0), numbers((6, 4), seed=1).T])


@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("c", [None, (), (1,), (4,), (3, 1), (1, 4), (3, 4)], ids=str)
def test_gemm_agrees_with_onnxruntime(trans, c):
    a = numbers((2, 3) if trans[0] else (3, 2), seed=1)
    b = numbers((4, 2) if trans[1] else (2, 4), seed=2)
    inputs = [a, b, None if c is None else numbers(c, seed=3)]
    check("Gemm", inputs, transA=trans[0], transB=trans[1])
    check("Gemm", inputs, transA=trans[0], transB=trans[1], alpha=0.5, beta=-2.0)
    check("Gemm", inputs, transA=trans[0], transB=trans[1], beta=0.0)


def test_gemm_refuses_a_summand_that_would_widen_the_product():
    with pytest.raises(OpError, match="does not broadcast"):
        run("Gemm", [numbers((1, 2)), numbers((2, 4)), numbers((3, 4))])


@pytest.mark.parametrize(
    ("a", "b", "attributes"),
    [
        ((2, 3), (3, 4), {}),
        ((2, 3), (3, 4), {"alpha": 0.25}),
        ((3, 2), (3, 4), {"transA": 1}),
        ((2, 5, 3), (4, 3), {"transB": 1, "alpha": -1.5}),
        ((2, 5, 3), (5, 3, 4), {"transBatchA": 1}),
        ((2, 5, 3), (5, 2, 4), {"transBatchA": 1, "transA": 1}),
        ((5, 3, 2), (2, 5, 4), {"transBatchB": 1}),
        ((5, 3, 2), (4, 5, 2), {"transBatchB": 1, "transB": 1}),
        ((7, 5, 6, 2), (5, 6, 2, 3), {"transBatchA": 1}),
        ((1, 4, 1, 16), (1, 4, 20, 16), {"transB": 1, "alpha": 0.25}),
        ((3,), (3, 4), {"transA": 1}),
    ],
)
def test_fused_matmul_agrees_with_onnxruntime(a, b, attributes):
    check("FusedMatMul", [numbers(a, seed=1), numbers(b, seed=2)], domain=MICROSOFT, **attributes)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("bhqk,bhkd->bqhd", [(1, 2, 3, 5), (1, 2, 5, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
        ("i,i->", [(5,), (5,)]),
        ("ij->ji", [(2, 3)]),
        ("ii->i", [(4, 4)]),
        ("ij->", [(3, 4)]),
        ("ij", [(3, 4)]),
        ("ba", [(3, 4)]),
        ("i, j -> i j", [(3,), (4,)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("bij,bjk->bik", [(3, 40, 50), (3, 50, 60)]),
    ],
)
def test_einsum_agrees_with_onnxruntime(equation, shapes):
    check("Einsum", [numbers(shape, seed=i) for i, shape in enumerate(shapes)], equation=equation, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("a_dtype", ["u1", "i1"])
@pytest.mark.parametrize("b_dtype", ["u1", "i1"])
def test_integer_matmul_agrees_with_onnxruntime(a_dtype, b_dtype):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 100, (2, 3, 70)).astype(a_dtype), rng.integers(0, 100, (70, 4)).astype(b_dtype)
    zero_a, zero_b = np.asarray(5, a_dtype), np.asarray(9, b_dtype)
    check("MatMulInteger", [a, b])
    check("MatMulInteger", [a, b, zero_a])
    check("MatMulInteger", [a, b, zero_a, zero_b])
    check("MatMulInteger", [a, b, zero_a, rng.integers(0, 50, 4).astype(b_dtype)])


def test_products_never_overwrite_their_operands():
    for domain, name in [("", "MatMul"), ("", "Gemm"), ("", "Einsum"), (MICROSOFT, "FusedMatMul")]:
        spec = find(domain, name, 21)
        assert spec is not None
        assert spec.overwrites == ()
