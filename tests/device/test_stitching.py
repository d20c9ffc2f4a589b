"""Programs that feed each other without a trip to the host: scenario 12, order in time, errors that lose nothing."""

import numpy as np
import pytest

from kvviz.device import Device, DeviceError, Layout
from kvviz.errors import KvvizError
from tests.device.programs import chain, codes, double, graph, numbers


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
    assert "test_stitching.py" in raised.value.line and "device.submit(program, given)" in str(raised.value)
    assert device.live_bytes == before
    assert np.array_equal(device.to_host(device.submit(program, {"x": x})["y"]), 2 * numbers((4, 4)))
