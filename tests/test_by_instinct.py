"""What people see and type by instinct works, or is answered with the right name; and what is shown can be read."""

import inspect
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import kvviz
from kvviz import device, errors, ext, ggml, lessons, policies
from kvviz.other_names import arguments, attributes, tables
from tests.graph.build import MODELS

LLAMA = MODELS / "o01_optimum_llama" / "model.onnx"
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    return kvviz.decode(LLAMA, [5, 17, 33], 3)


def test_a_trace_has_a_length_and_gives_its_steps(trace: kvviz.Trace) -> None:
    assert len(trace) == len(trace.steps) == 1200
    assert [step.index for step in trace] == list(range(1200))
    assert trace[7].node == trace.steps[7].node and trace[-1].index == 1199
    assert [step.index for step in trace[3:9:2]] == [3, 5, 7]
    # A trace of no step is still true.
    graph = kvviz.load(LLAMA)
    empty = kvviz.run(graph, kvviz.inputs(graph), record=False)
    assert len(empty) == 0 and empty


def test_steps_of_one_node_are_found_by_its_name(trace: kvviz.Trace) -> None:
    name = trace[7].node
    assert [step.index for step in trace.steps[name]] == [7, 407, 807]
    assert [step.index for step in trace[name]] == [7, 407, 807]
    with pytest.raises(KeyError, match=f"did you mean '{name}'"):
        trace.steps[name + "x"]
    with pytest.raises(KeyError, match=r"trace\.find\('op:Concat'\)"):
        trace.steps["Concat"]


def test_every_other_name_is_answered_with_one_that_is_there(trace: kvviz.Trace) -> None:
    owners = {"kvviz": kvviz, "Trace": trace, "Graph": trace.graph, "Step": trace[7], "Cache": trace.caches[0]}
    for owner, thing in {**owners, "Report": trace.explain()}.items():
        for name, meant in attributes(owner).items():
            with pytest.raises(AttributeError) as caught:
                getattr(thing, name)
            assert str(caught.value).endswith(f"use {meant}")
            first = meant.removeprefix("kvviz.").split("(")[0].split("[")[0].split(".")[0].split(",")[0].split(" ")[0]
            known = kvviz if meant.startswith("kvviz.") else trace if first == "trace" else thing
            assert first == "trace" or hasattr(known, first), (owner, name, meant)


def test_a_slip_is_answered_with_the_nearest_name(trace: kvviz.Trace) -> None:
    for thing, slip, meant in (
        (trace, "peak_byte", "peak_bytes"),
        (trace[0], "op_typ", "op_type"),
        (kvviz, "lod", "load"),
    ):
        with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
            getattr(thing, slip)
    assert not hasattr(trace, "_repr_png_")


def test_a_property_that_fails_keeps_its_own_error(trace: kvviz.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "log", None)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'peak'"):
        trace.peak_bytes  # noqa: B018


FUNCTIONS = ["compare", "debug", "decode", "explain", "fork", "hazards", "inputs", "load", "plan", "run", "stream"]


def test_every_other_argument_is_answered_with_the_one_that_is_meant_or_with_all_that_there_are() -> None:
    for function in FUNCTIONS:
        parameters = inspect.signature(getattr(kvviz, function)).parameters
        for name, meant in arguments().items():
            if name not in parameters and meant in parameters:
                with pytest.raises(TypeError, match=f"kvviz.{function} has no argument {name}=; it is {meant}="):
                    getattr(kvviz, function)(**{name: 1})
    with pytest.raises(TypeError, match="has no argument max_tokens=; it is max_new_tokens="):
        kvviz.compare(LLAMA, prompt=[5], max_tokens=2)
    with pytest.raises(TypeError, match=r"kvviz\.run has no argument colour=; it has graph, inputs, outputs"):
        kvviz.run(LLAMA, {}, colour=1)  # type: ignore[call-arg]


def test_a_step_prints_in_a_few_lines_and_as_a_table(trace: kvviz.Trace) -> None:
    for step in trace[:400:13]:
        lines = repr(step).splitlines()
        assert 4 <= len(lines) <= 8 and all(len(line) < 500 for line in lines)
        assert lines[0].startswith(f"step {step.index}: {step.op_type} ")
        for out in step.outs:
            assert out.label in repr(step) and out.label in step._repr_html_()
        assert step._repr_html_().startswith("<table>")
    assert pickle.loads(pickle.dumps(trace[7])).node == trace[7].node


