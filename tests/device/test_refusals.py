"""Submits in time, programs by number, and what is refused: it leaves memory, tensors and what comes next."""

from typing import Any

import numpy as np
import pytest

from kvviz.device import Binary, Device, DeviceError, Layout
from kvviz.errors import KvvizError
from tests.device.programs import chain, codes, double, graph, numbers

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


def test_a_submit_that_fails_loses_nothing() -> None:
    # given: weights that are not retained, which are dead after the first submit
    device = Device()
    program = device.program(chain())
    w, act = device.to_device(numbers((64, 128), 1)), device.to_device(numbers((64, 128)))
    out = device.submit(program, {"a": act, "w": w})["out"]
    assert not w.is_allocated and not act.is_allocated
    with pytest.raises(DeviceError, match=r"'w' .*use after free") as raised:
        device.submit(program, {"a": out, "w": w})
    assert raised.value.handle is w and "device.submit(program, " in raised.value.line
    assert codes(device) == ["USE_AFTER_FREE"] and device.warnings[0].handle is w
    assert np.isfinite(device.to_host(out)).all()
    # x is overwritten by the first op, and the second one cannot run: the shapes do not fit.
    nodes = [("Neg", "x", "n"), ("MatMul", "n q", "y")]
    program = device.program(graph(nodes, {"x": ("a", "b"), "q": ("c", "d")}, ["y"]))
    x, q = device.to_device(numbers((4, 5))), device.to_device(numbers((4, 5)))
    with pytest.raises(DeviceError, match="MatMul"):
        device.submit(program, {"x": x, "q": q})
    assert np.array_equal(device.to_host(x), numbers((4, 5))) and q.is_allocated


def test_submits_return_at_once_overlap_and_wait_for_what_they_read() -> None:
    device = Device()
    program = device.program(double((256, 256)))
    x = [device.to_device(numbers((256, 256), seed)) for seed in range(2)]
    before = device.time
    y = [device.submit(program, {"x": one})["y"] for one in x]
    z = device.submit(program, {"x": y[0]})["y"]
    assert device.time - before == 3 * device.cost.issue
    device.wait(z)
    trace = device.trace
    times = [trace.log.declared.times[step.index] for step in trace.steps if step.op_type == "submit"]
    first, second, third = times
    assert first.lane != second.lane and second.start < first.end  # the second begins while the first runs
    assert third.start >= first.end  # it reads the first one's output
    ready = device.time
    assert ready >= third.end
    device.to_host(z)
    assert device.time == ready + device.cost.of_transfer(256 * 256 * 4)


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lambda device, other, x: {"x": other.to_device(numbers((4, 4)))}, "foreign handle"),
        (lambda device, other, x: {"x": device.to_device(numbers((4, 5)))}, "shape"),
        (lambda device, other, x: {"x": device.to_device(numbers((4, 4)), Layout("l1"))}, "layout"),
        (lambda device, other, x: {"x": device.to_device(numbers((4, 4)), Layout(tiled=True))}, "layout"),
        (lambda device, other, x: {"x": device.to_device(numbers((4, 4)).astype(np.float64))}, "layout"),
        (lambda device, other, x: {"x": numbers((4, 4))}, "a handle"),
        (lambda device, other, x: {"x": device.host_tensor(numbers((4, 4)))}, "on the device"),
        (lambda device, other, x: {}, "inputs of the program"),
        (lambda device, other, x: {"x": x, "q": x}, "inputs of the program"),
    ],
)
def test_a_submit_of_the_wrong_thing_is_one_error_and_the_device_stays_usable(spoil, rule) -> None:
    device, other = Device(), Device()
    program, x = device.program(double((4, 4))), device.to_device(numbers((4, 4)))
    given = spoil(device, other, x)
    before = device.live_bytes
    with pytest.raises(DeviceError) as raised:
        device.submit(program, given)
    assert raised.value.rule == rule and isinstance(raised.value, KvvizError)
    assert "test_refusals.py" in raised.value.line and "device.submit(program, given)" in str(raised.value)
    assert device.live_bytes == before
    assert np.array_equal(device.to_host(device.submit(program, {"x": x})["y"]), 2 * numbers((4, 4)))


SQUARE = (32, 32)


def prepared() -> tuple[Device, Binary]:
    device = Device()
    pair = graph([("Neg", "x", "n"), ("Add", "x x", "s")], {"x": SQUARE}, ["s", "n"])
    return device, device.binary(
        [chain(SQUARE), device.program(double(SQUARE), layouts={"x": Layout(tiled=True)}), pair]
    )


def test_inputs_outputs_and_layouts_are_found_by_their_numbers() -> None:
    device, binary = prepared()
    a, w = device.to_device(numbers(SQUARE)), device.to_device(numbers(SQUARE, 1))
    w.retain = True
    outputs = device.submit(binary, 0, [a, w])
    assert isinstance(outputs, list) and not a.is_allocated and w.is_allocated
    expected = ((numbers(SQUARE) + numbers(SQUARE, 1)) * numbers(SQUARE, 1)) - numbers(SQUARE, 1)
    assert np.allclose(device.to_host(outputs[0]), expected, atol=1e-5)
    total, negative = device.submit(binary, 2, (w,))
    assert np.array_equal(device.to_host(total), 2 * numbers(SQUARE, 1))
    assert np.array_equal(device.to_host(negative), -numbers(SQUARE, 1))
    assert device.get_layout(binary, 0, 1) == device.get_layout(binary.programs[0], "w") == Layout(dtype="float32")
    # as the issue's loop has it: any tensor, as the program wants it, on the device
    layout = device.get_layout(binary, 1, 0)
    assert layout == binary.programs[1].layout("x") == Layout(tiled=True, dtype="float32")
    (y,) = device.submit(binary, 1, [device.to_layout(device.host_tensor(numbers(SQUARE)), layout)])
    assert np.array_equal(device.to_host(y), 2 * numbers(SQUARE)) and codes(device) == []


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda device, binary, x: device.submit(binary, 3, [x]), "this binary has no program 3: it has 0 to 2"),
        (lambda device, binary, x: device.submit(binary, -1, [x]), "this binary has no program -1"),
        (lambda device, binary, x: device.submit(binary, "double", [x]), "chosen by its number, not by 'double'"),
        (lambda device, binary, x: device.submit(binary, 0, [x]), r"it takes 2 handles \(a, w\), not 1"),
        (lambda device, binary, x: device.submit(binary, 1, [x, x]), r"it takes 1 handle \(x\), not 2"),
        (lambda device, binary, x: device.submit(binary, 1, x), "a list of handles, not a Handle"),
        (lambda device, binary, x: device.submit(binary, 1, {"x": x}), "a list of handles, not a dict"),
        (lambda device, binary, x: device.get_layout(binary, 0, 2), "program 0, 'program', has no input 2"),
        (lambda device, binary, x: device.get_layout(binary, 0), "an input of program 0"),
    ],
)
def test_a_wrong_number_is_refused_with_what_there_is(ask: Any, words: str) -> None:
    device, binary = prepared()
    x = device.to_device(numbers(SQUARE))
    with pytest.raises(DeviceError, match=words):
        ask(device, binary, x)
    assert x.is_allocated
