"""Random calls of ONNX Attention against onnxruntime, and with windows, which it does not have, against onnx.reference.

Where onnxruntime takes a question in another form only, it is asked in that form.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.ops.kernels import Array
from tests.ops.ort_oracle import one_node_model
from tests.ops.random_cases import Call, cast, dice, normals, tally, trimmed

MASKS = (0.3, 0.3, 0.3, 0.1)


def mask_of(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    """A mask of one to four dimensions that broadcasts to the scores, with whole rows hidden now and then."""
    rank = int(rng.integers(2, 5)) if rng.random() < 0.8 else 1
    own = [n if rng.random() < 0.7 else 1 for n in shape[4 - rank :]]
    own[-1] = shape[3]
    keep = rng.random(own) < 0.7
    if kind == "mask of booleans":
        return keep
    if kind == "mask of integers":
        return rng.integers(-6, 7, own)
    numbers = rng.standard_normal(own).astype(np.float32)
    return np.where(keep, numbers, np.float32(-np.inf)) if rng.random() < 0.5 else numbers


def attention(seed: int, windows: bool = False, more: int = 0) -> Call:
    """A call; ``more`` keys are in the past if there is one, else among the new ones."""
    rng, normal, perhaps = dice(seed, 4, more)
    batch, shared, group = (int(n) for n in rng.integers(1, 4, 3))
    heads, queries, keys = shared * group, int(rng.integers(1, 6)), int(rng.integers(1, 8))
    size, value_size = (int(n) for n in rng.integers(1, 17, 2))
    cache = ("no cache", "cache inside", "cache outside")[int(rng.integers(0, 3))]
    held, past_key, past_value, valid = 0, None, None, None
    if cache == "cache inside":
        held, keys = more + int(rng.integers(0, 8)), queries if perhaps(0.6) else keys
        past_key, past_value = normal(batch, shared, held, size), normal(batch, shared, held, value_size)
    elif cache == "cache outside":
        keys += more
        valid = rng.integers(more, keys + 1, batch)
    else:
        keys += more
    attributes: dict[str, Any] = {}
    flat = perhaps(0.4)
    if flat:
        q, k = normal(batch, queries, heads * size), normal(batch, keys, shared * size)
        v = normal(batch, keys, shared * value_size)
        attributes |= {"q_num_heads": heads, "kv_num_heads": shared}
    else:
        q, k = normal(batch, heads, queries, size), normal(batch, shared, keys, size)
        v = normal(batch, shared, keys, value_size)
    scores = (batch, heads, queries, held + keys)
    opset = 25 if windows else int(rng.integers(24 if cache == "cache outside" else 23, 26))
    masks = ("no mask", "mask of booleans", "mask of numbers", "mask of integers")[int(rng.choice(4, p=MASKS))]
    mask = None if masks == "no mask" else mask_of(rng, scores, masks)
    # onnx.reference cannot make a mask of integers longer: it has no number that hides a key.
    if mask is not None and opset > 23 and perhaps(0.4) and not (windows and mask.dtype == np.int64):
        mask = mask[..., : int(rng.integers(max(valid) if valid is not None else 1, held + keys + 1))]
    if perhaps(0.5):
        attributes["is_causal"] = 1
    if perhaps(0.3):
        attributes["softcap"] = float(rng.uniform(0.3, 3))
    if perhaps(0.3):
        attributes["scale"] = float(rng.uniform(0.05, 1))
    if perhaps(0.2):
        attributes["softmax_precision"] = int(rng.choice([1, 11]))
    n_outputs = 3 if cache == "cache inside" else 1
    if perhaps(0.4):
        n_outputs, attributes["qk_matmul_output_mode"] = 4, int(rng.integers(0, 4))
    if windows:
        left, right = (int(n) for n in rng.integers(-1, 6, 2))
        attributes |= {"left_window_size": left, "right_window_size": max(right, 0) if left < 0 else right}
    inputs = trimmed(q, k, v, mask, past_key, past_value, valid)
    return Call("Attention", inputs, attributes, n_outputs, opset)


def for_ort(seed: int, more: int = 0, dtype: type = np.float32) -> Call:
    """A call, and how onnxruntime is asked: it wants masks of two dimensions or more, all their rows, all their keys,
    and of the type of the queries where they are numbers."""
    call = cast(attention(seed, more=more), dtype)
    mask = None if len(call.inputs) < 4 else call.inputs[3]
    batch, heads, queries, keys, held = lengths(call)
    asked: dict[str, Any] = {"inputs": call.inputs, "attributes": call.attributes}
    if mask is not None:
        mask = mask if mask.dtype == np.bool_ else mask.astype(dtype)
        if mask.shape[-1] < keys:
            hidden = np.full((*mask.shape[:-1], keys - mask.shape[-1]), mask.dtype == np.bool_ or -np.inf)
            mask = np.concatenate((mask, (hidden & False) if mask.dtype == np.bool_ else hidden.astype(dtype)), axis=-1)
        mask = np.broadcast_to(mask, (batch, heads, queries, keys))
    inside = len(call.inputs) > 4 and call.inputs[4] is not None
    if call.attributes.get("is_causal") and inside and queries == 1 and keys > held + 1:
        # It would let a single query behind a past see all new keys; the text says that it is causal as well.
        seen = np.arange(keys) <= held
        hidden = np.where(seen, 0, -np.inf).astype(dtype)
        mask = hidden[None] if mask is None else mask & seen if mask.dtype == np.bool_ else mask + hidden
        asked["attributes"] = call.attributes | {"is_causal": 0}
    if mask is not None:
        asked["inputs"] = [*call.inputs[:3], np.ascontiguousarray(mask), *call.inputs[4:]]
    return replace(call, asked=replace(call, **asked))


def lengths(call: Call) -> tuple[int, int, int, int, int]:
    """Batch, query heads, queries, keys with those of the past, and rows of the past."""
    q, k = call.inputs[:2]
    assert q is not None and k is not None
    past = call.inputs[4] if len(call.inputs) > 4 else None
    held = 0 if past is None else past.shape[2]
    if q.ndim == 4:
        return q.shape[0], q.shape[1], q.shape[2], held + k.shape[2], held
    return q.shape[0], call.attributes["q_num_heads"], q.shape[1], held + k.shape[1], held


def without_infinity(call: Call, outputs: Sequence[Array]) -> list[Array]:
    """In mode 2 onnxruntime gives the lowest number where the text has -inf."""
    if call.attributes.get("qk_matmul_output_mode") == 2:
        return [*outputs[:3], np.maximum(outputs[3], np.finfo(outputs[3].dtype).min)]
    return list(outputs)


@pytest.mark.parametrize(("more", "count", "in_place"), [(0, 1800, 500), (160, 200, 40)])
def test_random_calls_of_attention_agree_with_onnxruntime_in_place_and_not(
    more: int, count: int, in_place: int
) -> None:
    tally(lambda seed: for_ort(seed, more), count, without_infinity, in_place=in_place)


def test_500_random_calls_in_half_precision_agree_with_onnxruntime_in_place_and_not() -> None:
    tally(lambda seed: for_ort(seed, dtype=np.float16), 500, without_infinity, rtol=2e-2, atol=4e-3, in_place=130)


def large(seed: int) -> Call:
    """A decode step of a model of some size: eight query heads of 128 numbers on two key heads, and a long past."""
    rng = np.random.default_rng((seed, 11))
    queries, held = seed % 3 + 1, int(rng.integers(2100, 2600))
    q = normals(rng, 1, 8, queries, 128)
    k, v, past_key, past_value = (normals(rng, 1, 2, rows, 128) for rows in (queries, queries, held, held))
    return Call("Attention", [q, k, v, None, past_key, past_value], {"is_causal": 1}, 3, 24)


def test_12_calls_with_a_long_past_agree_with_onnxruntime_in_place_and_not() -> None:
    tally(large, 12, in_place=9)


def by_reference(call: Call) -> list[Array]:
    """What onnx.reference of onnx 1.23 computes."""
    model = one_node_model(call.op_type, call.inputs, call.n_outputs, call.opset, **call.attributes)
    feeds = {f"x{i}": x for i, x in enumerate(call.inputs) if x is not None}
    outputs = ReferenceEvaluator(model).run(None, feeds)
    return [np.asarray(y) for y in outputs]


def known_right(call: Call, outputs: Sequence[Array]) -> list[Array]:
    """Its scores of mode 0 are those after the soft cap; the text says before."""
    wrong = call.attributes.get("qk_matmul_output_mode") == 0 and "softcap" in call.attributes
    return list(outputs[:3] if wrong else outputs)


def test_1200_random_calls_with_windows_agree_with_onnx_reference_in_place_and_not() -> None:
    tally(lambda seed: attention(seed, windows=True), 1200, known_right, by_reference, in_place=300)


def test_500_random_calls_in_double_precision_agree_with_onnx_reference_in_place_and_not() -> None:
    # onnxruntime spells doubles out as an older function, which averages where a query sees no key.
    make = partial(attention, windows=True)
    tally(lambda seed: cast(make(seed), np.float64), 500, known_right, by_reference, 1e-6, 1e-7, in_place=130)
