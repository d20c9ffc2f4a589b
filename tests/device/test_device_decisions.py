"""Ops of programs on a device are asked whether they run in place, as those of any run, and the log says why not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.device import Device, Layout
from tests.device.programs import double, graph, numbers

SHAPE = (8, 16)


def negated(prepare: Callable[[Device, Any], Any] = lambda device, x: None, **options: Any) -> Any:
    """The trace of one submit of ``y = -x``, whose only op could have the memory of its input."""
    device = Device(contract=options.pop("contract", "landed"))
    program = device.program(graph([("Neg", "x", "y")], {"x": SHAPE}, ["y"]), name="negate", **options)
    x = device.to_device(numbers(SHAPE), program.layout("x"), name="x")
    held = prepare(device, x)
    device.submit(program, {"x": x})
    del held
    return device.trace


def retain(device: Device, x: Any) -> None:
    x.retain = True


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({}, []),
        ({"prepare": retain}, ["the handle that the submit was given is retained"]),
        ({"contract": "proposed"}, ["as proposed, a submit leaves its inputs to the caller, who frees them"]),
        ({"prepare": lambda d, x: d.reshape(x, (2, 4, 16))}, ["another handle or view counts on its buffer"]),
        ({"outputs": {"y": Layout("l1")}}, ["the outputs of the program are to lie in another memory or layout"]),
        ({"const_eval": ["x"]}, ["it is a parameter, which a program never deallocates"]),
    ],
)
def test_an_op_of_a_program_says_why_it_may_not_have_the_memory_of_an_input(how: Any, why: list[str]) -> None:
    (step,) = [step for step in negated(**how).steps if step.op_type == "Neg"]
    assert [blocker.message.partition(": ")[2] for blocker in step.decision.blockers] == why


def test_what_a_program_missed_is_found_and_explained_from_a_file_too(tmp_path: Path) -> None:
    trace = negated(retain)
    trace.save(tmp_path / "device.kvviz")
    for one in (trace, kvviz.Trace.load(tmp_path / "device.kvviz")):
        (missed,) = kvviz.explain(one).missed
        assert (missed.op_type, missed.bytes) == ("Neg", int(np.prod(SHAPE)) * 4)
        text = str(kvviz.explain(one))
        assert "the handle that the submit was given is retained" in text and "submit 1 · negate" in text


def test_a_report_speaks_of_submits_and_of_the_handle_that_keeps_a_tensor() -> None:
    device = Device(name="two submits")
    program = device.program(double(SHAPE), name="twice")
    x = device.to_device(numbers(SHAPE), name="x")
    x.retain = True
    y = device.submit(program, {"x": x})["y"]
    z = device.submit(program, {"x": y})["y"]
    device.to_host(z)
    text = str(kvviz.explain(device.trace))
    assert "submit 1 · twice" in text and "submit 2 · twice" in text and "run 0" not in text
    assert "handle #0 keeps it, and it is retained; it was made at test_device_decisions.py:" in text
    assert "was given x and keeps it" not in text
