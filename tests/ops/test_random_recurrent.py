"""Random calls of the operators with a state of fixed size, against onnxruntime's and onnx.reference's kernels."""

from typing import Any

import numpy as np
import pytest

from tests.ops.random_cases import Call, by_ort, cast, dice, tally, trimmed
from tests.ops.test_random_attention import by_reference

MS = "com.microsoft"
RULES = ("linear", "gated", "delta", "gated_delta")


def linear(seed: int, domain: str) -> Call:
    rng, normal, _ = dice(seed, 9)
    batch, shared, group, tokens = (int(n) for n in rng.integers(1, 4, 4))
    size, width, rule = int(rng.integers(1, 9)), int(rng.integers(1, 9)), RULES[seed % 4]
    heads, kv_heads = shared * group, shared
    if domain and group > 1 and rng.random() < 0.3:
        heads, kv_heads = kv_heads, heads
    decay, beta, state = None, None, None
    if "gated" in rule:
        by_key = rng.random() < 0.5
        decay = -np.abs(normal(batch, tokens, kv_heads * (size if by_key else 1)))
    if "delta" in rule:
        by_head = rng.random() < 0.6
        beta = 1 / (1 + np.exp(-normal(batch, tokens, kv_heads if by_head else 1)))
    if rng.random() < 0.7:
        state = normal(batch, kv_heads, size, width)
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": kv_heads, "update_rule": rule}
    if rng.random() < 0.4:
        attributes["scale"] = float(rng.uniform(0.1, 2))
    if rng.random() < 0.3:
        attributes["chunk_size"] = int(rng.integers(1, 5))
    key = normal(batch, tokens, kv_heads, size)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    q, v = normal(batch, tokens, heads * size), normal(batch, tokens, kv_heads * width)
    inputs = trimmed(q, key.reshape(batch, tokens, -1), v, state, decay, beta)
    return Call("LinearAttention", inputs, attributes, 2, 21 if domain else 27, domain)


def conv(seed: int, domain: str) -> Call:
    rng, normal, _ = dice(seed, 10)
    batch, channels, length, taps = (int(n) for n in rng.integers(1, 6, 4))
    attributes: dict[str, Any] = {"activation": ("none", "silu", "swish")[seed % 3]}
    columns, tail = taps - 1, [channels]
    if domain:
        attributes["dilation"] = int(rng.integers(1, 4))
        columns *= attributes["dilation"]
        if rng.random() < 0.5:
            attributes["channels_last"] = 1
            tail = [channels, 2] if rng.random() < 0.5 else tail
    last = "channels_last" in attributes
    channels = int(np.prod(tail))
    x = normal(batch, length, *tail) if last else normal(batch, channels, length)
    state = None
    if rng.random() < 0.7:
        state = normal(batch, columns, *tail) if last else normal(batch, channels, columns)
    bias = normal(channels) if rng.random() < 0.5 else None
    inputs = trimmed(x, normal(channels, 1, taps), bias, state)
    return Call("CausalConvWithState", inputs, attributes, 2, 21 if domain else 27, domain)


@pytest.mark.parametrize("make", [linear, conv])
@pytest.mark.parametrize("domain", ["", MS], ids=["onnx", "microsoft"])
def test_1000_random_calls_with_a_state_agree_with_the_oracle_in_place_and_not(make: Any, domain: str) -> None:
    tally(lambda seed: make(seed, domain), 1000, oracle=by_ort if domain else by_reference, in_place=500)


@pytest.mark.parametrize("make", [linear, conv])
@pytest.mark.parametrize(("domain", "dtype"), [("", np.float64), ("", np.float16), (MS, np.float16)])
def test_200_random_calls_of_another_precision_agree_with_the_oracle(make: Any, domain: str, dtype: type) -> None:
    # onnx.reference keeps its state in float32.
    rtol, atol = (1e-5, 2e-6) if dtype is np.float64 else (2e-2, 4e-3)
    oracle = by_ort if domain else by_reference
    tally(lambda seed: cast(make(seed, domain), dtype), 200, oracle=oracle, rtol=rtol, atol=atol, in_place=80)
