"""Ops that write into a cache in place: scenario 15, the rules of tiles and shapes, and the edge that the IR lacks."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kvviz
from kvviz.device import Device, DeviceError, Handle, Layout
from kvviz.errors import KvvizError
from tests.device.programs import graph, numbers

TILES = Layout(tiled=True)
SHARDED = Layout("l1", sharding="height")


def filled(device: Device, shape: tuple[int, ...], value: float = 7) -> Handle:
    return device.to_device(np.full(shape, value, np.float32), TILES)


def test_fill_writes_whole_tiles_so_that_the_rows_behind_the_input_become_zero() -> None:
    device = Device()
    cache = filled(device, (1, 1, 64, 32))
    device.fill_cache(cache, device.to_device(np.ones((1, 1, 5, 32), np.float32)))
    rows = device.to_host(cache)[0, 0]
    assert (rows[:5] == 1).all() and (rows[5:32] == 0).all() and (rows[32:] == 7).all()
    # the cache of the upstream test takes 86 pages of 2,048 B in each bank
    device = Device()
    cache = device.to_device(np.zeros((1, 32, 64, 512), ml_dtypes.bfloat16), TILES)
    view = device.memory_view()["dram"]
    assert -(-view.allocated // view.banks) == 86 * 2048 and cache.nbytes == 1024 * 2048


def test_paged_writes_go_to_the_rows_of_their_users_or_of_their_blocks_and_leave_padded_heads_out() -> None:
    device = Device()
    cache = filled(device, (2, 3, 64, 32), 0)
    given = numbers((1, 2, 32, 32))
    device.paged_update_cache(cache, device.to_device(given, SHARDED), [0, 63])
    found = device.to_host(cache)
    assert np.array_equal(found[0, :, 0], given[0, 0, :3]) and np.array_equal(found[1, :, 63], given[0, 1, :3])
    assert np.count_nonzero(found) == 2 * 3 * 32
    # a prefill over the blocks of a table
    cache = filled(device, (4, 2, 32, 32), 0)
    given = numbers((1, 2, 40, 32))
    device.paged_fill_cache(cache, device.to_device(given), np.array([[0, 1], [3, 2]]), batch=1)
    found = device.to_host(cache)
    assert np.array_equal(found[3], given[0, :, :32]) and np.array_equal(found[2][:, :8], given[0, :, 32:])
    assert not found[:2].any() and not found[2][:, 8:].any()
    # of plain numbers, a block that two sequences share is written for both
    cache, row = filled(device, (2, 1, 32, 32), 0), device.to_device(np.ones((1, 2, 1, 32), np.float32), SHARDED)
    device.paged_update_cache(cache, row, [1, 2], np.array([[0], [0]]))
    assert device.to_host(cache)[0, 0, 1:3].all()


def test_a_shared_block_is_copied_before_one_of_its_sequences_writes() -> None:
    device = Device()
    cache = filled(device, (4, 1, 32, 32), 0)
    table = device.block_table(cache, [[1, 2]])
    device.paged_fill_cache(cache, device.to_device(numbers((1, 1, 40, 32))), table)
    past = device.to_host(cache)
    assert table.fork(0) == 1 and table.shared == {1: (0, 1), 2: (0, 1)} and table.free == [0, 3]
    given = device.to_device(numbers((1, 2, 1, 32), 1), SHARDED)
    device.paged_update_cache(cache, given, [40, 40], table)
    # the first sequence got a block of its own, and the second one has the old one alone
    assert table.copies == [(0, 2, 0)] and table.rows == [[1, 0], [1, 2]] and table.shared == {1: (0, 1)}
    found = device.to_host(cache)
    assert np.array_equal(found[0, :, :8], past[2, :, :8]) and np.array_equal(found[2, :, :8], past[2, :, :8])
    assert np.array_equal(found[0, 0, 8], numbers((1, 2, 1, 32), 1)[0, 0, 0])
    assert np.array_equal(found[2, 0, 8], numbers((1, 2, 1, 32), 1)[0, 1, 0])
    assert [step.op_type for step in device.trace.steps].count("copy_block") == 1


def test_the_edge_from_an_update_to_a_reader_is_in_memory_and_not_in_the_graph() -> None:
    device = Device()
    program = device.program(graph([("Add", "c c", "y")], {"c": (1, 1, 64, 32)}, ["y"]), layouts={"c": TILES})
    cache = filled(device, (1, 1, 64, 32), 1)
    cache.retain = True
    given = device.to_device(np.full((1, 1, 1, 32), 5, np.float32))
    with device.together("decode 1"):
        before = device.submit(program, {"c": cache})["y"]
        device.update_cache(cache, given, 3)
        after = device.submit(program, {"c": cache})["y"]
    # two reads that look alike around the write must not be merged into one
    assert device.to_host(before)[0, 0, 3, 0] == 2 and device.to_host(after)[0, 0, 3, 0] == 10
    trace = device.trace
    update = next(step for step in trace.steps if step.op_type == "update_cache")
    assert (update.node.partition("#")[0], update.outputs) == (cache.name, (f"{cache.name} [0, *, 3]",))
    adds = [step.index for step in trace.steps if step.op_type == "Add"]
    found = {(h.kind, h.first, h.second, h.bytes, h.ordered, h.broken) for h in kvviz.hazards(trace)}
    assert found == {
        ("WAR", adds[0], update.index, 128, False, False),
        ("RAW", update.index, adds[1], 128, False, False),
    }
    readers = [step for step in trace.steps if set(step.inputs) & set(update.outputs)]
    assert readers == []  # no edge leads from the update to anybody


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda d, c, x: d.fill_cache(c, x((1, 1, 65, 32))), "65 rows do not fit into the cache's 64"),
        (lambda d, c, x: d.fill_cache(c, x((1, 2, 5, 32))), "dimension 1 is 2, but 1 in the cache"),
        (lambda d, c, x: d.fill_cache(c, x((1, 1, 5, 16))), "dimension 3 is 16, but 32 in the cache"),
        (lambda d, c, x: d.fill_cache(c, x((5, 32))), "it must have 4 dimensions, not 2"),
        (lambda d, c, x: d.fill_cache(c, x((1, 1, 5, 32)), batch=1), "the cache has no batch 1"),
        (lambda d, c, x: d.fill_cache(x((1, 1, 64, 32)), x((1, 1, 5, 32))), "the cache must be tiled"),
        (lambda d, c, x: d.update_cache(c, x((2, 1, 1, 32)), 0), "dimension 0 of the input must be 1"),
        (lambda d, c, x: d.update_cache(c, x((1, 1, 1, 32)), 64), "the cache has no row 64"),
        (lambda d, c, x: d.update_cache(c, x((1, 1, 1, 32)), 0.5), "integers are needed"),
        (lambda d, c, x: d.paged_update_cache(c, x((1, 1, 1, 32)), [0]), "height-sharded in L1"),
        (lambda d, c, x: d.paged_update_cache(c, x((1, 1, 1, 32), SHARDED), [0, 1]), "2 positions for 1 users"),
        (lambda d, c, x: d.paged_update_cache(c, x((1, 1, 1, 32), SHARDED), [64], np.array([[0]])), "no block for row"),
        (lambda d, c, x: d.fill_cache(c, x((1, 1, 5, 32), Layout(dtype="bfloat16"))), "float32 and bfloat16"),
    ],
)
def test_what_the_checks_refuse_is_one_error_and_the_cache_is_as_it_was(call: Any, why: str) -> None:
    device = Device()
    cache = filled(device, (1, 1, 64, 32))
    with pytest.raises(DeviceError, match=why) as raised:
        call(device, cache, lambda shape, layout=None: device.to_device(np.ones(shape, np.float32), layout))
    assert "test_kv_updates.py" in raised.value.line
    assert (device.to_host(cache) == 7).all()
    with pytest.raises(KvvizError, match="block 3 is in the table, but the cache has blocks 0 to 0"):
        device.block_table(cache, [[3]])
