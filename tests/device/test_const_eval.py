"""What is worked out once from parameters: scenario 14, its first half."""

from __future__ import annotations

import numpy as np

from kvviz.device import Device
from tests.device.programs import codes, graph, numbers


def prepared(device: Device):
    """``x * (w + w)``, where ``w + w`` follows from the parameter alone."""
    nodes = [("Add", "w w", "ww"), ("Mul", "x ww", "y")]
    program = device.program(graph(nodes, {"x": (4, 4), "w": (4, 4)}, ["y"]), const_eval=["w"])
    w = device.to_device(numbers((4, 4), 1))
    return program, w


def result(device: Device, program, w) -> np.ndarray:
    y = device.submit(program, {"x": device.to_device(numbers((4, 4))), "w": w})["y"]
    found = device.to_host(y)
    device.deallocate(y)
    return found


def test_the_first_submit_misses_and_the_others_hit() -> None:
    device = Device()
    program, w = prepared(device)
    expected = numbers((4, 4)) * (2 * numbers((4, 4), 1))
    for _ in range(3):
        assert np.array_equal(result(device, program, w), expected)
    assert (device.const_eval.misses, device.const_eval.hits) == (1, 2)
    assert [step.op_type for step in device.trace.steps].count("Add") == 1
    assert w.is_allocated  # parameters are not deallocated by a submit
    assert codes(device) == []


def test_a_new_wrapper_misses() -> None:
    device = Device()
    program, w = prepared(device)
    result(device, program, w)
    other = device.to_device(numbers((4, 4), 2))
    assert other.version > w.version
    assert np.array_equal(result(device, program, other), numbers((4, 4)) * (2 * numbers((4, 4), 2)))
    assert (device.const_eval.misses, device.const_eval.hits) == (2, 0)


def test_bytes_copied_into_the_same_wrapper_hit_with_a_stale_result_and_are_warned_of() -> None:
    device = Device()
    program, w = prepared(device)
    before, version = result(device, program, w), w.version
    device.memcpy(w, numbers((4, 4), 2))
    assert w.version == version
    assert np.array_equal(result(device, program, w), before)  # stale: as it was for the old bytes
    assert (device.const_eval.misses, device.const_eval.hits) == (1, 1)
    assert codes(device) == ["STALE_CONST_EVAL"] and device.warnings[0].handle is w
    assert "device.submit(program, " in device.warnings[0].line


def test_results_end_with_the_wrapper_of_their_input() -> None:
    device = Device()
    program, w = prepared(device)
    result(device, program, w)
    assert device.live_bytes["dram"] == 2 * 64
    device.deallocate(w)
    assert device.live_bytes["dram"] == 0


def test_what_is_kept_is_no_leak_of_the_caller() -> None:
    device = Device()
    program, w = prepared(device)
    result(device, program, w)
    device.close()
    assert [(warning.code, warning.handle) for warning in device.warnings] == [("LEAK", w)]


def test_a_program_of_which_nothing_follows_from_parameters_alone_runs_as_usual() -> None:
    device = Device()
    program = device.program(graph([("Mul", "x w", "y")], {"x": (4, 4), "w": (4, 4)}, ["y"]), const_eval=["w"])
    w = device.to_device(numbers((4, 4), 1))
    assert np.array_equal(result(device, program, w), numbers((4, 4)) * numbers((4, 4), 1))
    assert program.parts is None and w.is_allocated
