"""What the caller drops is freed, as landed: a handle is a shared pointer, in both ownership models."""

import gc
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any
from weakref import ref

import numpy as np
import pytest

from kvviz.device import Device, Handle, Layout
from kvviz.errors import KvvizError
from tests.device.programs import chain, double, graph, numbers

BOTH = pytest.mark.parametrize("ownership", ["classic", "holder"])
SHAPE, NBYTES = (64, 128), 64 * 128 * 4


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Reference counts alone: what a cycle keeps stays, and the test sees it."""
    gc.disable()
    yield
    gc.enable()


@BOTH
def test_a_loop_that_assigns_its_output_anew_holds_one(ownership: str, no_collector: None) -> None:
    # given: room for four tensors
    device = Device(dram=4 * NBYTES, l1=0, ownership=ownership)
    program = device.program(double())
    x = device.to_device(numbers(SHAPE))
    x.retain = True
    # when
    for _ in range(40):
        y = device.submit(program, {"x": x})["y"]
    # then
    assert np.array_equal(device.to_host(y), 2 * numbers(SHAPE))
    assert device.live_bytes["dram"] == 2 * NBYTES
    # an output that views a dropped input lives on
    del x, y
    turn = device.program(graph([("Transpose", "x", "y")], {"x": SHAPE}, ["y"]))
    y = device.submit(turn, {"x": device.to_device(numbers(SHAPE))})["y"]
    assert device.live_bytes["dram"] == NBYTES and np.array_equal(device.to_host(y), numbers(SHAPE).T)
    device.close()
    assert [(w.code, w.handle) for w in device.warnings] == [("LEAK", y)]
    alive = [s.capacity for s in device.trace.storages if s.space == "dram" and s.freed is None]
    assert alive == [NBYTES]


@pytest.mark.parametrize("case", ["submit", "inputs", "reshape", "room", "memcpy", "table"])
def test_an_error_that_is_kept_keeps_no_tensor(case: str, no_collector: None) -> None:
    # given: an error, kept with its traceback, as a notebook keeps the last one
    device = Device(dram=4 * NBYTES)
    wrong = device.program(graph([("Reshape", "x to", "y")], {"x": SHAPE}, ["y"], to=np.array([3, 5])))
    tiles = case == "table"
    x = device.to_device(numbers((1, 1, *SHAPE) if tiles else SHAPE), Layout(tiled=tiles))
    table = device.block_table(device.to_device(numbers((1, 1, *SHAPE))), [[0], [0]])
    kept: list[KvvizError] = []
    try:
        if case in ("submit", "inputs"):
            device.submit(wrong, {"x": x, "z": x} if case == "inputs" else {"x": x})
        elif case == "reshape":
            device.reshape(x, (3, 5))
        elif case == "room":
            device.fill_cache(x, device.to_device(np.zeros(1 << 20)))
        elif case == "table":
            device.paged_fill_cache(x, x, table)
        else:
            device.memcpy(x, np.zeros(3))
    except KvvizError as error:
        kept.append(error)
    assert kept and (case not in ("reshape", "memcpy") or getattr(kept[0], "handle", None) is x)
    # when
    del x
    # then
    assert device.live_bytes["dram"] == 0 and not isinstance(getattr(kept[0], "handle", None), Handle)


@BOTH
def test_finalizers_in_the_middle_of_a_call_change_nothing_of_it(
    ownership: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: cycles that hold handles, and a collector that comes at every turn
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    device = Device(ownership=ownership)
    program = device.program(chain((8, 8)))
    w = device.to_device(numbers((8, 8), 1))
    w.retain = True
    before = gc.get_threshold()
    gc.set_threshold(3, 1, 1)
    try:
        # when
        for seed in range(30):
            a = device.to_device(numbers((8, 8), seed))
            out = device.submit(program, {"a": a, "w": w})["out"]
            view = device.reshape(out, (2, 4, 8))
            cycle: list[Any] = [a, out, view, device.to_device(numbers((8, 8)))]
            cycle.append(cycle)
            expected = ((numbers((8, 8), seed) + numbers((8, 8), 1)) * numbers((8, 8), 1)) - numbers((8, 8), 1)
            assert np.allclose(device.to_host(view).reshape(8, 8), expected, atol=1e-5)
            assert len(device.trace.steps) and sum(device.live_bytes.values()) >= 512
    finally:
        gc.set_threshold(*before)
    # then
    del a, out, view, cycle
    gc.collect()
    assert raised == []
    assert device.live_bytes == {"dram": 256, "l1": 0}
    assert device.allocated_bytes - device.freed_bytes == 256
    alive = [s for s in device.trace.storages if s.space == "dram" and s.freed is None]
    assert [storage.name for storage in alive] == ["w"]


def test_handles_that_another_thread_drops_are_let_go_by_the_next_call() -> None:
    device = Device()
    program = device.program(double((8, 8)))
    given: list[Any] = []
    over = threading.Event()

    def drops() -> None:
        while not over.is_set() or given:
            if given:
                given.pop()

    thread = threading.Thread(target=drops)
    thread.start()
    for seed in range(200):
        given.append(device.to_device(numbers((8, 8), seed)))
        given.append(device.submit(program, {"x": device.to_device(numbers((8, 8), seed))})["y"])
    over.set()
    thread.join()
    assert sum(device.live_bytes.values()) == 0
    assert device.allocated_bytes == device.freed_bytes


def test_a_device_that_is_dropped_with_results_that_it_keeps_is_freed() -> None:
    device = Device()
    nodes = [("Mul", "w w", "square"), ("Add", "x square", "y")]
    program = device.program(graph(nodes, {"x": SHAPE, "w": SHAPE}, ["y"]), const_eval=["w"])
    w = device.to_device(numbers(SHAPE))
    device.submit(program, {"x": device.to_device(numbers(SHAPE)), "w": w})
    assert device.const_eval.misses == 1
    there = ref(device)
    del device, program, w
    gc.collect()
    assert there() is None


def test_arrays_of_the_dead_are_not_kept() -> None:
    device = Device()
    program = device.program(double((512, 512)))
    x = device.to_device(numbers((512, 512)))
    x.retain = True
    tracemalloc.start()
    try:
        for _ in range(30):
            y = device.submit(program, {"x": x})["y"]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert y.is_allocated and held < 4 * y.nbytes


def test_what_a_cycle_keeps_when_the_device_is_closed_is_no_leak(no_collector: None) -> None:
    device = Device()
    cycle: list[Any] = [device.to_device(numbers(SHAPE))]
    cycle.append(cycle)
    kept = device.to_device(numbers(SHAPE))
    del cycle
    device.close()
    assert [(w.code, w.handle) for w in device.warnings] == [("LEAK", kept)]
