"""Calls with one input of a wrong shape: the error is one of ours, and it comes before anything is written."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import same
from tests.ops.random_cases import Call, taken_over
from tests.ops.test_random_attention import attention
from tests.ops.test_random_gqa import group_query, windowed
from tests.ops.test_random_mha import multi_head, packed
from tests.ops.test_random_recurrent import MS, conv, linear
from tests.ops.test_random_scatter import scatter_elements, scatter_nd, tensor_scatter


def reshaped(call: Call, rng: np.random.Generator) -> Call:
    """The call with one dimension of one input longer, shorter, dropped or added."""
    position = int(rng.choice([i for i, x in enumerate(call.inputs) if x is not None]))
    x = call.inputs[position]
    assert x is not None
    shape = list(x.shape)
    way, axis = int(rng.integers(0, 4)), int(rng.integers(0, len(shape) + 1))
    if way == 3:
        shape.insert(axis, 1)
    elif axis < len(shape):
        shape[axis : axis + 1] = [[shape[axis] + 1], [max(shape[axis] - 1, 0)], []][way]
    size = int(np.prod(shape))
    inputs = list(call.inputs)
    inputs[position] = (np.resize(x, size) if x.size else np.zeros(size, x.dtype)).reshape(shape)
    return replace(call, inputs=inputs)


def whole_blocks(how: dict) -> list[np.ndarray]:
    """All of the memory that a call in place may write to, room behind a past included."""
    rooms = [how["out"]] if "out" in how else [room for room in how.get("grown", ()) if room is not None]
    return [room if room.base is None else room.base for room in rooms]


MAKERS: list[Callable[[int], Call]] = [
    attention, group_query, windowed, multi_head, packed, scatter_elements, scatter_nd, tensor_scatter,
    lambda seed: linear(seed, ""), lambda seed: linear(seed, MS), lambda seed: conv(seed, ""),
    lambda seed: conv(seed, MS),
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make(0).op_type)
def test_of_300_calls_with_a_wrong_shape_each_that_fails_says_why_and_writes_nothing(
    make: Callable[[int], Call],
) -> None:
    counts: Counter[str] = Counter()
    for seed in range(300):
        rng = np.random.default_rng((seed, 12))
        call = reshaped(make(seed), rng)
        before = [None if x is None else x.copy() for x in call.inputs]
        given: list = []
        blocks: list[tuple[np.ndarray, np.ndarray]] = []
        try:
            given, how, _ = taken_over(call, rng)
            blocks = [(block, block.copy()) for block in whole_blocks(how)]
            call.run(given, **how)
            counts["ran"] += 1
        except OpError as error:
            counts["refused"] += 1
            assert len(str(error)) > 15
            for x, old in zip(given, before):
                assert x is None or old is None or same(x, old), f"{seed}: {error} in {call}"
            for block, old in blocks:
                assert same(block, old), f"{seed}: {error} in {call}, behind the past"
    assert counts["refused"] > 150 and sum(counts.values()) == 300
