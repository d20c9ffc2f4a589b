"""Each code is given where it is due, with handle, cause, cure and the caller's line, and not otherwise."""

import inspect

import numpy as np
import pytest

from kvviz.device import Device, DeviceError, Layout
from kvviz.device.device_warnings import CURES
from tests.device.programs import codes, double, numbers


def only(device: Device):
    (warning,) = device.warnings
    assert warning.sentence.endswith(CURES[warning.code]) and repr(warning.handle.name) in warning.sentence
    return warning


def test_use_after_free_names_how_it_died_and_where() -> None:
    device = Device()
    x = device.to_device(numbers((4, 4)))
    device.deallocate(x)
    with pytest.raises(DeviceError):
        device.to_host(x)
    warning = only(device)
    assert (warning.code, warning.handle) == ("USE_AFTER_FREE", x)
    assert "deallocate at test_device_warnings.py" in warning.sentence and "device.to_host(x)" in warning.line


def test_a_wait_for_the_dead_is_warned_of_and_waits_for_nothing() -> None:
    device = Device()
    x = device.to_device(numbers((4, 4)))
    device.deallocate(x)
    time = device.time
    device.wait(x)
    warning = only(device)
    assert (warning.code, warning.handle, device.time) == ("USE_AFTER_FREE", x, time)
    assert "waited for" in warning.sentence and "device.deallocate(x)" in warning.sentence
    assert warning.line.endswith("device.wait(x)")


def test_double_free() -> None:
    device = Device()
    x = device.to_device(numbers((4, 4)))
    device.deallocate(x)
    here = inspect.currentframe()
    assert here is not None
    device.deallocate(x)
    line = here.f_lineno - 1
    warning = only(device)
    assert warning.code == "DOUBLE_FREE" and warning.line.startswith(f"test_device_warnings.py:{line} ")


@pytest.mark.parametrize("copy", [lambda array: array, lambda array: array.copy(), lambda array: array.reshape(-1)])
def test_a_trip_over_the_host_between_two_submits(copy) -> None:
    device = Device()
    program = device.program(double(("n",)))
    y = device.submit(program, {"x": device.to_device(numbers((64,)))})["y"]
    again = device.to_device(copy(device.to_host(y)))
    assert device.warnings == []
    device.submit(program, {"x": again})
    warning = only(device)
    assert (warning.code, warning.handle, warning.nbytes) == ("HOST_ROUND_TRIP", again, 512)


def test_a_conversion_to_the_same_layout_and_one_there_and_back() -> None:
    device = Device()
    x = device.to_device(numbers((32, 32)))
    y = device.to_layout(x, Layout())
    assert only(device).code == "NEEDLESS_CONVERSION"
    device.release(x)
    z = device.to_layout(device.to_layout(y, Layout(tiled=True)), Layout())
    assert codes(device) == ["NEEDLESS_CONVERSION"] * 2
    assert np.array_equal(device.to_host(z), numbers((32, 32)))


def test_a_conversion_that_a_program_reads_is_not_needless() -> None:
    device = Device()
    program = device.program(double((32, 32)), layouts={"x": Layout(tiled=True)})
    x = device.to_layout(device.to_device(numbers((32, 32))), program.layout("x"))
    x.retain = True
    device.submit(program, {"x": x})
    device.to_layout(x, Layout())
    assert device.warnings == []


def test_a_late_free() -> None:
    device = Device()
    program = device.program(double((4, 4)))
    x, other = device.to_device(numbers((4, 4))), device.to_device(numbers((4, 4)))
    x.retain = other.retain = True
    device.submit(program, {"x": x})
    device.submit(program, {"x": other})
    x.retain = other.retain = False
    device.deallocate(other)
    device.deallocate(x)
    warning = only(device)
    assert (warning.code, warning.handle) == ("LATE_FREE", x) and "last used by submit 1" in warning.sentence


def test_each_handle_is_named_by_the_variable_that_takes_it() -> None:
    device, kept = Device(), {}
    first = device.to_device(numbers((4, 4))); second = device.to_device(numbers((4, 4)))  # fmt: skip  # noqa: E702
    assert (first.name, second.name) == ("first", "second")
    host = [device.host_tensor(numbers((4, 4)))]; other = device.host_tensor(numbers((4, 4)))  # fmt: skip  # noqa: E702
    assert (host[0].name, other.name) == ("t2", "other")
    kept["k"] = third = device.to_device(
        numbers((4, 4)),
    )
    assert third.name == "kept"
    program = device.program(double((4, 4)))
    y = device.submit(program, {"x": device.to_device(numbers((4, 4)))})["y"]
    assert y.name == "y" and device.trace.steps[-1].inputs == ("t5",)
