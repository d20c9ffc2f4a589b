"""What is worked out once: results from parameters alone, and traces that are captured and replayed."""

from typing import Any

import numpy as np

from kvviz.device import Device
from tests.device.programs import chain, codes, graph, numbers


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


SHAPE = (64, 128)


def captured() -> tuple[Device, Any, Any, dict[str, Any]]:
    """A has an intermediate that is freed when its capture is over; no L1, so that it lies in DRAM."""
    device = Device(l1=0)
    ones = np.ones((128, 1), np.float32)
    a = device.program(graph([("Exp", "x", "e"), ("MatMul", "e t", "y")], {"x": SHAPE}, ["y"], t=ones), name="A")
    b = device.program(chain(SHAPE), name="B")
    x, w = device.to_device(numbers(SHAPE), name="x"), device.to_device(numbers(SHAPE, 1), name="w")
    x.retain = w.retain = True
    return device, a, b, {"x": x, "w": w}


def expected(x: np.ndarray) -> np.ndarray:
    return np.exp(x) @ np.ones((128, 1), np.float32)


def test_a_replay_writes_into_the_same_slots_and_brings_its_inputs_up_to_date() -> None:
    device, a, _, given = captured()
    trace = device.capture(a, {"x": given["x"]})
    y = trace.outputs["y"]
    assert np.allclose(device.to_host(y), expected(numbers(SHAPE)))
    x2 = device.to_device(numbers(SHAPE, 2))
    device.deallocate(given["w"])
    again = device.replay(trace, {"x": x2}, check=False)["y"]
    assert again is y and np.allclose(device.to_host(y), expected(numbers(SHAPE, 2)), rtol=1e-4)
    assert (trace.captures, trace.replays) == (1, 1)


def test_a_replay_overwrites_what_was_captured_later_where_its_intermediates_lay() -> None:
    device, a, b, given = captured()
    first = device.capture(a, {"x": given["x"]})
    second = device.capture(b, {"a": given["x"], "w": given["w"]})
    (memory, address, size), *_ = first.writes
    slots = [block for block in device.memory_view()[memory].blocks if block["handle"] in ("a (slot)", "w (slot)")]
    assert any(block["address"] < address + size and address < block["address"] + block["size"] for block in slots)
    device.replay(first, {"x": given["x"]}, check=False)
    assert "TRACE_OVERWRITES" in codes(device)
    garbage = device.to_host(device.replay(second, {"a": given["x"], "w": given["w"]}, check=False)["out"])
    x, w = numbers(SHAPE), numbers(SHAPE, 1)
    assert not np.allclose(garbage, ((x + w) * w) - w, equal_nan=True)


def test_with_its_generation_checked_it_is_captured_again_and_nothing_is_overwritten() -> None:
    device, a, b, given = captured()
    first = device.capture(a, {"x": given["x"]})
    second = device.capture(b, {"a": given["x"], "w": given["w"]})
    assert (first.generation, second.generation) == (1, 2)
    y = device.replay(first, {"x": given["x"]})["y"]
    assert (first.captures, first.replays, first.generation) == (2, 0, 3) and codes(device) == []
    assert np.allclose(device.to_host(y), expected(numbers(SHAPE)))
    x, w = numbers(SHAPE), numbers(SHAPE, 1)
    assert np.allclose(device.to_host(second.outputs["out"]), ((x + w) * w) - w)


def test_slots_are_let_go_with_the_trace() -> None:
    device, a, _, given = captured()
    before = device.live_bytes
    trace = device.capture(a, {"x": given["x"]})
    assert device.live_bytes["dram"] > before["dram"]
    device.release_capture(trace)
    assert device.live_bytes == before
    assert [m.kind for m in device.trace.log.declared.marks if "trace" in m.kind] == ["trace captured"]
