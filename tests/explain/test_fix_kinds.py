"""Each kind of fix on a graph made for it: what it is called, what its code does, and what must not be offered.

What onnxruntime cannot compare before it runs, it can once the model says the lengths of free dimensions.
"""

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

import kvviz
from kvviz import Trace
from kvviz.debugger.cursor import Cursor
from kvviz.decode.run_sessions import SingleRun
from kvviz.explain.summary import Missed
from kvviz.fixes.changes import FixDims
from kvviz.fixes.fix import Fix, fixer
from kvviz.report.explain import explain
from tests.decode.small import HEADS, NAMES, SIZE, concat
from tests.engine.blocked import CASES, Case
from tests.engine.graphs import graph_of, numbers, ort_run, step_of
from tests.engine.random_graphs import Example, examples, feeds
from tests.explain.applying import offered, problems, runs_in_place, same_results, step_like
from tests.explain.nested_graphs import nested
from tests.explain.test_fixes import DECODERS, decoded
from tests.graph.build import MODELS, model, node

X = {"x": numbers(2, 3)}
CHAIN = """g (float[1, N, 2] past, float[1, 1, 2] new) => (float[1, M, 2] t) {
    p = Concat <axis = 1> (past, new) [target] t = Concat <axis = 1> (p, new) }"""
RIVALS = """g (float[1, N, 2] past, float[1, 1, 2] new) => (float[1, M, 2] p, float[1, M, 2] t) {
    p = Concat <axis = 1> (past, new) [target] t = Concat <axis = 1> (past, new) }"""

# Of the graphs with one reason against their target: the label of the fix, or None where nothing can be done.
LABELS: dict[str, str | None] = {
    "a later op reads it": "run Neg first",
    "the caller takes it": "drop output a",
    "its graph gives it out": None,
    "the caller owns it": "donate x",
    "it is a weight": None,
    "a branch borrows it from a later reader": "run Neg first",
    "a branch borrows what the caller takes": "drop output a",
    "a function borrows it from a later reader": "run Neg first",
    "a view of it is still read": "run Neg first",
    "a view of it is still read, and something else as well": "run Neg first",
    "this op reads a view of it too": None,
    "this op reads it twice": None,
    "the output is larger": None,
    "the output has another type": None,
    "no room is reserved": "reserve 5 rows for past",
    "the reserved room is full": "reserve 5 rows for past",
    "the reserved room is on another axis": "reserve 5 rows for past",
    "the caller owns the reserved block": "donate past",
    "it is transposed": None,
    "the policy forbids it": 'policy="ideal"',
}


def made(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value() if callable(value) else value.copy() for name, value in inputs.items()}


def blocked(case: Case) -> Trace:
    return kvviz.run(graph_of(case.text, case.opset), made(case.inputs), **case.options)


def fix_of(trace: Trace, node: str = "target") -> Fix | None:
    """The fix of a node's first blocker, as the report gives it."""
    return next((entry.fix for entry in explain(trace).missed if entry.node == node), None)


def wanted(trace: Trace, node: str = "target") -> Fix:
    fix = fix_of(trace, node)
    assert fix is not None
    return fix


@pytest.mark.parametrize("name", CASES)
def test_the_fix_of_a_single_reason_takes_that_reason_away(name: str) -> None:
    case = CASES[name]
    trace = blocked(case)
    step = step_of(trace, "target")
    fixes = [fixer(trace, step.index, blocker) for blocker in step.decision.blockers if blocker.input == case.input]
    labels = {fix and fix.label for fix in fixes}
    assert labels == {LABELS[name]}
    for fix in filter(None, fixes):
        after = fix.apply()
        again = step_of(after, "target")
        assert again.decision.dispatch == "in_place" and case.input in again.decision.taken
        assert not again.decision.blockers and again.allocated == 0
        assert same_results(trace, after)


