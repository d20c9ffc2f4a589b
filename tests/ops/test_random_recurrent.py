"""Random calls of the operators with a state of fixed size, against onnxruntime's and onnx.reference's kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.ops.random_cases import Call, by_ort, normals, tally, trimmed
from tests.ops.test_random_attention import by_reference

MS = "com.microsoft"
RULES = ("linear", "gated", "delta", "gated_delta")


def linear(seed: int, domain: str) -> Call:
    rng = np.random.default_rng((seed, 9))

    normal = partial(normals, rng)

    batch, shared, group, tokens = (int(n) for n in rng.integers(1, 4, 4))
    size, width, rule = int(rng.integers(1, 9)), int(rng.integers(1, 9)), RULES[seed % 4]
    heads, kv_heads = shared * group, shared
    features = [rule]
    if domain and group > 1 and rng.random() < 0.3:
        heads, kv_heads, features = kv_heads, heads, [*features, "more key heads"]
    decay, beta, state = None, None, None
    if "gated" in rule:
        decay = -np.abs(normal(batch, tokens, kv_heads * (size if rng.random() < 0.5 else 1)))
    if "delta" in rule:
        beta = 1 / (1 + np.exp(-normal(batch, tokens, kv_heads if rng.random() < 0.6 else 1)))
    if rng.random() < 0.7:
        state, features = normal(batch, kv_heads, size, width), [*features, "state"]
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": kv_heads, "update_rule": rule}
    if rng.random() < 0.4:
        attributes["scale"] = float(rng.uniform(0.1, 2))
    key = normal(batch, tokens, kv_heads, size)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    q, v = normal(batch, tokens, heads * size), normal(batch, tokens, kv_heads * width)
    inputs = trimmed(q, key.reshape(batch, tokens, -1), v, state, decay, beta)
    return Call("LinearAttention", inputs, attributes, 2, 21 if domain else 27, domain, tuple(features))


def conv(seed: int, domain: str) -> Call:
    rng = np.random.default_rng((seed, 10))

    normal = partial(normals, rng)

    batch, channels, length, taps = (int(n) for n in rng.integers(1, 6, 4))
    attributes: dict[str, Any] = {"activation": ("none", "silu", "swish")[seed % 3]}
    columns, tail, features = taps - 1, [channels], [attributes["activation"]]
    if domain:
        attributes["dilation"] = int(rng.integers(1, 4))
        columns *= attributes["dilation"]
        if rng.random() < 0.5:
            attributes["channels_last"], features = 1, [*features, "channels last"]
            tail = [channels, 2] if rng.random() < 0.5 else tail
    last = "channels_last" in attributes
    channels = int(np.prod(tail))
    x = normal(batch, length, *tail) if last else normal(batch, channels, length)
    state = None
    if rng.random() < 0.7:
        state = normal(batch, columns, *tail) if last else normal(batch, channels, columns)
        features.append("state")
    bias = normal(channels) if rng.random() < 0.5 else None
    inputs = trimmed(x, normal(channels, 1, taps), bias, state)
    return Call("CausalConvWithState", inputs, attributes, 2, 21 if domain else 27, domain, tuple(features))


@pytest.mark.parametrize("make", [linear, conv])
@pytest.mark.parametrize("domain", ["", MS], ids=["onnx", "microsoft"])
def test_500_random_calls_with_a_state_agree_with_the_oracle_in_place_and_not(make: Any, domain: str) -> None:
    counts = tally(lambda seed: make(seed, domain), 500, oracle=by_ort if domain else by_reference)
    assert counts["compared"] == 500
    assert 200 < counts["in place"] <= counts["state"]
    kinds = RULES if make is linear else ("none", "silu", "swish")
    assert min(counts[kind] for kind in kinds) > 100
    if domain:
        assert counts["more key heads" if make is linear else "channels last"] > 40
