"""The code that a fix prints: it runs as it stands, and does what the fix does."""

import dataclasses
from typing import Any

import onnx
import pytest

import kvviz
from kvviz import Trace
from kvviz.debugger.cursor import Cursor
from kvviz.decode.run_sessions import SingleRun
from kvviz.fixes.fix import Fix
from kvviz.fixes.fix_wording import KINDS
from kvviz.report.explain import explain
from kvviz.runtimes.named_policies import policy_of
from tests.decode.small import small
from tests.engine.blocked import CASES
from tests.engine.graphs import numbers, proto_of
from tests.explain.applying import offered
from tests.explain.nested_graphs import nested
from tests.explain.test_fix_kinds import made
from tests.graph.build import model, node

Inputs = dict[str, Any]
TWO = "g (float[2, 3] x) => (float[2, 3] t, float[2, 3] z) { a = Exp(x) [target] t = Relu(a) z = Neg(a) }"
SUM = "g (float[2, 3] x) => (float[2, 3] z) { a = Exp(x) b = Neg(x) [target] t = Add(a, b) z = Sub(t, b) }"
LENDS = dataclasses.replace(kvviz.policies.ideal, name="lends", captures=kvviz.policies.never.captures)


def executed(trace: Trace, code: str, proto: onnx.ModelProto, **given: Any) -> Trace:
    """Do what the code says, with what it may ask for; where it only changes the model, the run is repeated with it."""
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    names = {"kvviz": kvviz, "model": changed, "graph": kvviz.load(proto), "trace": trace, "policy": policy_of(trace)}
    names |= given
    exec(code, names)
    done: Any = names["trace"]
    if done is trace:
        options: Any = {"policy": names["policy"], "donate": trace.options.donate}
        outputs = trace.log.frames[0].program.outputs
        done = kvviz.run(kvviz.load(changed), names["inputs"], outputs, **options)
    return done


def did(trace: Trace) -> list[Any]:
    """What ran, in which order, and which of it in place."""
    return [(step.node, step.frame, step.decision.taken, step.allocated) for step in trace.steps]


def of_text(text: str, policy: Any = "ideal", opset: int = 21, **options: Any) -> tuple[Trace, onnx.ModelProto, Inputs]:
    proto = proto_of(text, opset)
    inputs = made(options.pop("inputs", {"x": numbers(2, 3)}))
    trace = kvviz.run(kvviz.load(proto), made(inputs), policy=policy, **options)
    return trace, proto, inputs


def free_dimensions() -> tuple[Trace, onnx.ModelProto, Inputs]:
    nodes = [node("Neg", "x", "a"), node("Relu", "a", "b"), node("Neg", "b", "y")]
    proto, inputs = model(nodes, ["x float ? ?"], ["y"]), {"x": numbers(2, 3)}
    return kvviz.run(kvviz.load(proto), made(inputs), policy="onnxruntime"), proto, inputs


def picked() -> tuple[Trace, onnx.ModelProto, Inputs]:
    text = TWO.replace("z = Neg(a) }", "z = Neg(a) [picked] y = Neg(x) }").replace("z)", "z, float[2, 3] y)")
    proto, inputs = proto_of(text), {"x": numbers(2, 3)}
    cursor = Cursor(SingleRun(kvviz.load(proto), made(inputs)))
    cursor.choose("picked")
    cursor.resume()
    return cursor.trace, proto, inputs


RUNS: dict[str, Any] = {
    "run_first": lambda: of_text(TWO, donate=["x"]),
    "run_first in a body": lambda: of_text(CASES["a branch borrows it from a later reader"].text),
    "run_first under rten": lambda: of_text(TWO, "rten", donate=["x"]),
    "run_first under an own policy": lambda: of_text(TWO, dataclasses.replace(kvviz.policies.rten, name="mine")),
    "run_first and outputs": lambda: of_text(TWO.replace("Neg(a) }", "Neg(a) w = Exp(a) }"), outputs=["t", "z"]),
    "run_first in a picked order": picked,
    "donate": lambda: of_text(CASES["the caller owns it"].text, inputs=CASES["the caller owns it"].inputs),
    "by_value": lambda: of_text(CASES["a branch borrows it from a later reader"].cure, LENDS),
    "reserve": lambda: of_text(CASES["no room is reserved"].text, inputs=CASES["no room is reserved"].inputs),
    "drop": lambda: of_text(CASES["the caller takes it"].text),
    "swap": lambda: of_text(SUM, "rten"),
    "fix_dims": free_dimensions,
    "policy": lambda: of_text(TWO, "never"),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_code_of_a_fix_of_a_run_does_what_the_fix_does(name: str) -> None:
    trace, proto, inputs = RUNS[name]()
    fixes = {fix.code: fix for _, _, fix in offered(trace)}
    kind = name.partition(" ")[0]
    assert any(change_kind == kind for fix in fixes.values() for change_kind in kinds_of(fix))
    for fix in fixes.values():
        assert 1 <= len(fix.code.splitlines()) <= 4
        assert did(executed(trace, fix.code, proto, inputs=made(inputs))) == did(fix.apply()), fix.code


def kinds_of(fix: Fix) -> set[str]:
    return {KINDS[type(change)] for change in fix.changes}


@pytest.mark.parametrize(("form", "options", "kind"), [
    ("concat", {}, "capacity"),
    ("merged", {"kv_capacity": 12}, "grow_after"),
    ("concat", {"policy": "never"}, "policy"),
    ("concat", {"policy": "rten", "growth": "start"}, "capacity"),
])  # fmt: skip
def test_the_code_of_a_fix_of_a_decode_does_what_the_fix_does(form: str, options: Any, kind: str) -> None:
    graph = kvviz.load(small(form).proto)
    trace = kvviz.decode(graph, [1, 5, 9], 3, progress=False, **options)
    found = {fix.code: fix for entry in explain(trace).missed if (fix := entry.fix) is not None}
    found |= {one.fix.code: one.fix for one in explain(trace).caches if one.fix is not None}
    fixes = [fix for fix in found.values() if kind in kinds_of(fix) and "trace = " in fix.code]
    assert fixes
    names = {"kvviz": kvviz, "graph": graph, "prompt": [1, 5, 9], "trace": trace}
    exec(fixes[0].code, names)
    again: Any = names["trace"]
    assert did(again) == did(fixes[0].apply()) and again.tokens == trace.tokens


def test_every_kind_of_fix_has_its_code_executed() -> None:
    # Another order in the tests of a lower peak.
    tried = {name.partition(" ")[0] for name in RUNS} | {"capacity", "grow_after", "reorder"}
    assert tried == set(KINDS.values())


@pytest.mark.parametrize("policy", ["ideal", "never", "rten", "onnxruntime"])
def test_the_code_of_the_fixes_of_random_graphs_does_what_they_do(policy: str) -> None:
    tried = 0
    for seed in range(40):
        proto, inputs, donate = nested(seed)
        trace = kvviz.run(kvviz.load(proto), made(inputs), donate=donate, policy=policy)
        for fix in {fix.code: fix for _, _, fix in offered(trace)}.values():
            assert did(executed(trace, fix.code, proto, inputs=made(inputs))) == did(fix.apply()), (seed, fix.code)
            tried += 1
    assert tried > 0