def test_caches_and_hazards_print_one_line_each_and_as_a_table(trace: kvviz.Trace, tmp_path: Path) -> None:
    assert len(repr(trace.caches[0]).splitlines()) == 1
    assert trace.caches[0]._repr_html_().count("<tr>") == 1 + len(trace.runs)
    trace.save(tmp_path / "x")
    for caches in (trace.caches, kvviz.Trace.load(tmp_path / "x").caches):
        assert len(repr(caches).splitlines()) == 1 + len(caches)
        assert caches._repr_html_().count("<tr>") == 1 + len(caches)  # type: ignore[attr-defined]
    hazards = kvviz.hazards(trace, run=0)
    assert hazards
    assert len(repr(hazards).splitlines()) == min(1 + len(hazards), 62)
    assert all(len(repr(one).splitlines()) == 1 and one.sentence in repr(one) for one in hazards)
    assert hazards._repr_html_().startswith("<table>")
    assert isinstance(hazards, tuple) and hazards == tuple(hazards) and pickle.loads(pickle.dumps(hazards)) == hazards


def _undocumented(thing: Any, path: str) -> Iterator[str]:
    """Public members of a class without a docstring; the one that dataclass makes up does not count."""
    text = inspect.getdoc(thing) or ""
    if not text or text.startswith(f"{getattr(thing, '__name__', '')}("):
        yield path
    for name, member in vars(thing).items() if inspect.isclass(thing) else ():
        function = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function) and not function.__doc__:
            yield f"{path}.{name}"


def _reachable(trace: kvviz.Trace) -> dict[str, Any]:
    """Everything that is public by name, and the classes of what a trace and a report give."""
    report = trace.explain()
    given = [trace.steps, trace[0].decision, trace[0].outs[0], trace.frames[0], trace.storages[0], trace.runs[0]]
    given += [trace.caches, trace.caches[0], trace.caches[0].runs[0], trace.caches[0].runs[0].items[0], trace.options]
    given += [trace.policy, trace.graph, trace.graph.nodes[0], trace.graph.inputs[0], trace.table()]
    given.append(trace.find("op:Cast"))
    given += [report, report.missed[0], report.missed[0].blockers[0], report.peak]
    given += [next(entry.fix for entry in report.missed if entry.fix)]
    given += [report.held_too_long[0], report.groups[0], report.verdict[0], report.caches[0]]
    given += [kvviz.hazards(trace), kvviz.hazards(trace)[0], kvviz.cache_warnings(trace)[0]]
    found = {type(thing).__name__: type(thing) for thing in given}
    for module in (kvviz, ext, device, ggml, lessons, policies, errors, kvviz.plot):
        for name in dir(module):
            thing = getattr(module, name)
            own = (getattr(thing, "__module__", "") or "").startswith("kvviz")
            if not name.startswith("_") and own and callable(thing):
                found[f"{module.__name__}.{name}"] = thing
    return found


def test_every_public_member_has_a_docstring(trace: kvviz.Trace) -> None:
    found = _reachable(trace)
    assert len(found) > 120
    assert [path for name, thing in found.items() for path in _undocumented(thing, name)] == []


def test_the_logger_tells_of_every_plan_and_run_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "kvviz"):
        kvviz.decode(kvviz.load(LLAMA), [5], 2)
    assert all(record.name.startswith("kvviz.") for record in caplog.records)
    told = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("planned main_graph under ideal: 400 of 400 nodes") for line in told) == 1
    assert [line.split(" of ")[0] for line in told if " ops, peak " in line] == ["run 0", "run 1"]


def test_commands_work_on_a_narrow_terminal_and_without_a_locale() -> None:
    cases: list[tuple[dict[str, str], list[str]]] = [
        ({"COLUMNS": "40"}, ["--help"]),
        ({"COLUMNS": "40"}, ["report", str(LLAMA), "--prompt", "5,17"]),
        ({"LC_ALL": "C"}, ["about", str(LLAMA)]),
        ({"LC_ALL": "C", "PYTHONUTF8": "0"}, ["report", str(LLAMA), "--prompt", "5,17"]),
    ]
    for setting, line in cases:
        plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        command = [sys.executable, "-m", "kvviz", *line]
        done = subprocess.run(command, env={**plain, **setting}, cwd=ROOT, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout


def test_dir_lists_every_public_name_and_nothing_that_kvviz_imports() -> None:
    seen = [name for name in dir(kvviz) if not name.startswith("_")]
    assert set(seen) == {*kvviz.__all__, "smollm2"}
    assert all(getattr(kvviz, name) is not None for name in kvviz.__all__)
    assert (Path(kvviz.__file__).parent / "py.typed").exists()

    # and those of ggml
    assert [name for name in dir(ggml) if not name.startswith("_")] == sorted(ggml.__all__)
    assert all(getattr(ggml, name) is not None for name in ggml.__all__)


MOVED = tables()["moved"]


@pytest.mark.parametrize("old", MOVED)
def test_a_module_that_has_moved_is_found_with_a_warning(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {MOVED[old]}"):
        found = vars(import_module(old))
    assert {k: v for k, v in vars(import_module(MOVED[old])).items() if not k.startswith("__")}.items() <= found.items()
    del sys.modules[old]
