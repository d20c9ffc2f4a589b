"""The lanes of a device's trace in a page of its own: what is held where, warnings, the story of a tensor."""

import numpy as np
from playwright.sync_api import expect

from kvviz.device import Device, Layout
from kvviz.trace.recording import Trace
from kvviz.trace.units import size
from tests.device.programs import graph
from tests.ui import pace
from tests.ui.conftest import Show
from tests.ui.filepage import FilePage

TILED = Layout(tiled=True)
NODES = [
    *[("MatMul", "x w", "a"), ("Relu", "a", "b"), ("MatMul", "b w", "c"), ("Add", "c x", "d"), ("MatMul", "d w", "e")],
    *[("Sigmoid", "e", "f"), ("Mul", "f d", "g"), ("MatMul", "g w", "h"), ("Relu", "h", "y")],
]


def recorded(submits: int) -> Trace:
    """A cache that is never freed, submits that feed each other, and one value that takes the way over the host."""
    device = Device()
    layer = device.program(graph(NODES, {"x": [64, 64], "w": [64, 64]}, ["y"]), name="layer")
    x, w = (np.full((64, 64), 0.01, np.float32) for _ in range(2))
    cache = device.to_device(np.zeros((1, 4, 64, 32), np.float32), TILED, name="cache")
    cache.retain = True
    device.update_cache(cache, device.to_device(np.ones((1, 4, 1, 32), np.float32), TILED, name="row"), 5)
    weights = device.to_device(w, name="w")
    weights.retain = True
    value = device.to_device(x, name="x")
    for number in range(submits):
        if number == 1:
            array = device.to_host(value)
            device.deallocate(value)
            value = device.to_device(array, name="x again")
        value = device.submit(layer, {"x": value, "w": weights})["y"]
    device.to_host(value)
    device.close()
    return device.trace


def drawn(show: Show, trace: Trace) -> FilePage:
    page: FilePage = show(trace, width=1500, height=1000)
    page.page.locator('[data-kv="clock"][data-drawn]').wait_for()
    return page


def test_the_page_of_a_device_tells_what_is_held_where_and_what_is_wrong(show: Show) -> None:
    trace = recorded(4)
    page = drawn(show, trace)
    link = sum(step.copied for step in trace.steps if step.op_type == "transfer")
    warnings = [mark for mark in trace.log.declared.marks if mark.kind.startswith("warning ")]
    expect(page.kv("findings")).to_contain_text(f"{len(warnings)} warnings")
    expect(page.kv("findings")).to_contain_text(f"{size(link)} over the host link")
    expect(page.kv("story-word")).to_have_text([f"submit {n} · layer" for n in range(1, 5)])
    expect(page.kv("next-token")).to_have_text("Next run ▸▸")
    leak = page.root.locator('.kv-clock-warning[data-code="LEAK"]', has_text="'cache'")
    expect(leak).to_contain_text("deallocate it after its last use")
    expect(leak.locator("code")).to_contain_text("test_device_lanes.py")
    leak.locator('[data-kv="mark"]').click()
    page.expect_step(len(trace.steps) - 1)
    expect(page.root.locator(".kv-clock-story")).to_contain_text("written in place")
    # memories are told by address as they are at the cursor
    page.goto(1)
    room = {arena.name: arena.nbytes for arena in trace.log.declared.arenas}
    told = page.kv("banks").locator("p")
    alive = [s for s in trace.storages if s.space == "dram" and s.born <= 1 and (s.freed is None or s.freed >= 1)]
    expect(told.nth(0)).to_contain_text(f"dram: {len(alive)} buffers")
    expect(told.nth(0)).to_contain_text(f"in {room['dram'] / 1e9:.3g} GB")
    expect(told.nth(1)).to_contain_text("l1: 0 buffers")
    expect(told.nth(1)).to_contain_text(f"largest contiguous free part {size(room['l1'])}")
    page.goto(next(step.index for step in trace.steps if step.op_type == "update_cache"))
    expect(page.kv("inspector")).to_contain_text("overwrote cache in place")
    page.kv("clock").focus()
    page.page.keyboard.press("ArrowRight")
    expect(page.root.locator(".kv-clock .kv-map-tip")).to_be_visible()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("Enter")
    expect(page.kv("inspector")).to_contain_text("transfer")


def test_200_submits_are_dragged_through_as_cheaply_as_300_boxes_are_drawn(show: Show) -> None:
    trace = recorded(200)
    assert len(trace.runs) == 200 and len(trace.steps) > 2_000
    assert pace.cost_of(drawn(show, trace).root, pace.DRAG_STEPS, 100) < pace.STEP
