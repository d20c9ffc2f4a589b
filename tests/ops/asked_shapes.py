"""Random calls of operators on shapes, half of them wrong: what is refused matters as much as what comes out."""

from typing import Any

import numpy as np

from tests.ops.asked import Asked, Rng, asks, normal, shape, some
from tests.ops.kernels import ints


def any_rank(rng: Rng, low: int = 0, high: int = 4) -> np.ndarray:
    """A tensor of up to 3 dimensions, some of them empty, that may lie transposed or with gaps."""
    x = normal(rng, *shape(rng, int(rng.integers(low, high)), 0, 4))
    return some(rng, x, x, np.asfortranarray(x), np.repeat(x, 2, -1)[..., ::2] if x.ndim else x)


def whole(rng: Rng, count: int, low: int, high: int) -> np.ndarray:
    return rng.integers(low, high, count).astype(np.int64)


def axis_near(rng: Rng, rank: int) -> int:
    """An axis, or a number next to one."""
    return int(rng.integers(-rank - 1, rank + 1))


@asks("Reshape")
def reshape(rng: Rng) -> Asked:
    x = any_rank(rng)
    sizes = [some(rng, -1, 0, 1, 2, 3, -1, -5, x.size, -2, *x.shape, *x.shape) for _ in range(int(rng.integers(0, 4)))]
    return Asked([x, ints(*sizes)], {"allowzero": 1} if rng.random() < 0.3 else {})


@asks("Expand")
def expand(rng: Rng) -> Asked:
    x = any_rank(rng)
    return Asked([x, ints(*[some(rng, -1, 0, 1, 2, 3, -5, *x.shape, 1) for _ in range(int(rng.integers(0, 5)))])])


@asks("Squeeze")
def squeeze(rng: Rng) -> Asked:
    x = normal(rng, *[some(rng, 1, 1, 2) for _ in range(int(rng.integers(0, 5)))])
    return Asked([x, whole(rng, int(rng.integers(0, 3)), -5, 5)] if rng.random() < 0.85 else [x])


@asks("Unsqueeze")
def unsqueeze(rng: Rng) -> Asked:
    x = normal(rng, *[some(rng, 1, 1, 2) for _ in range(int(rng.integers(0, 4)))])
    return Asked([x, whole(rng, int(rng.integers(0, 3)), -5, 5)])


@asks("Split")
def split(rng: Rng) -> Asked:
    # A number of lengths other than that of the outputs is left out: onnxruntime aborts the process.
    x = any_rank(rng, 1)
    axis, count = axis_near(rng, x.ndim), int(rng.integers(1, 4))
    if rng.random() < 0.4:
        return Asked([x], {"axis": axis}, count, 13)
    length = x.shape[axis] if -x.ndim <= axis < x.ndim else 3
    lengths = np.diff([0, *np.sort(rng.integers(0, length + 1, count - 1)), length])
    if rng.random() < 0.3:
        lengths[0] += some(rng, -1, 1)
    return Asked([x, lengths.astype(np.int64)], {"axis": axis}, count)


@asks("Slice")
def slice_(rng: Rng) -> Asked:
    x, count = any_rank(rng, 1), int(rng.integers(1, 4))
    inputs = [x, whole(rng, count, -7, 8), whole(rng, count, -7, 8)]
    if rng.random() < 0.7:
        inputs.append(whole(rng, count + some(rng, 0, 0, 0, 0, 1), -4, 4))
        if rng.random() < 0.7:
            inputs.append(whole(rng, count, -2, 3))
    return Asked(inputs)


@asks("Concat")
def concat(rng: Rng) -> Asked:
    rank = int(rng.integers(0, 4))
    common, axis, xs = shape(rng, rank, 0, 4), axis_near(rng, rank), []
    for _ in range(int(rng.integers(1, 4))):
        lengths = list(common)
        if -rank <= axis < rank:
            lengths[axis] = int(rng.integers(0, 4))
        if rank and rng.random() < 0.1:
            lengths[int(rng.integers(rank))] += 1
        xs.append(normal(rng, *lengths))
    return Asked(xs, {"axis": axis})


@asks("Gather")
def gather(rng: Rng) -> Asked:
    x = any_rank(rng)
    return Asked([x, rng.integers(-4, 4, some(rng, (), (2,), (2, 2), (0,)))], {"axis": axis_near(rng, x.ndim)})


@asks("Transpose")
def transpose(rng: Rng) -> Asked:
    x = any_rank(rng)
    perm = rng.permutation(x.ndim) if rng.random() < 0.6 else rng.integers(-1, 4, int(rng.integers(1, 4)))
    return Asked([x], {"perm": perm.tolist()} if len(perm) else {})


@asks("Flatten")
def flatten(rng: Rng) -> Asked:
    x = any_rank(rng)
    return Asked([x], {"axis": int(rng.integers(-x.ndim - 1, x.ndim + 2))})


@asks("Tile")
def tile(rng: Rng) -> Asked:
    x = any_rank(rng)
    return Asked([x, whole(rng, x.ndim + some(rng, 0, 0, 0, 1), -1, 4)])


@asks("ReverseSequence")
def reverse_sequence(rng: Rng) -> Asked:
    batch = int(rng.integers(2))
    lengths = whole(rng, some(rng, 3, 4, (3, 4)[batch]), 0, 5)
    return Asked(
        [normal(rng, 3, 4, 2), lengths], {"batch_axis": batch, "time_axis": some(rng, 1 - batch, 1 - batch, 2)}
    )


@asks("OneHot")
def one_hot(rng: Rng) -> Asked:
    x = rng.integers(-6, 6, shape(rng, int(rng.integers(1, 3)), 0, 4))
    depth = np.array(rng.integers(-1, 6)).reshape(some(rng, (), (1,)))
    values: list[Any] = [ints(0, 1), np.array([0.5, 2], np.float32), np.array(["off", "on"], object), ints(1, 2, 3)]
    kind = some(rng, *range(5))
    if kind == 4:
        return Asked([x.astype(np.float32), depth.astype(np.float32), values[1]], {"axis": axis_near(rng, x.ndim + 1)})
    return Asked([x, depth, values[kind]], {"axis": axis_near(rng, x.ndim + 1)} if rng.random() < 0.7 else {})
