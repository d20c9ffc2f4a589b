"""Each code is given where it is due, with handle, cause, cure and the caller's line, and not otherwise."""

import numpy as np
import pytest

from kvviz.device import Device, DeviceError, Layout
from kvviz.device.device_warnings import CURES
from tests.device.programs import codes, double, numbers


def only(device: Device):
    (warning,) = device.warnings
    assert warning.sentence.endswith(CURES[warning.code]) and repr(warning.handle.name) in warning.sentence
    return warning


def test_the_dead_are_named_with_how_and_where_they_died() -> None:
    for use in ("read", "waited for", "freed again"):
        device = Device()
        x = device.to_device(numbers((4, 4)))
        device.deallocate(x)
        time = device.time
        if use == "read":
            with pytest.raises(DeviceError):
                device.to_host(x)
        elif use == "waited for":
            device.wait(x)
            assert device.time == time and use in device.warnings[0].sentence
        else:
            device.deallocate(x)
        warning = only(device)
        assert (warning.code, warning.handle) == ("DOUBLE_FREE" if use == "freed again" else "USE_AFTER_FREE", x)
        assert "deallocate at test_device_warnings.py" in warning.sentence
        calls = {"read": "device.to_host(x)", "waited for": "device.wait(x)", "freed again": "device.deallocate(x)"}
        assert warning.line.startswith("test_device_warnings.py:") and warning.line.endswith(calls[use])


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


def test_a_conversion_to_the_same_layout_and_one_there_and_back_that_no_program_reads() -> None:
    device = Device()
    x = device.to_device(numbers((32, 32)))
    y = device.to_layout(x, Layout())
    assert only(device).code == "NEEDLESS_CONVERSION"
    device.release(x)
    z = device.to_layout(device.to_layout(y, Layout(tiled=True)), Layout())
    assert codes(device) == ["NEEDLESS_CONVERSION"] * 2
    assert np.array_equal(device.to_host(z), numbers((32, 32)))
    program = device.program(double((32, 32)), layouts={"x": Layout(tiled=True)})
    read = device.to_layout(device.to_device(numbers((32, 32))), program.layout("x"))
    read.retain = True
    device.submit(program, {"x": read})
    device.to_layout(read, Layout())
    assert len(device.warnings) == 2


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
