"""What is refused leaves a device as it was: its memory, its tensors, and what it can do next."""

from typing import Any

import numpy as np
import pytest

from kvviz.device import Device, DeviceError, Layout
from tests.device.programs import codes, graph, numbers

SHAPE, NBYTES = (32, 64), 32 * 64 * 4


def _state(device: Device) -> Any:
    blocks = {name: [block[:3] for block in banks.blocks if block.owner >= 0] for name, banks in device.banks.items()}
    held = device.allocated_bytes - device.freed_bytes
    return device.live_bytes, held, device.submits, sorted(device.buffers), blocks


def test_an_output_and_a_capture_without_room_are_refused_whole() -> None:
    device = Device(dram=3 * NBYTES, l1=0)
    program = device.program(graph([("Neg", "x", "y")], {"x": SHAPE}, ["y", "w"], w=numbers(SHAPE)))
    x = device.to_device(numbers(SHAPE))
    x.retain = True
    before = _state(device)
    # a weight that is an output, and is copied for it
    with pytest.raises(DeviceError, match="'w': 8,192 B do not fit"):
        device.submit(program, {"x": x})
    assert _state(device) == before
    # the slots of a capture
    pair = device.program(graph([("Add", "a b", "y")], {"a": SHAPE, "b": SHAPE}, ["y"]))
    given = {"a": x, "b": device.to_device(numbers(SHAPE))}
    before = _state(device)
    with pytest.raises(DeviceError, match="room in dram"):
        device.capture(pair, given)
    assert _state(device)[:3] == before[:3]
    device.close()
    assert codes(device) == ["LEAK", "LEAK"]


def test_a_submit_without_room_moves_nothing_out_of_l1_and_drops_what_it_converted() -> None:
    device = Device(dram=4 * NBYTES, l1=1 << 20, contract="proposed")
    pair = graph([("Add", "a b", "y")], {"a": SHAPE, "b": SHAPE}, ["y"])
    program = device.program(pair, layouts={"a": Layout(), "b": Layout()})
    bystander = device.to_device(numbers(SHAPE, 1), Layout("l1"))
    given = {name: device.to_device(numbers(SHAPE), Layout("l1")) for name in ("a", "b")}
    # Of three in DRAM, for the bystander and both conversions, there are only two.
    filler = [device.to_device(numbers(SHAPE)) for _ in range(2)]
    before = _state(device)
    with pytest.raises(DeviceError, match="room in dram"):
        device.submit(program, given)
    assert _state(device) == before and codes(device) == []
    assert bystander.layout.memory == "l1" and np.array_equal(device.to_host(bystander), numbers(SHAPE, 1))
    for handle in filler:
        device.deallocate(handle)
    y = device.submit(program, given)["y"]
    assert np.array_equal(device.to_host(y), numbers(SHAPE) * 2) and bystander.layout.memory == "dram"


def test_a_program_of_another_device_and_a_closed_device_are_refused() -> None:
    device, other = Device(), Device()
    program = other.program(graph([("Add", "x w", "y")], {"x": SHAPE}, ["y"], w=numbers(SHAPE)), name="theirs")
    x = device.to_device(numbers(SHAPE))
    with pytest.raises(DeviceError, match=r"submit of 'theirs': it is a program of another device.*test_refusals.py:"):
        device.submit(program, {"x": x})
    assert x.is_allocated
    device.close()
    device.close()
    assert codes(device) == ["LEAK"]
    with pytest.raises(DeviceError, match="closed"):
        device.to_host(x)


@pytest.mark.parametrize(
    "ask",
    [
        lambda device, x: device.to_layout(x, "l1"),
        lambda device, x: device.to_device(numbers(SHAPE), "l1"),
        lambda device, x: device.program(graph([("Neg", "x", "y")], {"x": SHAPE}, ["y"]), layouts={"x": "l1"}),
        lambda device, x: device.submit(device.program(graph([("Neg", "x", "y")], {"x": SHAPE}, ["y"])), [x]),
    ],
)
def test_what_is_no_layout_and_no_table_of_inputs_is_refused(ask: Any) -> None:
    device = Device()
    x = device.to_device(numbers(SHAPE))
    with pytest.raises(DeviceError, match="it takes "):
        ask(device, x)
    assert x.is_allocated
