"""ZipMap: scores with names, a sequence of maps. Maps are dicts, which hold no storage of the run."""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.registry import op


@op("ZipMap", domain="ai.onnx.ml")
def zip_map(x, *, classlabels_int64s=(), classlabels_strings=()):
    """One map a row, from class labels to scores; a vector is one row."""
    labels = list(classlabels_strings) or list(classlabels_int64s)
    if bool(classlabels_strings) == bool(classlabels_int64s):
        raise OpError("one of classlabels_strings and classlabels_int64s must be given, and not both")
    if x.ndim not in (1, 2) or x.shape[-1] != len(labels):
        raise OpError(f"scores of shape {x.shape} do not give one number to each of the {len(labels)} labels {labels}")
    return [dict(zip(labels, row)) for row in np.atleast_2d(x).tolist()]
