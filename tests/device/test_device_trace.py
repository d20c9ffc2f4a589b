"""The recording of a device goes through every reader, and says transfers, frees and why an op was not in place."""

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.device import Device, Handle, Layout
from kvviz.errors import KvvizError
from kvviz.trace.units import size
from tests.device.programs import chain, double, graph, numbers
from tests.graph.build import MODELS
from tests.outside.told import differences, loaded

TILES = Layout(tiled=True)


@cache
def recorded() -> Device:
    """Two programs, a cache that is updated, a view, a free that is refused, a leak."""
    device = Device(name="two programs")
    program = device.program(chain((32, 32)), name="chain")
    reader = device.program(double((1, 1, 64, 32)), layouts={"x": TILES}, name="reader")
    w = device.to_device(numbers((32, 32), 1))
    act = device.to_device(numbers((32, 32)))
    cache = device.to_device(np.zeros((1, 1, 64, 32), np.float32), TILES)
    w.retain = cache.retain = True
    for _ in range(3):
        act = device.submit(program, {"a": act, "w": w})["out"]
    device.deallocate(w)
    row = device.to_device(numbers((1, 1, 1, 32)), Layout("l1"))
    device.update_cache(cache, row, 3)
    seen = device.submit(reader, {"x": cache})["y"]
    device.to_host(seen)
    device.deallocate(seen)
    device.reshape(act, (2, 16, 32))
    device.close()
    return device


def test_a_run_is_a_submit_with_what_leads_up_to_it_and_what_follows_of_it_to_the_host() -> None:
    trace = recorded().trace
    told = [(run.text, [step.op_type for step in trace.steps[run.first : run.last]]) for run in trace.runs]
    program = ["Add", "Mul", "Sub", "submit"]
    assert told == [
        ("submit 1 · chain", ["transfer", "transfer", "transfer", *program]),
        ("submit 2 · chain", program),
        ("submit 3 · chain", program),
        ("submit 4 · reader", ["transfer", "update_cache", "Add", "submit", "transfer"]),
        ("after submit 4", ["reshape"]),
    ]


def test_storages_say_in_which_memory_they_lie_and_never_two_at_once_in_one_place() -> None:
    trace = recorded().trace
    assert {storage.space for storage in trace.storages} == {"host", "dram", "l1"}
    placed = [
        (one, one.address, len(trace.steps) if one.freed is None else one.freed)
        for one in trace.storages
        if one.space != "host" and one.address is not None
    ]
    assert len(placed) == sum(one.space != "host" for one in trace.storages)
    for (one, at, end), (other, beside, ended) in combinations(placed, 2):
        if one.space == other.space:
            apart = at + one.capacity <= beside or beside + other.capacity <= at
            assert apart or end <= other.born or ended <= one.born
    for step in trace.steps:
        alive = [s for s in trace.storages if s.born <= step.index and (s.freed is None or s.freed >= step.index)]
        assert sum(s.capacity for s in alive) == step.live_bytes


def test_from_a_file_it_says_the_same() -> None:
    device = recorded()
    trace = device.trace
    again = loaded(trace)
    assert again.log.declared == trace.log.declared
    assert differences(trace, again) == []
    told = [str(one) for one in again.explain().verdict]
    assert told[0] == "4 warnings: leak × 4"
    assert f"{size(device.host_bytes)} over the host link in 5 transfers for 5 submits" in told
    with pytest.raises(KvvizError, match="has no op"):
        _ = Device().trace


def test_bodies_of_control_nodes_are_frames_inside_of_the_submit_and_sequences_are_accounted_for() -> None:
    text = """<ir_version: 9, opset_import: ["": 18]> program (float[4] x, bool c) => (float[4] y)
        <int64 first = {1}> {
        s = SequenceConstruct (x, x)  t = SequenceAt (s, first)
        y = If (c) <then_branch = yes () => (float[4] n) { n = Neg(t) },
                    else_branch = no () => (float[4] a) { a = Abs(t) }> }"""
    device = Device()
    program = device.program(onnx.parser.parse_model(text))
    for seed, chosen in enumerate((True, False)):
        given = {"x": device.to_device(numbers((4,), seed)), "c": device.to_device(np.array(chosen))}
        y = device.to_host(device.submit(program, given)["y"])
        assert np.array_equal(y, -numbers((4,), seed) if chosen else np.abs(numbers((4,), seed)))
    trace = device.trace
    assert [step.frame for step in trace.steps if step.op_type in ("Neg", "Abs")] == [
        ("program[program]", "y[then_branch]"),
        ("program[program]", "y[else_branch]"),
    ]
    assert repr(loaded(trace).table()) == repr(trace.table())
    device.close()
    assert sum(device.live_bytes.values()) == sum(w.nbytes for w in device.warnings if w.code == "LEAK")