def test_what_a_moved_reader_needs_moves_with_it() -> None:
    text = """g (float[2, 3] x, float[2, 3] y) => (float[2, 3] t, float[2, 3] z) {
        a = Exp(x) [target] t = Relu(a) b = Exp(y) c = Neg(b) z = Add(a, c) }"""
    inputs = {**X, "y": numbers(2, 3)}
    trace = kvviz.run(graph_of(text), made(inputs))
    fix = wanted(trace)
    assert fix.code == "for at, i in enumerate([2, 3, 4], 1): model.graph.node.insert(at, model.graph.node.pop(i))"
    order = [step.op_type for step in fix.apply().steps]
    assert order == ["Exp", "Exp", "Neg", "Add", "Relu"]
    assert problems(trace) == []


def test_a_reader_that_loses_what_the_op_wins_is_named() -> None:
    text = "g (float[2, 3] x) => (float[2, 3] t, float[2, 3] z) { a = Exp(x) [target] t = Relu(a) [late] z = Neg(a) }"
    trace = kvviz.run(graph_of(text), made(X))
    fix = wanted(trace)
    assert step_of(trace, "late").decision.dispatch == "in_place"
    told = "at this step. In exchange Neg late spends 24 B more. Together the two save nothing."
    assert fix.sentence.endswith(told)
    assert fix.saves == 0 == trace.bytes_allocated - fix.apply().bytes_allocated
    assert step_of(fix.apply(), "late").decision.dispatch == "run"
    copies = text.replace("Neg(a)", "ReduceSum(a)").replace("float[2, 3] z", "float[1, 1] z")
    pays = wanted(kvviz.run(graph_of(copies), made(X)))
    assert pays.sentence.endswith("at this step.") and pays.saves == 24


def test_one_fix_takes_away_all_reasons_of_an_input() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] t, float[2, 3] x, float[6] z) <int64[1] flat = {-1}> {
        v = Reshape(x, flat) [target] t = Relu(x) z = Neg(v) w = Exp(x) }"""
    trace = kvviz.run(graph_of(text), made(X))
    step = step_of(trace, "target")
    codes = {str(blocker.code) for blocker in step.decision.blockers}
    assert codes == {"ALIASED", "BORROWED_INPUT", "REQUESTED_OUTPUT"}
    (fix,) = {fixer(trace, step.index, blocker) for blocker in step.decision.blockers}
    assert fix is not None and fix.label == "run Neg first and donate x and drop output x"
    assert runs_in_place(fix.apply(), step_like(trace, fix.apply(), step.index), 0)


def test_appends_that_build_on_each_other_get_room_for_all_and_one_that_comes_second_gets_none() -> None:
    inputs = {"past": numbers(1, 4, 2), "new": numbers(1, 1, 2)}
    fix = wanted(kvviz.run(graph_of(CHAIN), made(inputs)))
    assert fix.label == "reserve 6 rows for past and donate it"
    assert [step.decision.dispatch for step in fix.apply().steps] == ["in_place", "in_place"]
    trace = kvviz.run(graph_of(RIVALS), made(inputs))
    assert fix_of(trace) is None and problems(trace) == []


def test_two_inputs_in_one_block_are_donated_together() -> None:
    text = "g (float[3] x, float[3] y) => (float[3] s) { [early] e = Neg(y) [target] t = Relu(x) [last] s = Add(t, e) }"
    block = numbers(6)
    trace = kvviz.run(graph_of(text), {"x": block[:3], "y": block[3:]})
    fix = wanted(trace)
    assert fix.label == "donate x, y"
    assert step_of(fix.apply(), "target").decision.dispatch == "in_place"


def test_rten_is_helped_by_swapped_operands() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] z) {
        a = Exp(x) b = Neg(x) [target] t = Add(a, b) z = Sub(t, b) }"""
    trace = kvviz.run(graph_of(text), made(X), policy="rten")
    step = step_of(trace, "target")
    tried = {blocker.input: fixer(trace, step.index, blocker) for blocker in step.decision.blockers}
    fix = tried["a"]
    assert tried["b"] is None and fix is not None and (fix.kind, fix.label) == ("swap", "swap the operands")
    assert step_of(fix.apply(), "target").inputs == ("b", "a")
    assert step_of(fix.apply(), "target").decision.taken == ("a",)
    assert same_results(trace, fix.apply())


