"""Two contracts, the proposal (tt-mlir #671) and the code as landed; two models of ownership; layouts, host tensors.

Ownership: classic, to early 2026, and holder, tt-metal #38101.
"""

from typing import Any

import numpy as np
import pytest

from kvviz.device import Device, DeviceError, Layout
from kvviz.device.device_layout import zero_copy
from kvviz.errors import KvvizError
from tests.device.programs import codes, double, graph, numbers

TILES = Layout(tiled=True)
BOTH = pytest.mark.parametrize("ownership", ["classic", "holder"])


def test_as_landed_the_caller_converts_and_as_proposed_submit_does_and_leaves_the_inputs() -> None:
    device = Device()
    program = device.program(double((4, 4)), layouts={"x": TILES})
    x = device.to_device(numbers((4, 4)))
    with pytest.raises(DeviceError, match="the caller converts"):
        device.submit(program, {"x": x})
    there = device.to_layout(x, program.layout("x"))
    assert there.has_layout(program.layout("x")) and not x.is_allocated  # toLayout deallocates its source
    y = device.submit(program, {"x": there})["y"]
    assert np.array_equal(device.to_host(y), 2 * numbers((4, 4))) and not there.is_allocated
    assert codes(device) == []
    device = Device(contract="proposed")
    program = device.program(double((4, 4)), layouts={"x": TILES})
    x = device.to_device(numbers((4, 4)))
    y = device.submit(program, {"x": x})["y"]
    assert np.array_equal(device.to_host(y), 2 * numbers((4, 4)))
    assert x.is_allocated and x.layout == Layout(dtype="float32") and codes(device) == []
    assert device.live_bytes["dram"] == 2 * 64  # what it converted is gone
    device.submit(program, {"x": x})
    assert codes(device) == ["NEEDLESS_CONVERSION"]  # once more for every submit
    half = device.to_device(np.full((4, 4), 3, np.float32), Layout(dtype="bfloat16"))
    assert half.dtype.itemsize == 2
    assert (device.to_host(device.submit(program, {"x": half})["y"]) == 6).all()


def test_what_l1_has_no_room_for_is_blamed_on_a_tensor_that_the_program_does_not_read() -> None:
    device = Device(l1=1 << 14)
    nodes = [("Add", "x x", "s"), ("MatMul", "s s", "y")]
    program = device.program(graph(nodes, {"x": (50, 50)}, ["y"]))
    x = device.to_device(numbers((50, 50)))
    x.retain = True
    device.submit(program, {"x": x})
    assert codes(device) == []  # the activation of 10,000 B fits into L1
    other = device.to_device(numbers((50, 50)), Layout("l1"))
    device.submit(program, {"x": x})
    assert codes(device) == ["L1_SPILL"] and device.warnings[0].handle is other
    spaces = {step.outputs[0]: device.trace.storages[step.outs[0].storage].space for step in device.trace.steps}
    assert spaces["s"] == "dram"


def test_a_part_of_a_tensor_follows_it_out_of_l1_and_lies_where_it_lay() -> None:
    device = Device(contract="proposed")
    program = device.program(graph([("Transpose", "x", "y")], {"x": (4, 8)}, ["y"]), layouts={"x": Layout("l1")})
    x = device.to_device(numbers((4, 8)), Layout("l1"))
    y = device.submit(program, {"x": x})["y"]
    device.submit(device.program(double((4, 4))), {"x": device.to_device(numbers((4, 4)))})
    assert x.layout.memory == y.layout.memory == "dram"
    device.memcpy(x, numbers((4, 8), 1))
    assert np.array_equal(device.to_host(y), numbers((4, 8), 1).T)


def test_layouts_are_equal_field_by_field_and_wrong_ones_are_refused() -> None:
    assert Layout(dtype=np.float32) == Layout(dtype="float32") != Layout(dtype="float16")
    device = Device()
    wrongs: list[tuple[Any, str]] = [
        (lambda: Layout(memory="ram"), "layout"),
        (lambda: Layout(sharding="height"), "sharding"),
        (lambda: Layout(dtype="q7"), "layout"),
        (lambda: Device(contract="x"), "a contract is"),
        (lambda: Device(ownership="x"), "an ownership is"),
        (lambda: device.program(double((4, 4))).layout("q"), "has no input 'q'; it has x"),
        (lambda: device.program(double((4, 4)), outputs={"q": TILES}), "has no output 'q'"),
    ]
    for wrong, why in wrongs:
        with pytest.raises(KvvizError, match=why):
            wrong()


