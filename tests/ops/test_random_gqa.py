"""Random calls of com.microsoft.GroupQueryAttention against onnxruntime, with all three forms of its cache."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.ops.kernels import Array, rand, room_for, run_kernel, spec_of
from tests.ops.random_cases import Call, cast, dice, normals, tally, trimmed

MS = "com.microsoft"
GQA = "GroupQueryAttention"


def tables(rng: np.random.Generator, rows: int, half: int) -> tuple[Array, Array]:
    angles = rng.standard_normal((rows, half))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def group_query(seed: int) -> Call:
    rng, normal, perhaps = dice(seed, 5)
    batch, shared, group = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    heads, size = shared * group, int(rng.choice([8, 16, 32]))
    form = ("prompt", "one token", "several tokens")[int(rng.integers(0, 3))]
    past = 0 if form == "prompt" else int(rng.integers(1, 9))
    new = 1 if form == "one token" else int(rng.integers(1, 6))
    if form == "several tokens" and new > 1:
        batch = 1  # all that onnxruntime has
    total, buffer = past + new, perhaps(0.5)
    least = 1 if form == "prompt" else new
    valid = [total] * batch
    if batch > 1 and perhaps(0.5):
        valid = [int(n) for n in rng.integers(least, total + 1, batch)]
        valid[int(rng.integers(0, batch))] = total
    q, k, v = normal(batch, new, heads * size), normal(batch, new, shared * size), normal(batch, new, shared * size)
    inputs: list[Array | None] = [q, k, v]
    if perhaps(0.4):
        inputs = [np.concatenate((q, k, v), axis=2), None, None]
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": shared}
    cos, sin, positions = None, None, None
    if perhaps(0.6) and size > 8:
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(perhaps(0.5))}
        cos, sin = tables(rng, 24, 8 if perhaps(0.3) else size // 2)
        if perhaps(0.3):
            first = [0 if form == "prompt" else n - new for n in valid]
            positions = np.array(first)[:, None] + np.arange(new)
    causal = not perhaps(0.1)
    for name, value, share in (
        ("local_window_size", int(rng.integers(1, 8)), 0.3 if causal else 0.0),
        ("softcap", float(rng.uniform(0.5, 4)), 0.3),
        ("scale", float(rng.uniform(0.05, 1)), 0.2),
        ("smooth_softmax", 1, 0.15),
        ("causal", 0, 0.0 if causal else 1.0),
    ):
        if perhaps(share):
            attributes[name] = value
    bias, sink = None, None
    if perhaps(0.25):
        bias = normal(1 if perhaps(0.5) else batch, 1 if perhaps(0.4) else heads, new, total)
    if perhaps(0.2) and "smooth_softmax" not in attributes:
        sink = normal(heads)
    rows = total + int(rng.integers(0, 6)) if buffer else past
    pasts = [normal(batch, shared, rows, size) for _ in range(2)]
    given: list[Array | None] = [None, None] if rows == 0 and perhaps(0.5) else [*pasts]
    last, count = np.array(valid, np.int32) - 1, np.array(total, np.int32)
    last, count = last[:, None] if perhaps(0.3) else last, count.reshape(1) if perhaps(0.3) else count
    n_outputs = 3
    if perhaps(0.2):
        n_outputs, attributes["qk_output"] = 4, int(rng.integers(1, 3))
    inputs = trimmed(*inputs, *given, last, count, cos, sin, positions, bias, sink)
    return Call(GQA, inputs, attributes, n_outputs, 21, MS)


def valid_parts(call: Call, outputs: Sequence[Array]) -> list[Array]:
    """What is not padding: onnxruntime leaves garbage in the outputs of padding and in rows that hold no token."""
    query, last, total = call.inputs[0], call.inputs[5], call.inputs[6]
    assert query is not None and last is not None and total is not None
    new, prompt = query.shape[1], query.shape[1] == int(total.item())
    window, parts = call.attributes.get("local_window_size", 0), []
    for b, count in enumerate(int(n) + 1 for n in last.reshape(-1)):
        queries, rows = min(new, count) if prompt else new, count
        if call.attributes.get("sliding_window_cache"):
            rows = resident(count, outputs[1].shape[2], window)
        parts += [outputs[0][b, :queries], outputs[1][b, :, :rows], outputs[2][b, :, :rows]]
        parts += [scores[b, :, :queries, :count] for scores in outputs[3:]]
    # And the shapes and types of the outputs as they are.
    return [*parts, *(np.zeros(y.shape, y.dtype) for y in outputs)]


def resident(tokens: int, capacity: int, window: int) -> int:
    """Rows that a cache with a window holds, by dropping a batch of rows whenever it overflows."""
    while tokens > capacity:
        tokens -= capacity - window + 1
    return tokens


def test_1000_random_calls_of_group_query_attention_agree_with_onnxruntime_in_place_and_not() -> None:
    tally(group_query, 1000, valid_parts, in_place=600)


def test_400_random_calls_in_half_precision_agree_with_onnxruntime_in_place_and_not() -> None:
    tally(lambda seed: cast(group_query(seed), np.float16), 400, valid_parts, rtol=2e-2, atol=8e-3, in_place=200)


def test_a_shorter_sequence_leaves_zeros_up_to_the_end_and_nothing_is_appended_in_its_place() -> None:
    own, pasts = [rand(3, 1, 64), rand(3, 1, 32), rand(3, 1, 32)], [rand(3, 2, 6, 16, seed=seed) for seed in (1, 2)]
    lengths = [np.array([6, 5, 4], np.int32), np.array(7, np.int32)]
    rooms = tuple(room_for(past, 7, 2) for past in pasts)
    for given, grown in ((pasts, None), ([room[:, :, :6] for room in rooms], rooms)):
        inputs = [*own, *given, *lengths]
        for present in run_kernel(GQA, inputs, 3, domain=MS, grown=grown, num_heads=4, kv_num_heads=2)[1:]:
            assert not present[1:, :, 6].any() and present[0, :, 6].all()
        # The shorter one would write into rows that the past has already, and another op may still read those.
        assert min(grow.rows(inputs, {}) for grow in spec_of(GQA, domain=MS).grows) > 2**32


def normed(seed: int) -> Call:
    """A call with norm weights, which onnxruntime has on other devices only: it is asked with normed heads."""
    call = group_query(seed)
    q, k = call.inputs[:2]
    if q is None or k is None:
        return normed(seed + 10_000)
    rng = np.random.default_rng((seed, 13))
    size, epsilon = q.shape[2] // call.attributes["num_heads"], float(rng.uniform(1e-6, 0.1))
    weights = [normals(rng, size) for _ in range(2)]
    by_head = [x.reshape(*x.shape[:2], -1, size).astype(np.float64) for x in (q, k)]
    done = [x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * w for x, w in zip(by_head, weights)]
    asked = [x.reshape(like.shape).astype(np.float32) for x, like in zip(done, (q, k))]
    given = [*call.inputs, *[None] * (14 - len(call.inputs)), *weights]
    attributes = {**call.attributes, "qk_norm_epsilon": epsilon}
    return replace(call, inputs=given, attributes=attributes, asked=replace(call, inputs=[*asked, *call.inputs[2:]]))


def test_300_random_calls_with_norm_weights_agree_with_onnxruntime_asked_with_normed_heads() -> None:
    tally(normed, 300, valid_parts, atol=5e-6, in_place=150)


def windowed(seed: int) -> Call:
    rng, normal, _ = dice(seed, 6)
    batch, shared, group = int(rng.integers(1, 4)), int(rng.integers(1, 3)), int(rng.integers(1, 4))
    heads, size, capacity = shared * group, 16, int(rng.integers(1, 10))
    prompt = rng.random() < 0.3
    past = 0 if prompt else int(rng.integers(1, 25))
    new = int(rng.integers(1, 15)) if prompt or batch == 1 else 1
    total = past + new
    valid = [total] * batch
    if batch > 1 and not prompt and rng.random() < 0.5:
        valid[0] = int(rng.integers(new, total + 1))
    window = int(rng.integers(1, capacity + 1))
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": shared, "sliding_window_cache": 1}
    attributes["local_window_size"] = window
    cos, sin = tables(rng, 48, 8) if rng.random() < 0.5 else (None, None)
    attributes["do_rotary"] = int(cos is not None)
    bias = normal(1, heads, new, total) if rng.random() < 0.2 else None
    if rng.random() < 0.3:
        attributes["softcap"] = 2.0
    inputs = trimmed(
        *(normal(batch, new, n * size) for n in (heads, shared, shared)),
        *(normal(batch, shared, capacity, size) for _ in range(2)),
        np.array(valid, np.int32) - 1, np.array(total, np.int32), cos, sin, None, bias,
    )  # fmt: skip
    return Call(GQA, inputs, attributes, 3, 21, MS)


def test_600_random_calls_with_a_windowed_cache_agree_with_onnxruntime_in_place_and_not() -> None:
    tally(windowed, 600, valid_parts, in_place=500)
