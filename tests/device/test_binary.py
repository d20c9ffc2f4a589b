"""Programs by number, inputs and outputs as lists: submit and getLayout as tt-mlir #671 has them."""

from typing import Any

import numpy as np
import pytest

from kvviz.device import Binary, Device, DeviceError, Layout
from tests.device.programs import chain, codes, double, graph, numbers

SHAPE = (32, 32)


def prepared() -> tuple[Device, Binary]:
    device = Device()
    pair = graph([("Neg", "x", "n"), ("Add", "x x", "s")], {"x": SHAPE}, ["s", "n"])
    return device, device.binary([chain(SHAPE), device.program(double(SHAPE), layouts={"x": Layout(tiled=True)}), pair])


def test_inputs_outputs_and_layouts_are_found_by_their_numbers() -> None:
    device, binary = prepared()
    a, w = device.to_device(numbers(SHAPE)), device.to_device(numbers(SHAPE, 1))
    w.retain = True
    outputs = device.submit(binary, 0, [a, w])
    assert isinstance(outputs, list) and not a.is_allocated and w.is_allocated
    expected = ((numbers(SHAPE) + numbers(SHAPE, 1)) * numbers(SHAPE, 1)) - numbers(SHAPE, 1)
    assert np.allclose(device.to_host(outputs[0]), expected, atol=1e-5)
    total, negative = device.submit(binary, 2, (w,))
    assert np.array_equal(device.to_host(total), 2 * numbers(SHAPE, 1))
    assert np.array_equal(device.to_host(negative), -numbers(SHAPE, 1))
    assert device.get_layout(binary, 0, 1) == device.get_layout(binary.programs[0], "w") == Layout(dtype="float32")
    # as the loop has it: any tensor, as the program wants it, on the device
    layout = device.get_layout(binary, 1, 0)
    assert layout == binary.programs[1].layout("x") == Layout(tiled=True, dtype="float32")
    (y,) = device.submit(binary, 1, [device.to_layout(device.host_tensor(numbers(SHAPE)), layout)])
    assert np.array_equal(device.to_host(y), 2 * numbers(SHAPE)) and codes(device) == []


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
    x = device.to_device(numbers(SHAPE))
    with pytest.raises(DeviceError, match=words):
        ask(device, binary, x)
    assert x.is_allocated
