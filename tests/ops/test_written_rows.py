"""What a kernel says that it wrote in place, against the elements that really changed; none where a call is wrong."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.errors import OpError
from kvviz.memory.storage import address
from kvviz.ops.registry import OpSpec
from kvviz.trace.schema.regions import Region, blocks
from tests.ops.kernels import Array, kernel_named, rand, same, spec_of
from tests.ops.random_cases import Call, taken_over
from tests.ops.test_random_attention import attention
from tests.ops.test_random_gqa import group_query, windowed
from tests.ops.test_random_mha import multi_head, packed
from tests.ops.test_random_recurrent import MS, conv, linear
from tests.ops.test_random_scatter import scatter_elements, scatter_nd, tensor_scatter
from tests.trace.test_regions import bytes_of

SEEDS = st.integers(0, 1 << 20)


def whole_scatter(seed: int) -> Call:
    return tensor_scatter(seed, broken=0)


def told_by(spec: OpSpec, args: Any, outs: Any, attributes: dict[str, Any]) -> dict[int, Region]:
    assert spec.written is not None
    return dict(spec.written(args, outs, attributes))


def elements(region: Region, array: Array) -> set[int]:
    """Places in the array's memory of the elements that a region touches, all of them whole."""
    size = array.itemsize
    assert region.dtype == (np.intp if array.dtype == object else array.dtype)
    found = bytes_of(region._replace(dtype=f"V{size}"), (1, size))
    assert all(byte - byte % size + other in found for byte in found for other in range(size))
    return {byte // size for byte in found}


def changed(before: Array, after: Array) -> set[int]:
    """Places of the elements that differ, in memory without gaps."""
    one, two = (array.reshape(-1) for array in (before, after))
    return set(np.flatnonzero(one != two).tolist())


@settings(max_examples=300)
@given(seed=SEEDS, make=st.sampled_from([whole_scatter, scatter_nd, scatter_elements]))
def test_scatters_tell_the_elements_that_they_write(seed: int, make: Callable[[int], Call]) -> None:
    # given: data and updates of which no element is the same
    call = make(seed)
    data, update = call.inputs[0], 1 if make is whole_scatter else 2
    like = call.inputs[update]
    assert data is not None and like is not None
    texts = data.dtype == object
    own = np.full(data.shape, "old" if texts else 0, data.dtype)
    new = np.full(like.shape, "new" if texts else 1, data.dtype)
    args = [own, *call.inputs[1:]]
    args[update] = new
    before = own.copy()
    # when
    try:
        call.run(args, out=own)
    except OpError:
        # Some are wrong on purpose.
        return
    region = told_by(spec_of(call.op_type, call.opset), args, [own], call.attributes)[0]
    # then
    told, found = elements(region, own), changed(before, own)
    keeps = call.attributes.get("reduction", "none") in ("mul", "min")
    assert found <= told and (keeps or found == told)


@pytest.mark.parametrize("op_type", ["ScatterND", "ScatterElements", "Scatter", "TensorScatter"])
def test_a_scatter_costs_the_updates_and_where_it_copies_the_data_as_well(op_type: str) -> None:
    spec, x = spec_of(op_type, 24), rand(4, 5, 6)
    new = rand(4, 1, 6)
    args = [x, new, np.arange(4)] if op_type == "TensorScatter" else [x, np.array([[1]]), new]
    assert (spec.overwrites, spec.views) == ((0,), ())
    assert spec.fits is not None and spec.fits(args, 0, {}) == ""
    assert spec.cost is not None
    assert spec.cost(args, (x,), True, {}) == (new.nbytes, 0)
    assert spec.cost(args, (x,), False, {}) == (x.nbytes + new.nbytes, x.nbytes)


@settings(max_examples=300)
@given(seed=SEEDS, make=st.sampled_from([windowed, group_query, multi_head]))
def test_shared_caches_tell_the_rows_that_they_write(seed: int, make: Callable[[int], Call]) -> None:
    call = make(seed)
    first = 6 if make is multi_head else 3
    pasts = call.inputs[first : first + 2]
    if len(pasts) < 2 or pasts[0] is None or pasts[1] is None or call.n_outputs < 3:
        return
    own = [past.copy() for past in pasts if past is not None]
    args = [*call.inputs[:first], *own, *call.inputs[first + 2 :]]
    spec = spec_of(call.op_type, call.opset, call.domain)
    shared = all(grow.rows(args, call.attributes) == 0 for grow in spec.grows)
    # when
    outs = call.run(args, grown=tuple(own) if shared else None)
    told = told_by(spec, args, outs, call.attributes)
    # then
    assert list(told) == ([1, 2] if shared else [])
    for (i, part), past, present in zip(told.items(), pasts, own):
        assert past is not None and outs[i] is present
        assert elements(part, present) == changed(past, present)


@settings(max_examples=300)
@given(seed=SEEDS, make=st.sampled_from([attention, group_query, windowed, multi_head, packed]))
def test_costs_are_what_is_written_and_the_past_that_is_copied(seed: int, make: Callable[[int], Call]) -> None:
    call = make(seed)
    args, how, _ = taken_over(call, np.random.default_rng(seed))
    outs = call.run(args, **how)
    spec = spec_of(call.op_type, call.opset, call.domain)
    grows = {grow.output: grow for grow in spec.grows}
    written = copied = 0
    for i, y in enumerate(outs):
        past = args[grows[i].input] if i in grows and grows[i].input < len(args) else None
        if past is not None and np.shares_memory(y, past):
            rows = grows[i].rows(args, call.attributes)
            if rows == 0:
                written += y.itemsize * len(elements(told_by(spec, args, outs, call.attributes)[i], y))
            else:
                written += y.nbytes // y.shape[grows[i].axis(args, call.attributes)] * rows
        elif i not in grows or not any(x is not None and np.shares_memory(x, y) for x in args):
            written += y.nbytes
            copied += 0 if past is None else min(past.nbytes, y.nbytes)
    assert spec.cost is not None
    assert spec.cost(args, outs, bool(how), call.attributes) == (written, copied)


@given(st.sets(st.integers(0, 60), max_size=12), st.integers(1, 3))
def test_blocks_have_the_bytes_of_each_of_them(starts: set[int], length: int) -> None:
    region = blocks([8 * length * start for start in starts], (length,), (8,), "float32")
    wanted = {8 * (length * start + i) + byte for start in starts for i in range(length) for byte in range(4)}
    assert bytes_of(region, (1, 4)) == wanted


def test_places_that_form_a_grid_are_told_as_one() -> None:
    starts = [1000 * i + 100 * j + 8 * k for i in range(5) for j in range(4) for k in range(3)]
    region = blocks(starts, (2,), (4,), "float32")
    assert region == Region(0, (5, 4, 3, 2), (1000, 100, 8, 4), "float32")
    assert blocks([], (2,), (4,), "float32").shape == (0, 2)


@pytest.mark.parametrize("count", [4096, 4097, 70_000])
def test_of_too_many_places_only_the_range_is_told(count: int) -> None:
    starts = [16 * i * i for i in range(1, count + 1)]
    region = blocks(starts, (2,), (4,), "float32")
    assert (region.rows is None) == (count > 4096)
    if region.rows is None:
        assert region == Region(16, (4 * (count**2 - 1) + 2,), (4,), "float32")


def test_rows_of_a_block_with_room_are_told_where_they_lie() -> None:
    # given a cache that is every second row of a block
    block = np.zeros((2, 3, 8, 4), np.float32)
    own = block[:, :, ::2]
    args = [own, np.ones((2, 3, 2, 4), np.float32), np.array([0, 3])]
    spec = spec_of("TensorScatter", 24)
    kernel_named("TensorScatter", 24)(args[0], args[1], args[2], mode="circular", out=own)
    region = told_by(spec, args, [own], {"mode": "circular"})[0]
    assert address(own) == address(block)
    assert elements(region, block) == changed(np.zeros_like(block), block)


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


def whole_blocks(how: dict) -> list[Array]:
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
        blocks: list[tuple[Array, Array]] = []
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
