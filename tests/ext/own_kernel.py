"""An operator that ONNX does not have: its kernel, and what it may overwrite."""

import numpy as np
import onnx.parser

import kvviz
from kvviz.ext import Trace, op


@op("ClampedRamp", domain="my.domain", overwrites=(0,))
def clamped_ramp(x: np.ndarray, *, slope: float = 1.0, out: np.ndarray | None = None) -> np.ndarray:
    """``slope * x`` between 0 and 1; ``out`` is x itself where the op runs in place."""
    return np.clip(np.multiply(x, np.float32(slope), out=out), 0, 1, out=out)


MODEL = """
<ir_version: 10, opset_import: ["" : 21, "my.domain" : 1]>
agraph (float[4] x) => (float[4] y) {
    a = Neg(x)
    b = my.domain.ClampedRamp<slope = 0.5>(a)
    y = Neg(b)
}
"""


def run() -> Trace:
    """Run a model with the operator; its second op takes over the buffer of the first."""
    return kvviz.run(kvviz.load(onnx.parser.parse_model(MODEL)), {"x": np.array([1, -1, -2, -4], np.float32)})