def test_an_order_that_a_person_picked_is_kept_by_the_fix() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] t, float[2, 3] z, float[2, 3] y) {
        a = Exp(x) [target] t = Relu(a) [late] z = Neg(a) [picked] y = Neg(x) }"""
    cursor = Cursor(SingleRun(graph_of(text), made(X)))
    cursor.choose("picked")
    cursor.resume()
    after = wanted(cursor.trace).apply()
    assert [step.node for step in after.steps] == ["picked", "a", "late", "target"]


def test_nothing_is_offered_before_a_run_is_over_and_the_stated_saving_is_that_of_the_step() -> None:
    session = SingleRun(graph_of(CASES["a later op reads it"].text), made(X))
    session.advance()
    session.advance()
    session.look_ahead()
    assert explain(session.trace).missed and fix_of(session.trace) is None
    session.run_to_end()
    assert fix_of(session.trace) is not None
    assert wanted(blocked(CASES["the caller owns it"])).sentence == (
        "Let the run overwrite the input x: then Relu target works in the memory of x, which saves 24 B at this step."
    )


def test_room_after_a_run_keeps_the_capacity_and_says_so() -> None:
    graph = kvviz.load(MODELS / "storyteller" / "merged_if" / "model.onnx")
    options: dict[str, Any] = {"max_new_tokens": 9, "progress": False}
    trace = kvviz.decode(graph, [1, 5, 9], kv_capacity=16, **options)
    fix = next(entry.fix for entry in explain(trace).missed if entry.fix and entry.fix.kind == "grow_after")
    after = fix.apply()
    # then caches are moved once, into blocks of the capacity; without it again and again
    without = kvviz.decode(graph, [1, 5, 9], growth="after", **options)
    moves = [sum(run.bytes_moved_outside > 0 for run in made.runs) for made in (after, without)]
    assert moves == [1, 2] and after.caches[0].runs[-1].capacity == 16
    assert after.bytes_copied == without.bytes_copied < trace.bytes_copied
    assert "kv_capacity=16 stays" in fix.sentence


@pytest.mark.parametrize("room", [0, 2])
@pytest.mark.parametrize("rows", [0, 4])
@pytest.mark.parametrize("donated", [False, True])
def test_no_capacity_is_offered_for_caches_that_the_caller_gave(
    donated: bool, rows: int, room: int, tmp_path: Any
) -> None:
    # given: a decode that begins with caches of the caller's, for which a capacity is not meant
    past = {name: np.ones((1, HEADS, rows, SIZE), np.float32) for name in NAMES}
    inputs = {name: kvviz.reserve(array, 2, rows + room) if room else array for name, array in past.items()}
    trace = kvviz.decode(kvviz.load(concat().proto), [3, 7], 4, inputs, donate=list(NAMES) * donated, progress=False)
    trace.save(tmp_path / "trace")
    # A loaded trace does not tell an empty cache of the caller's from one of the decode's own.
    for one in (trace, Trace.load(tmp_path / "trace") if rows else trace):
        kinds = {fix.kind for _, _, fix in offered(one)}
        # Into room that the caller's array has, a run may append once it is donated.
        assert kinds == {"grow_after", *(["donate"] if room and not donated else [])}
    assert problems(trace) == []


def test_fixes_of_two_runs_that_change_the_same_are_equal() -> None:
    names = ["a later op reads it", "a later op reads it", "the caller takes it"]
    first, again, other = (wanted(blocked(CASES[name])) for name in names)
    assert first == again and len({first, again}) == 1
    assert first != other


def test_room_for_a_later_one_of_the_values_that_a_loop_carries_is_reserved_at_its_own_input() -> None:
    text = """g (float[2, 3] x, float[2, 3] past) => (float[2, 3] y, float[M, 3] t)
        <int64 n = {1}, bool go = {1}, float[1, 3] w = {1, 2, 3}> {
        y, t = Loop (n, go, x, past) <body = b (int64 i, bool c, float[2, 3] v, float[K, 3] p)
            => (bool d, float[2, 3] u, float[L, 3] q) {
            d = Identity(c) u = Neg(v) [target] q = Concat <axis = 0> (p, w) }> }"""
    trace = kvviz.run(graph_of(text), X | {"past": numbers(2, 3)}, donate=["x", "past"])
    assert wanted(trace).label == "reserve 3 rows for past" and problems(trace) == []


def speech() -> onnx.ModelProto:
    """A chain of ops over a batch and a length that nobody has named."""
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[3], pads=[1, 1]),
        node("Relu", "c", "r", name="relu"),
        node("Concat", "r r", "d", axis=1),
        node("Sigmoid", "d", "s", name="sigmoid"),
        node("Softmax", "s", "p", name="softmax", axis=-1),
        node("ReduceMean", "p", "y"),
    ]
    made: onnx.ModelProto = model(nodes, ["x float ? 2 ?"], ["y float 1 1 1"], w=np.ones((4, 2, 3), np.float32))
    return made


def run(proto: onnx.ModelProto, **options: Any) -> kvviz.Trace:
    x = np.arange(48, dtype=np.float32).reshape(2, 2, 12)
    return kvviz.run(kvviz.load(proto), {"x": x}, policy="onnxruntime", **options)


def freed(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model that says nothing of the lengths of its inputs, nor of any other value."""
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    for value in copy.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    copy.graph.ClearField("value_info")
    return copy