def test_a_reshape_of_tiles_takes_the_tiles_of_its_own_shape() -> None:
    # 64 x 1 rows of tiles of 32 x 32 floats, 4 in a row, where 2 x 4 tiles held the same elements
    device = Device()
    x = device.to_device(numbers((64, 128)), TILES)
    y = device.reshape(x, (64, 1, 128))
    assert device.live_bytes["dram"] == 32_768 + 1_048_576
    assert np.array_equal(device.to_host(y), numbers((64, 128)).reshape(64, 1, 128))
    device.deallocate(y)
    # two outputs in one buffer have the tiles that each needs
    nodes = [("Neg", "x", "n"), ("Reshape", "n to", "y")]
    described = graph(nodes, {"x": (64, 128)}, ["n", "y"], to=np.array([64, 1, 128]))
    program = device.program(described, layouts={"x": TILES}, outputs={"n": TILES, "y": TILES})
    outputs = device.submit(program, {"x": x})
    assert device.live_bytes["dram"] == 32_768 + 1_048_576
    assert np.array_equal(device.to_host(outputs["y"]).ravel(), device.to_host(outputs["n"]).ravel())


def test_rows_fill_a_memory_to_the_byte_and_what_does_not_fit_is_refused_with_the_largest_free_block() -> None:
    device = Device(l1=1 << 12)
    first = device.to_device(numbers((16, 32)), Layout("l1"))
    second = device.to_device(numbers((8, 32)), Layout("l1"))
    device.deallocate(first)
    view = device.memory_view()["l1"]
    assert (view.free, view.largest_free) == (3072, 2048)
    assert [block["allocated"] for block in view.blocks] == [False, True, False]
    with pytest.raises(DeviceError, match="3,072 B are free, at most 2,048 B of them contiguous"):
        device.to_device(numbers((24, 32)), Layout("l1"))
    assert device.live_bytes["l1"] == second.nbytes == 1024
    device = Device(dram=5 * 40, l1=5 * 40)
    for memory in ("dram", "l1"):
        kept = [device.to_device(numbers((10,)), Layout(memory)) for _ in range(5)]
        with pytest.raises(DeviceError, match="0 B are free"):
            device.to_device(numbers((1,)), Layout(memory))
        device.deallocate(kept[2])
        kept[2] = device.to_device(numbers((2, 5)), Layout(memory))
        assert device.live_bytes[memory] == device.memory_view()[memory].nbytes == 200


def test_memcpy_goes_to_and_from_the_host_and_keeps_the_version() -> None:
    device = Device()
    x = device.to_device(numbers((4, 4)))
    version = x.version
    device.memcpy(x, numbers((4, 4), 1))
    target = np.empty((4, 4), np.float32)
    device.memcpy(target, x)
    assert np.array_equal(target, numbers((4, 4), 1)) and x.version == version
    assert device.host_bytes == 3 * 64
    other = device.host_tensor(numbers((4, 4), 2))
    device.memcpy(target, other)
    assert np.array_equal(target, numbers((4, 4), 2)) and device.host_bytes == 3 * 64
    y = device.to_device(numbers((4, 4)))
    with pytest.raises(DeviceError, match="use to_layout"):
        device.memcpy(x, y)
    with pytest.raises(DeviceError, match="64 B and 80 B"):
        device.memcpy(x, numbers((4, 5)))


def test_host_tensors_are_borrowed_or_owned_and_as_landed_to_layout_takes_them_to_the_device() -> None:
    device = Device()
    array = numbers((4, 4))
    borrowed, host = device.host_tensor(array, borrow=True), device.host_tensor(array, name="batch")
    array[:] = 1
    assert (device.to_host(borrowed) == 1).all() and np.array_equal(device.to_host(host), numbers((4, 4)))
    assert device.host_tensor(np.zeros(3, np.float64)).dtype == np.float32
    for wrong in (array.T[1:], np.zeros(3, np.int64), [1.0]):
        with pytest.raises(DeviceError, match="borrowed memory"):
            device.host_tensor(wrong, borrow=True)
    host.retain = True
    x = device.to_layout(host, TILES)
    assert (x.name, x.layout, x.retain) == ("batch", Layout(tiled=True, dtype="float32"), True)
    assert np.array_equal(device.to_host(x), numbers((4, 4))) and device.host_bytes == 2 * 64
    host.retain = False
    assert not device.to_layout(host, TILES).retain and device.to_layout(host, TILES, retain=True).retain
    # The deallocation of host memory does nothing.
    device.deallocate(borrowed)
    assert (device.to_host(borrowed) == 1).all() and np.array_equal(device.to_host(host), numbers((4, 4)))
    assert device.warnings == []
    with pytest.raises(DeviceError, match="call to_host"):
        device.to_layout(host, Layout("host"))
    proposed = Device(contract="proposed")  # which has to_device for this
    with pytest.raises(DeviceError, match="call to_device first"):
        proposed.to_layout(proposed.host_tensor(numbers((4, 4))), TILES)