@pytest.mark.parametrize("form", ["concat", "merged_if"])
def test_the_hidden_hazards_of_a_program_are_those_of_a_run_of_its_graph(form: str) -> None:
    model = kvviz.load(MODELS / "storyteller" / form / "model.onnx")
    names = [value.name for value in model.inputs]
    given = kvviz.inputs(model)
    arrays = {name: np.array(given[name]) for name in names}
    device = Device()
    device.submit(device.program(model), {name: device.to_device(array) for name, array in arrays.items()})
    alone = kvviz.run(model, {name: array.copy() for name, array in arrays.items()}, donate=names)
    found = [
        sorted((h.kind, h.bytes, h.value, h.broken) for h in kvviz.hazards(trace)) for trace in (device.trace, alone)
    ]
    assert found[0] == found[1] != []
    assert [s.decision.dispatch for s in device.trace.steps if s.frame] == [s.decision.dispatch for s in alone.steps]


def test_blocks_of_the_trace_are_those_of_the_memory_view() -> None:
    device = Device(dram=1 << 24, l1=1 << 22)
    program, dice = device.program(double()), np.random.default_rng(3)
    handles: list[Handle] = []
    for number in range(60):
        what = dice.random()
        if what < 0.5 or not handles:
            layout = Layout(("dram", "l1")[dice.integers(2)], tiled=bool(dice.integers(2)))
            handles.append(device.to_device(numbers([(8, 64, 33)[dice.integers(3)]] * 2, number), layout))
        elif what < 0.8:
            device.deallocate(handles.pop(dice.integers(len(handles))))
        else:
            handles.append(device.submit(program, {"x": device.to_device(numbers((64, 128)))})["y"])
    told, trace = device.memory_view(), device.trace
    for arena in trace.log.declared.arenas:
        alive = [s for s in trace.storages if s.space == arena.space and s.freed is None]
        blocks = [(s.address, s.capacity if s.taken is None else s.taken) for s in alive]
        expected = [(b["address"], b["size"]) for b in told[arena.space].blocks if b["allocated"]]
        assert sorted(blocks) == expected and arena.nbytes == told[arena.space].nbytes


SHAPE = (8, 16)
ELSEWHERE = "the outputs of the program are to lie in another memory or layout"


@pytest.mark.parametrize(
    ("contract", "how", "prepare", "why"),
    [
        ("landed", {}, None, []),
        ("landed", {}, "retain", ["the handle that the submit was given is retained"]),
        ("landed", {}, "view", ["another handle or view counts on its buffer"]),
        ("proposed", {}, None, ["as proposed, a submit leaves its inputs to the caller, who frees them"]),
        ("landed", {"outputs": {"y": Layout("l1")}}, None, [ELSEWHERE]),
        ("landed", {"const_eval": ["x"]}, None, ["it is a parameter, which a program never deallocates"]),
    ],
)
def test_an_op_of_a_program_says_why_it_may_not_have_the_memory_of_an_input(
    contract: str, how: Any, prepare: str | None, why: list[str]
) -> None:
    # given one submit of y = -x, whose only op could have the memory of its input
    device = Device(contract=contract)
    program = device.program(graph([("Neg", "x", "y")], {"x": SHAPE}, ["y"]), **how)
    x = device.to_device(numbers(SHAPE), program.layout("x"))
    x.retain = prepare == "retain"
    held = device.reshape(x, (2, 4, 16)) if prepare == "view" else None
    device.submit(program, {"x": x})
    del held
    (step,) = [step for step in device.trace.steps if step.op_type == "Neg"]
    assert [blocker.message.partition(": ")[2] for blocker in step.decision.blockers] == why


def test_a_report_speaks_of_what_a_submit_missed_and_of_the_handle_that_keeps_a_tensor() -> None:
    device = Device(name="two submits")
    program = device.program(graph([("Neg", "x", "y")], {"x": SHAPE}, ["y"]), name="twice")
    x = device.to_device(numbers(SHAPE), name="x")
    x.retain = True
    y = device.submit(program, {"x": x})["y"]
    z = device.submit(program, {"x": y})["y"]
    device.to_host(z)
    for trace in (device.trace, loaded(device.trace)):
        report = kvviz.explain(trace)
        assert [(missed.op_type, missed.bytes) for missed in report.missed] == [("Neg", int(np.prod(SHAPE)) * 4)]
        text = str(report)
        assert "submit 1 · twice" in text and "submit 2 · twice" in text and "run 0" not in text
        assert "the handle that the submit was given is retained" in text
        assert "handle #0 keeps it, and it is retained; it was made at test_device_trace.py:" in text
        assert "was given x and keeps it" not in text
