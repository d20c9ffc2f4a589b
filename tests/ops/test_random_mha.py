"""Random calls of com.microsoft.MultiHeadAttention and com.microsoft.Attention against onnxruntime.

It has no kernel for queries, keys and values in one tensor on the CPU, so there it is asked with three.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.ops.kernels import Array
from tests.ops.random_cases import Call, cast, dice, tally, trimmed

MS = "com.microsoft"
# A past twice as often: that is what can be in place.
FORMS = ("self", "cross", "packed", "packed keys", "by head", "past", "buffer", "past", "buffer")


def seen(rng: np.random.Generator, form: str, batch: int, queries: int, keys: int) -> Array | None:
    """A mask that leaves every query its first key: where all are hidden by -10000 only rounding errors are left."""
    if form == "mask of keys":
        mask = rng.integers(0, 2, (batch, keys))
    elif form == "mask of pairs":
        mask = rng.integers(0, 2, (batch, queries, keys))
    elif form == "no mask":
        return None
    else:
        mask = rng.integers(1, keys + 1, batch)
        if form == "lengths and offsets":
            mask = np.concatenate((mask, rng.integers(0, keys + 1, 2 * batch + 2)))
        elif form == "ends and starts":
            mask = np.concatenate((mask, np.zeros(batch, np.int64)))
    if mask.ndim > 1:
        mask[..., 0] = 1
    return mask.astype(np.int32)


def multi_head(seed: int) -> Call:
    rng, normal, perhaps = dice(seed, 7)
    form = FORMS[seed % len(FORMS)]
    batch, heads, size = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.choice([4, 8, 16]))
    value_size = int(rng.integers(1, 17)) if form in ("self", "cross") and perhaps(0.5) else size
    queries = int(rng.integers(1, 6))
    keys = int(rng.integers(1, 8)) if form in ("cross", "packed keys", "by head") else queries
    width, value_width = heads * size, heads * value_size
    q, k, v = normal(batch, queries, width), normal(batch, keys, width), normal(batch, keys, value_width)
    inputs: list[Array | None] = [q, k, v]
    held, tail, n_outputs = 0, [], 3 if form in ("past", "buffer") else 1
    if form == "packed":
        inputs = [np.stack([x.reshape(batch, queries, heads, size) for x in (q, k, v)], axis=3), None, None]
    elif form == "packed keys":
        inputs = [q, np.stack([x.reshape(batch, keys, heads, size) for x in (k, v)], axis=3), None]
    elif form == "by head":
        inputs = [q, normal(batch, heads, keys, size), normal(batch, heads, keys, size)]
    elif form in ("past", "buffer"):
        held = int(rng.integers(0, 8))
        rows = held if form == "past" else held + queries + int(rng.integers(0, 5))
        tail = [normal(batch, heads, rows, n) for n in (size, size)]
        tail += [np.array([held], np.int32)] if form == "buffer" else []
    bias = normal(2 * width + value_width) if perhaps(0.4) else None
    masks = ("no mask", "lengths", "lengths and offsets", "mask of keys", "mask of pairs")[int(rng.integers(0, 5))]
    mask = seen(rng, masks, batch, queries, held + keys)
    added = None
    if perhaps(0.3):
        added = normal(1 if perhaps(0.5) else batch, 1 if perhaps(0.5) else heads, queries, held + keys)
    attributes: dict[str, Any] = {"num_heads": heads}
    if perhaps(0.4):
        attributes["unidirectional"] = 1
    if perhaps(0.3):
        attributes["scale"] = float(rng.uniform(0.05, 1))
    if perhaps(0.3):
        attributes["mask_filter_value"] = -float(rng.uniform(1, 20))
    n_outputs = 4 if perhaps(0.2) else 3 if form == "self" and perhaps(0.5) else n_outputs
    more = (bias, mask, added, *tail)
    call = Call("MultiHeadAttention", trimmed(*inputs, *more), attributes, n_outputs, 21, MS)
    return replace(call, asked=replace(call, inputs=trimmed(q, k, v, *more))) if "packed" in form else call


def test_1350_random_calls_of_multi_head_attention_agree_with_onnxruntime_in_place_and_not() -> None:
    tally(multi_head, 1350, in_place=500)


def test_300_random_calls_in_half_precision_agree_with_onnxruntime_in_place_and_not() -> None:
    # Of which type the scores are is said by the model, in onnxruntime.
    def without_scores(call: Call, outputs: Sequence[Array]) -> list[Array]:
        return list(outputs[:3])

    tally(lambda seed: cast(multi_head(seed), np.float16), 300, without_scores, rtol=2e-2, atol=8e-3, in_place=100)


def packed(seed: int) -> Call:
    rng, normal, _ = dice(seed, 8)
    batch, heads, size = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.choice([2, 4, 8]))
    length, width, value_size = int(rng.integers(1, 6)), int(rng.integers(1, 9)), size
    past, added, held, n_outputs = None, None, 0, 1
    if rng.random() < 0.5:
        held = int(rng.integers(0, 6))
        past, n_outputs = normal(2, batch, heads, held, size), 2
    else:
        value_size = int(rng.integers(1, 9))
        if rng.random() < 0.4:
            shape = [n if rng.random() < 0.5 else 1 for n in (batch, heads)]
            added = normal(*shape, length, length)
    inner, value_width = heads * size, heads * value_size
    attributes: dict[str, Any] = {"num_heads": heads, "qkv_hidden_sizes": [inner, inner, value_width]}
    if value_size == size and rng.random() < 0.7:
        del attributes["qkv_hidden_sizes"]
    for name, value in (("unidirectional", 1), ("scale", 0.4), ("mask_filter_value", -5.0)):
        if rng.random() < 0.4:
            attributes[name] = value
    masks = ("no mask", "lengths", "ends and starts", "mask of keys", "mask of pairs")[int(rng.integers(0, 5))]
    mask = seen(rng, masks, batch, length, held + length)
    weights, bias = normal(width, 2 * inner + value_width) / np.float32(width), normal(2 * inner + value_width)
    inputs = trimmed(normal(batch, length, width), weights, bias, mask, past, added)
    return Call("Attention", inputs, attributes, n_outputs, 21, MS)


def test_1200_random_calls_of_packed_attention_agree_with_onnxruntime_in_place_and_not() -> None:
    tally(packed, 1200, in_place=450)
