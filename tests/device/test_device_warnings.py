"""Warnings with handle, cause, cure and the caller's line, where they are due; what is worked out or captured once."""

from typing import Any

import numpy as np
import pytest

from kvviz.device import Device, DeviceError, Layout
from kvviz.device.device_warnings import CURES
from tests.device.programs import chain, codes, double, graph, numbers


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


def test_results_of_a_parameter_are_kept_as_long_as_its_wrapper_and_bytes_that_change_are_warned_of() -> None:
    # given: x * (w + w), where w + w follows from the parameter alone
    device = Device()
    nodes = [("Add", "w w", "ww"), ("Mul", "x ww", "y")]
    program = device.program(graph(nodes, {"x": (4, 4), "w": (4, 4)}, ["y"]), const_eval=["w"])
    w = device.to_device(numbers((4, 4), 1))

    def result(parameter: Any) -> np.ndarray:
        y = device.submit(program, {"x": device.to_device(numbers((4, 4))), "w": parameter})["y"]
        found = device.to_host(y)
        device.deallocate(y)
        return found

    # when, then: the first submit misses, and the others hit
    before = numbers((4, 4)) * (2 * numbers((4, 4), 1))
    for _ in range(3):
        assert np.array_equal(result(w), before)
    assert (device.const_eval.misses, device.const_eval.hits) == (1, 2)
    assert [step.op_type for step in device.trace.steps].count("Add") == 1
    assert w.is_allocated and codes(device) == []  # parameters are not deallocated by a submit
    # bytes copied into the same wrapper hit with a stale result
    version = w.version
    device.memcpy(w, numbers((4, 4), 2))
    assert w.version == version and np.array_equal(result(w), before)
    assert (device.const_eval.misses, device.const_eval.hits) == (1, 3)
    assert codes(device) == ["STALE_CONST_EVAL"] and device.warnings[0].handle is w
    assert "device.submit(program, " in device.warnings[0].line
    # a new wrapper misses
    other = device.to_device(numbers((4, 4), 2))
    assert other.version > w.version
    assert np.array_equal(result(other), numbers((4, 4)) * (2 * numbers((4, 4), 2)))
    assert device.const_eval.misses == 2
    # what is kept ends with the wrapper, and is no leak of the caller
    assert device.live_bytes["dram"] == 4 * 64
    device.deallocate(w)
    assert device.live_bytes["dram"] == 2 * 64
    device.close()
    assert [warning.handle for warning in device.warnings if warning.code == "LEAK"] == [other]


SHAPE = (64, 128)


def captured() -> tuple[Device, Any, Any, dict[str, Any]]:
    """A has an intermediate that is freed when its capture is over; no L1, so that it lies in DRAM."""
    device = Device(l1=0)
    ones = np.ones((128, 1), np.float32)
    a = device.program(graph([("Exp", "x", "e"), ("MatMul", "e t", "y")], {"x": SHAPE}, ["y"], t=ones), name="A")
    b = device.program(chain(SHAPE), name="B")
    x, w = device.to_device(numbers(SHAPE), name="x"), device.to_device(numbers(SHAPE, 1), name="w")
    x.retain = w.retain = True
    return device, a, b, {"a": x, "w": w}


def expected(x: np.ndarray) -> np.ndarray:
    return np.exp(x) @ np.ones((128, 1), np.float32)


def test_a_replay_writes_into_the_same_slots_which_are_let_go_with_the_trace() -> None:
    device, a, _, given = captured()
    before = device.live_bytes
    trace = device.capture(a, {"x": given["a"]})
    y = trace.outputs["y"]
    assert np.allclose(device.to_host(y), expected(numbers(SHAPE))) and device.live_bytes["dram"] > before["dram"]
    x2 = device.to_device(numbers(SHAPE, 2))
    again = device.replay(trace, {"x": x2}, check=False)["y"]
    assert again is y and np.allclose(device.to_host(y), expected(numbers(SHAPE, 2)), rtol=1e-4)
    assert (trace.captures, trace.replays) == (1, 1)
    device.release_capture(trace)
    device.release(x2)
    assert device.live_bytes == before
    assert [m.kind for m in device.trace.log.declared.marks if "captured" in m.kind] == ["trace captured"]


def test_a_replay_overwrites_what_was_captured_later_unless_its_generation_is_checked() -> None:
    x, w = numbers(SHAPE), numbers(SHAPE, 1)
    right = ((x + w) * w) - w
    device, a, b, given = captured()
    first, second = device.capture(a, {"x": given["a"]}), device.capture(b, given)
    (memory, address, size), *_ = first.writes
    slots = [block for block in device.memory_view()[memory].blocks if block["handle"] in ("a (slot)", "w (slot)")]
    assert any(block["address"] < address + size and address < block["address"] + block["size"] for block in slots)
    device.replay(first, {"x": given["a"]}, check=False)
    assert "TRACE_OVERWRITES" in codes(device)
    garbage = device.to_host(device.replay(second, given, check=False)["out"])
    assert not np.allclose(garbage, right, equal_nan=True)
    # with its generation checked it is captured again, and nothing is overwritten
    device, a, b, given = captured()
    first, second = device.capture(a, {"x": given["a"]}), device.capture(b, given)
    assert (first.generation, second.generation) == (1, 2)
    y = device.replay(first, {"x": given["a"]})["y"]
    assert (first.captures, first.replays, first.generation) == (2, 0, 3) and codes(device) == []
    assert np.allclose(device.to_host(y), expected(x)) and np.allclose(device.to_host(second.outputs["out"]), right)