def dims_fixed(trace: kvviz.Trace) -> int:
    return sum(any(isinstance(c, FixDims) for c in fix.changes) for _, _, fix in offered(trace))


def test_one_fix_gives_all_ops_that_only_lack_numbers_their_input_and_onnxruntime_agrees_on_the_result() -> None:
    trace = run(speech())
    entries: tuple[Missed, ...] = kvviz.explain(trace).missed
    assert {entry.node for entry in entries} == {"relu", "sigmoid", "softmax"}
    fixes = {entry.fix.changes: entry.fix for entry in entries if entry.fix is not None}
    (fix,) = fixes.values()
    assert (fix.kind, fix.label) == ("fix_dims", "fix the free dimensions")
    assert fix.changes == (FixDims((("x", 0, 2), ("x", 2, 12))),)
    after = fix.apply()
    assert kvviz.explain(after).missed == () and same_results(trace, after)
    assert after.bytes_allocated < trace.bytes_allocated and after.peak_bytes < trace.peak_bytes
    assert problems(trace) == []
    # and its code does the same to the file
    changed = speech()
    exec(fix.code, {"model": changed})
    onnx.checker.check_model(changed, full_check=True)
    assert [dim.dim_value for dim in changed.graph.input[0].type.tensor_type.shape.dim] == [2, 2, 12]
    again = run(changed)
    assert kvviz.explain(again).missed == () and same_results(trace, again)
    x = np.arange(48, dtype=np.float32).reshape(2, 2, 12)
    np.testing.assert_allclose(again.outputs["y"], ort_run(changed, {"x": x})[0], atol=1e-5)


def test_a_length_that_differs_from_run_to_run_is_left_free() -> None:
    path = next(path for path in DECODERS if "storyteller" in str(path))
    trace = decoded(path, 3, policy="onnxruntime")
    for _, _, fix in offered(trace):
        dims = [dim for change in fix.changes if isinstance(change, FixDims) for dim in change.dims]
        assert not [axis for name, axis, _ in dims if name.startswith("past") and axis == 2]


@settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck))
@given(example=examples())
def test_every_fix_of_a_random_graph_without_lengths_works(example: Example) -> None:
    graph = kvviz.load(freed(example.model))
    trace = kvviz.run(graph, feeds(example), donate=example.donate, policy="onnxruntime")
    assert problems(trace) == []


def test_every_fix_of_bodies_inside_bodies_without_lengths_works_and_some_fix_dimensions() -> None:
    found = 0
    for seed in range(120):
        proto, inputs, donate = nested(seed)
        fresh = {name: array.copy() for name, array in inputs.items()}
        trace = kvviz.run(kvviz.load(freed(proto)), fresh, donate=donate, policy="onnxruntime")
        assert problems(trace) == [], f"seed {seed}"
        found += dims_fixed(trace)
    assert found >= 5
