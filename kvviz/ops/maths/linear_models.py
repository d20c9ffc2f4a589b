"""Linear models and scalings of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import FLOAT32
from kvviz.ops.registry import op

ML = "ai.onnx.ml"


def _scores(x, coefficients, intercepts, rows):
    """One score a row of the coefficients and entry of the batch; a vector is one entry."""
    x = np.atleast_2d(x).astype(FLOAT32, copy=False)
    if len(coefficients) != rows * x.shape[-1] or x.ndim != 2 or (intercepts and len(intercepts) != rows):
        raise OpError(
            f"{len(coefficients)} coefficients and {len(intercepts)} intercepts do not fit {rows} rows over {x.shape}"
        )
    y = x @ np.array(coefficients, FLOAT32).reshape(rows, -1).T
    return y + np.array(intercepts, FLOAT32) if intercepts else y


def _transformed(y, how):
    if how == "LOGISTIC":
        return (1 / (1 + np.exp(-y))).astype(FLOAT32)
    if how in ("SOFTMAX", "SOFTMAX_ZERO"):
        power = np.exp(y - y.max(1, keepdims=True))
        if how == "SOFTMAX_ZERO":
            # Scores that are 0 (or as good as) stay as they are, and do not count.
            small = np.abs(y) <= np.float32(1e-7)
            power = np.where(small, np.float32(0), power)
            total = power.sum(1, keepdims=True)
            return np.where(small, y, power / np.where(total == 0, 1, total))
        return power / power.sum(1, keepdims=True)
    if how == "NONE":
        return y
    raise OpError(f"post_transform {how!r} is none of NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO")


@op("LinearRegressor", domain=ML)
def linear_regressor(x, *, coefficients, intercepts=(), post_transform="NONE", targets=1):
    """A product with a matrix of (targets, features) plus the intercepts; a single target is never transformed."""
    return _transformed(_scores(x, coefficients, intercepts, targets), post_transform if targets > 1 else "NONE")


@op("LinearClassifier", domain=ML)
def linear_classifier(
    x,
    *,
    coefficients,
    classlabels_ints=(),
    classlabels_strings=(),
    intercepts=(),
    multi_class=0,
    post_transform="NONE",
):
    """The label with the highest score, and all scores. One row of coefficients decides between two labels."""
    labels = list(classlabels_strings) or list(classlabels_ints)
    rows = len(intercepts) or len(labels)
    y = _scores(x, coefficients, intercepts, rows)
    if len(labels) == 2 and rows == 1:
        best = (y[:, 0] > 0).astype(np.int64)
        # The two softmaxes leave a pair that was made of one score alone.
        logistic = post_transform == "LOGISTIC"
        y = np.concatenate([-y, y] if logistic else [1 - y, y], 1)
        post_transform = post_transform if logistic else "NONE"
    elif len(labels) == rows:
        best = y.argmax(1)
    else:
        raise OpError(f"{rows} rows of coefficients do not decide between the {len(labels)} labels {labels}")
    return np.array(labels, object if classlabels_strings else np.int64)[best], _transformed(y, post_transform)


@op("Normalizer", domain=ML)
def normalizer(x, *, norm="MAX"):
    """Each row divided by its norm, or left alone where that is 0. MAX is the largest element, even a negative one."""
    y = x.astype(FLOAT32, copy=False)
    if norm == "MAX":
        size = y.max(-1, keepdims=True)
    elif norm == "L1":
        size = np.abs(y).sum(-1, keepdims=True)
    elif norm == "L2":
        size = np.sqrt((y * y).sum(-1, keepdims=True))
    else:
        raise OpError(f"norm {norm!r} is none of MAX, L1, L2")
    return y / np.where(size == 0, np.float32(1), size)


@op("Scaler", domain=ML)
def scaler(x, *, offset, scale):
    """``(x - offset) × scale``, one number each or one a feature; always float32."""
    for what, numbers in (("offset", offset), ("scale", scale)):
        if len(numbers) not in (1, x.shape[-1]):
            raise OpError(f"{len(numbers)} numbers of {what} do not fit {x.shape[-1]} features")
    return (x.astype(FLOAT32) - np.array(offset, FLOAT32)) * np.array(scale, FLOAT32)