@BOTH
@pytest.mark.parametrize("contract", ["landed", "proposed"])
def test_a_deallocation_is_forced_as_proposed_and_not_as_landed(contract: str, ownership: str) -> None:
    device = Device(contract=contract, ownership=ownership)
    keys = device.to_device(numbers((4, 32)))
    view = device.reshape(keys, (2, 2, 32))
    device.deallocate(keys)
    assert device.live_bytes["dram"] == (0 if contract == "proposed" else 512)
    assert ("FORCED_FREE_SHARED" in codes(device)) == (contract == "proposed")
    other = device.to_device(numbers((4, 32)))
    part = device.reshape(other, (2, 2, 32))
    device.deallocate(other, force=False)
    assert np.array_equal(device.to_host(part).ravel(), numbers((4, 32)).ravel())
    assert view.wrapper is not part.wrapper


def test_a_view_of_a_root_that_was_freed_by_force_says_that_it_is_allocated_in_the_holder_model() -> None:
    for ownership in ("classic", "holder"):
        device = Device(ownership=ownership)
        a = device.to_device(numbers((64, 128)))
        b = device.reshape(a, (8, 8, 128))
        device.deallocate(a, force=True)
        assert (a.is_allocated, b.is_allocated) == (False, ownership == "holder")  # tt-metal #53736
    with pytest.raises(DeviceError, match="only its own holder is asked"):
        device.to_host(b)


@BOTH
def test_an_output_that_is_the_input_is_the_same_wrapper_and_its_free_kills_the_cache(ownership: str) -> None:
    device = Device(ownership=ownership)
    program = device.program(graph([("Add", "cache x", "y")], {"cache": (4, 4), "x": (4, 4)}, ["cache", "y"]))
    cache, x = device.to_device(numbers((4, 4))), device.to_device(numbers((4, 4), 1))
    outputs = device.submit(program, {"cache": cache, "x": x})
    assert outputs["cache"].wrapper is cache.wrapper and cache.is_allocated
    assert not x.is_allocated
    # copies of a handle share retain and the tensor
    again = device.duplicate(cache)
    again.retain = True
    device.deallocate(outputs["cache"])
    assert cache.retain and again.wrapper is cache.wrapper and again.is_allocated
    cache.retain = False
    device.deallocate(again)
    assert not cache.is_allocated


@BOTH
def test_an_output_that_is_a_view_of_an_input_follows_the_model(ownership: str) -> None:
    device = Device(ownership=ownership)
    shape = np.array([16, 128], np.int64)
    program = device.program(graph([("Reshape", "x to", "y")], {"x": (16, 128)}, ["y"], to=shape))
    x = device.to_device(numbers((16, 128)))
    y = device.submit(program, {"x": x})["y"]
    assert np.array_equal(device.to_host(y), numbers((16, 128)))
    # the deallocation of the argument is not forced: holder leaves both, classic lets go of the argument alone
    assert x.is_allocated == (ownership == "holder") and y.is_allocated
    assert sum(device.live_bytes.values()) == 16 * 128 * 4


def test_a_view_is_made_where_the_last_axis_stays_and_of_tiles_where_whole_tiles_do() -> None:
    assert zero_copy((64, 128), (8, 8, 128), tiled=False)
    assert not zero_copy((64, 128), (128, 64), tiled=False)
    assert not zero_copy((64, 128), (8, 8, 128), tiled=True)
    assert zero_copy((64, 128), (2, 32, 128), tiled=True)
    assert zero_copy((2, 8, 128), (1, 2, 8, 128), tiled=True)
