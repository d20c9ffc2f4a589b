"""Random calls of the operators with a state of fixed size, against onnxruntime's and onnx.reference's kernels."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.ops.random_cases import Call, by_ort, cast, normals, tally, trimmed
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
        by_key = rng.random() < 0.5
        decay = -np.abs(normal(batch, tokens, kv_heads * (size if by_key else 1)))
        features.append("decay by key" if by_key else "decay by head")
    if "delta" in rule:
        by_head = rng.random() < 0.6
        beta = 1 / (1 + np.exp(-normal(batch, tokens, kv_heads if by_head else 1)))
        features.append("beta by head" if by_head else "one beta")
    if rng.random() < 0.7:
        state, features = normal(batch, kv_heads, size, width), [*features, "state"]
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": kv_heads, "update_rule": rule}
    if rng.random() < 0.4:
        attributes["scale"] = float(rng.uniform(0.1, 2))
        features.append("scale")
    if rng.random() < 0.3:
        attributes["chunk_size"] = int(rng.integers(1, 5))
        features.append("chunks")
    features += ["shared key heads"] if heads > kv_heads else []
    features += ["several tokens"] if tokens > 1 else ["one token"]
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
    features += ["bias"] if bias is not None else []
    features += ["one tap"] if taps == 1 else ["fewer columns than taps"] if length < taps - 1 else []
    inputs = trimmed(x, normal(channels, 1, taps), bias, state)
    return Call("CausalConvWithState", inputs, attributes, 2, 21 if domain else 27, domain, tuple(features))


KINDS = {
    linear: (
        *RULES, "state", "decay by key", "decay by head", "beta by head", "one beta", "scale", "chunks",
        "shared key heads", "several tokens", "one token",
    ),
    conv: ("none", "silu", "swish", "state", "bias", "one tap", "fewer columns than taps"),
}  # fmt: skip


@pytest.mark.parametrize("make", [linear, conv])
@pytest.mark.parametrize("domain", ["", MS], ids=["onnx", "microsoft"])
def test_1000_random_calls_with_a_state_agree_with_the_oracle_in_place_and_not(make: Any, domain: str) -> None:
    counts = tally(lambda seed: make(seed, domain), 1000, oracle=by_ort if domain else by_reference)
    assert counts["compared"] == 1000
    assert 500 < counts["in place"] <= counts["state"]
    assert min(counts[kind] for kind in KINDS[make]) > 100, counts
    if domain:
        assert counts["more key heads" if make is linear else "channels last"] > 80


@pytest.mark.parametrize("make", [linear, conv])
@pytest.mark.parametrize(("domain", "dtype"), [("", np.float64), ("", np.float16), (MS, np.float16)])
def test_200_random_calls_of_another_precision_agree_with_the_oracle(make: Any, domain: str, dtype: type) -> None:
    # onnx.reference keeps its state in float32.
    rtol, atol = (1e-5, 2e-6) if dtype is np.float64 else (2e-2, 4e-3)
    oracle = by_ort if domain else by_reference
    counts = tally(lambda seed: cast(make(seed, domain), dtype), 200, oracle=oracle, rtol=rtol, atol=atol)
    assert counts["compared"] == 200 and counts["in place"] > 80
