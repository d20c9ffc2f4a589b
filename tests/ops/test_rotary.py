"""Rotary embedding: ONNX's form, com.microsoft's form with its other input order, and what both must keep."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import check, ints, rand, run_kernel

MS = "com.microsoft"
COS, SIN = np.cos(rand(10, 4)), np.sin(rand(10, 4))
X4 = rand(2, 3, 5, 8)
X3 = X4.transpose(0, 2, 1, 3).reshape(2, 5, 24)
POSITIONS = np.array([[0, 1, 2, 3, 4], [9, 0, 3, 3, 8]])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_rotary_embedding_agrees_with_onnxruntime(interleaved: int, partial: bool, flat: bool, indexed: bool) -> None:
    width = 2 if partial else 4
    tables = [COS[:, :width], SIN[:, :width]]
    inputs = [*tables, POSITIONS] if indexed else [t[POSITIONS] for t in tables]
    heads: dict[str, Any] = {"num_heads": 3} if flat else {}
    dim: dict[str, Any] = {"rotary_embedding_dim": 4} if partial else {}
    check("RotaryEmbedding", [X3 if flat else X4, *inputs], opset=23, interleaved=interleaved, **heads, **dim)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("offset", [None, 3])
def test_the_contrib_form_takes_positions_second(interleaved: int, flat: bool, offset: int | None) -> None:
    positions = POSITIONS if offset is None else ints(offset)
    inputs = [X3 if flat else X4, positions, COS, SIN]
    check("RotaryEmbedding", inputs, domain=MS, interleaved=interleaved)


def test_the_contrib_form_rotates_a_part_of_each_head() -> None:
    inputs = [X3, POSITIONS, COS[:, :2].copy(), SIN[:, :2].copy()]
    check("RotaryEmbedding", inputs, domain=MS, num_heads=3, rotary_embedding_dim=4)


def test_a_transposed_input_gives_row_major_output() -> None:
    x = X3.reshape(2, 5, 3, 8).transpose(0, 2, 1, 3)
    check("RotaryEmbedding", [x, COS, SIN, POSITIONS], opset=23)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotation_keeps_the_length_of_every_head(interleaved: int) -> None:
    angles = rand(10, 4)
    tables = [np.cos(angles), np.sin(angles)]
    y = run_kernel("RotaryEmbedding", [X4, *tables, POSITIONS], opset=23, interleaved=interleaved)[0]
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(X4, axis=-1), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_the_element_type_stays(dtype: type) -> None:
    arrays: list = [a.astype(dtype) for a in (X4, COS, SIN)]
    y = run_kernel("RotaryEmbedding", [*arrays, POSITIONS], opset=23)[0]
    assert y.dtype == dtype
    wide = run_kernel("RotaryEmbedding", [a.astype(np.float64) for a in arrays] + [POSITIONS], opset=23)[0]
    np.testing.assert_allclose(y.astype(np.float64), wide, atol=0.05)


ERRORS = [
    ([X4, COS, SIN, POSITIONS + 5], {}, "position 14 is not in cos_cache, which has 10 rows"),
    ([X4, COS, SIN, POSITIONS - 1], {}, "position -1 is not in cos_cache"),
    ([X4, COS, SIN], {}, "needs position_ids"),
    ([X4, COS[:, :3], SIN[:, :3], POSITIONS], {}, "tables of width 3 and 3 do not rotate 8 of 8"),
    ([X3, COS, SIN, POSITIONS], {"num_heads": 5}, "does not divide into num_heads 5"),
    ([X3, COS, SIN, POSITIONS], {}, "does not divide into num_heads 0"),
    ([X4[0, 0], COS, SIN, POSITIONS], {}, "must have 3 or 4 dimensions"),
]


@pytest.mark.parametrize(("inputs", "attributes", "message"), ERRORS)
def test_a_position_or_width_that_does_not_fit_is_named(inputs: list, attributes: dict, message: str) -> None:
    with pytest.raises(OpError, match=message):
        run_kernel("RotaryEmbedding", inputs, opset=23, **attributes)
