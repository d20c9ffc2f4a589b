"""Random calls of the operators that write by index, against onnxruntime; a quarter of them are wrong on purpose."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ops.kernels import Array, same
from tests.ops.random_cases import Call, tally, trimmed

WHOLE = tuple(np.dtype(f"{kind}{size}").type for kind in "iu" for size in (1, 2, 4, 8))
PLAIN = (np.float32, np.float64, np.float16, np.bool_, *WHOLE)
# onnxruntime reduces no halves and no texts.
MOVED = (np.float16, np.object_, np.bool_, np.uint16, np.float32, np.int64)
REDUCED = (np.float32, np.float64, np.int64, np.int32, np.uint8, np.int8)
# What onnxruntime has no kernel for.
EXOTIC = (
    np.complex64, np.complex128, np.object_, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn,
    ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2,
)  # fmt: skip
REDUCTIONS = ("none", "add", "mul", "min", "max")


def values(rng: np.random.Generator, shape: Any, dtype: Any) -> Array:
    """Small numbers; texts for objects."""
    numbers = np.asarray(rng.integers(0, 100, shape))
    if dtype is np.object_:
        return np.array([f"s{n}" for n in numbers.reshape(-1)], object).reshape(numbers.shape)
    return np.asarray(numbers % 2 if dtype is np.bool_ or np.dtype(dtype).itemsize == 1 else numbers).astype(dtype)


def tensor_scatter(seed: int, dtypes: tuple = PLAIN, broken: float = 0.25) -> Call:
    rng = np.random.default_rng((seed, 1))
    rank = int(rng.integers(2, 6))
    shape = [int(n) for n in rng.integers(1, 5, rank)]
    axis, capacity = int(rng.integers(1, rank)), int(rng.integers(1, 9))
    if rng.random() < 0.05:
        shape[int(rng.integers(0, rank))] = 0
    shape[axis] = capacity
    rows = int(rng.integers(0, capacity + 1))
    mode = "circular" if rng.random() < 0.5 else "linear"
    last = 3 * capacity if mode == "circular" else capacity - rows
    starts: Array | None = rng.integers(0, last + 1, shape[0])
    attributes: dict[str, Any] = {"axis": axis - rank if rng.random() < 0.5 else axis}
    if attributes["axis"] == -2 and rng.random() < 0.5:
        del attributes["axis"]
    if mode == "circular" or rng.random() < 0.5:
        attributes["mode"] = mode
    new = [*shape[:axis], rows, *shape[axis + 1 :]]
    if rng.random() < 0.2:
        starts = None
    if rng.random() < broken:
        way = ["axis", "shape", "too long", "negative", "too many", "too few", "overrun", "rank"][seed % 8]
        if way == "axis":
            attributes["axis"] = int(rng.choice([0, -rank, rank, -rank - 1]))
        elif way == "shape":
            new[(axis + 1) % rank] += 1
        elif way == "too long":
            new[axis] = capacity + 1
        elif way == "rank":
            new.append(1)
        elif starts is not None and starts.size:
            if way in ("negative", "overrun"):
                starts[-1] = -1 if way == "negative" else capacity - rows + 1
            else:
                starts = np.append(starts, 0) if way == "too many" else starts[:-1]
    dtype = dtypes[seed % len(dtypes)]
    inputs = trimmed(values(rng, shape, dtype), values(rng, new, dtype), starts)
    return Call("TensorScatter", inputs, attributes, 1, 24)


def test_1200_random_calls_of_tensor_scatter_agree_with_onnxruntime_in_place_and_not() -> None:
    tally(tensor_scatter, 1200, in_place=945, refused=255)


def rowwise(past: np.ndarray, update: np.ndarray, starts: list, axis: int, mode: str) -> np.ndarray:
    """The operator's pseudocode: one row at a time."""
    present = past.copy()
    cache, new = np.moveaxis(present, axis, 1), np.moveaxis(update, axis, 1)
    for b, start in enumerate(starts):
        for s in range(new.shape[1]):
            cache[b, (start + s) % cache.shape[1] if mode == "circular" else start + s] = new[b, s]
    return present


@pytest.mark.parametrize("dtype", EXOTIC, ids=lambda t: t.__name__)
def test_tensor_scatter_moves_every_type_that_an_array_can_hold(dtype: type) -> None:
    for seed in range(40):
        call = tensor_scatter(seed, (dtype,), broken=0)
        past, update = call.inputs[:2]
        assert past is not None and update is not None
        starts = call.inputs[2] if len(call.inputs) > 2 else None
        axis, mode = call.attributes.get("axis", -2) % past.ndim, call.attributes.get("mode", "linear")
        rows = [0] * len(past) if starts is None else starts.tolist()
        want = rowwise(past, update, rows, axis, mode)
        own = past.copy()
        for have in (call.run(call.inputs)[0], call.run([own, *call.inputs[1:]], out=own)[0]):
            assert same(have, want)


def scatter_nd(seed: int) -> Call:
    rng = np.random.default_rng((seed, 2))
    shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 6)))
    depth = int(rng.integers(1, len(shape) + 1))
    lead = tuple(int(n) for n in rng.integers(0, 4, rng.integers(0, 3)))
    indices = np.stack([np.asarray(rng.integers(-n, n, lead)) for n in shape[:depth]], axis=-1)
    reduction = REDUCTIONS[int(rng.integers(0, 5))]
    dtype = (MOVED if reduction == "none" else REDUCED)[seed % 6]
    return _scatter("ScatterND", rng, shape, indices, (*lead, *shape[depth:]), dtype, reduction, {})


def scatter_elements(seed: int) -> Call:
    rng = np.random.default_rng((seed, 3))
    shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 5)))
    axis = int(rng.integers(-len(shape), len(shape)))
    part = [int(rng.integers(1, n + 1)) for n in shape]
    part[axis] = int(rng.integers(0, 7))
    indices = rng.integers(-shape[axis], shape[axis], part)
    indices = indices.astype(np.int32) if seed % 2 else indices
    reduction = REDUCTIONS[int(rng.integers(0, 5))]
    dtype = (MOVED if reduction == "none" else REDUCED)[seed % 6]
    return _scatter("ScatterElements", rng, shape, indices, tuple(part), dtype, reduction, {"axis": axis})


def _scatter(
    op: str, rng: Any, shape: tuple, indices: Array, new: tuple, dtype: Any, reduction: str, attributes: dict
) -> Call:
    if rng.random() < 0.15 and indices.size:
        indices.reshape(-1)[int(rng.integers(0, indices.size))] = int(rng.choice([6, -6, 99]))
    elif rng.random() < 0.1:
        new = (*new, 2)
    attributes = attributes | ({} if reduction == "none" else {"reduction": reduction})
    inputs: list[Array | None] = [values(rng, shape, dtype), indices, values(rng, new, dtype)]
    return Call(op, inputs, attributes, 1, 18)


@pytest.mark.parametrize("make", [scatter_nd, scatter_elements])
def test_900_random_calls_of_a_scatter_agree_with_onnxruntime_in_place_and_not(make: Any) -> None:
    tally(make, 900, in_place=699, refused=195)
