"""Rotary embedding: ONNX's form, com.microsoft's form with its other input order, and what both must keep."""

from typing import Any

import numpy as np
import pytest

from tests.ops.kernels import check, ints, rand

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
