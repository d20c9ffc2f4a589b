"""A step of a random model that quantizes a value and dequantizes it again."""

from typing import Any

import numpy as np


def quantized(body: Any) -> None:
    """A value in eight bits and back, which may be read several times, by one op twice, and be an output."""
    x = body.choose((np.float32,))
    if x is None:
        return
    scale, zero = body.weight(np.float32(0.05)), body.weight(np.uint8(100))
    made = [v for v in body.values if v.dtype == np.uint8]
    if made and body.maker.chance(0.2):
        source = body.maker.pick(made)
    else:
        (source,) = body.add("QuantizeLinear", [x.name, scale, zero], (np.uint8, x.shape))
    (d,) = body.add("DequantizeLinear", [source.name, scale, zero], (np.float32, source.shape))
    for _ in range(int(body.maker.rng.integers(3))):
        op = body.maker.pick(("Relu", "Neg", "Mul", "QuantizeLinear"))
        if op == "QuantizeLinear":
            body.add(op, [d.name, scale, zero], (np.uint8, d.shape))
        else:
            body.add(op, [d.name] * (1 + (op == "Mul")), (np.float32, d.shape))
