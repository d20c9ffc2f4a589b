"""Rotary embedding: ONNX's form, com.microsoft's form with its other input order, and what both must keep."""

from typing import Any

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
@pytest.mark.parametrize("x", [X4, X3, X3.reshape(2, 5, 3, 8).transpose(0, 2, 1, 3)], ids=["by head", "flat", "turned"])
def test_rotary_embedding_agrees_with_onnxruntime(x: np.ndarray, interleaved: int) -> None:
    how: dict[str, Any] = {"interleaved": interleaved} | ({"num_heads": 3} if x.ndim == 3 else {})
    parts: list[tuple[int, dict[str, Any]]] = [(4, {}), (2, {"rotary_embedding_dim": 4})]
    for width, part in parts:
        tables = [np.ascontiguousarray(table[:, :width]) for table in (COS, SIN)]
        for inputs in ([*tables, POSITIONS], [table[POSITIONS] for table in tables]):
            check("RotaryEmbedding", [x, *inputs], opset=23, **how, **part)
        if part:
            part = {"num_heads": 3, **part}
        for positions in (POSITIONS, ints(3)) if x.flags.c_contiguous else ():
            check("RotaryEmbedding", [x, positions, *tables], domain=MS, **{**how, **part})


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
