"""What nobody holds is freed at once, and a trace of many runs stays small."""

import gc
import resource
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.collector import unwatched
from kvviz.report.explain import explain
from tests.engine.graphs import graph_of
from tests.graph.build import MODELS, model, node
from tests.outside import told

PROMPT = [1, 2, 3]


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    """Only counts of references free anything here."""
    gc.disable()
    yield
    gc.enable()


def decoded(policy: str = "ideal", path: Path = MODELS / "storyteller" / "concat" / "model.onnx") -> Trace:
    return kvviz.decode(kvviz.load(path), PROMPT, 2, policy=policy, progress=False)


def apply_fixes(trace: Trace) -> None:
    fixes = {type(entry.fix.changes[0]): entry.fix for entry in explain(trace).missed if entry.fix}
    assert [fix.apply().tokens for fix in fixes.values()]


READERS: dict[str, Callable[[Trace], Any]] = {
    **{name: tell for name, tell in {**told.READERS, **told.PICTURES}.items() if name != "plots"},
    "fixes": apply_fixes,
    "value": lambda trace: trace.value(trace.steps[5].outs[0].name, 5),
    "compare": lambda trace: repr(kvviz.compare(trace.graph, prompt=PROMPT, max_new_tokens=2)),
}


def assert_freed(*refs: weakref.ref) -> None:
    assert [ref() for ref in refs] == [None] * len(refs)


@pytest.mark.parametrize("reader", READERS)
def test_a_trace_and_its_graph_are_freed_when_the_last_name_goes(reader: str) -> None:
    trace = decoded()
    READERS[reader](trace)
    refs = weakref.ref(trace), weakref.ref(trace.graph)
    del trace
    assert_freed(*refs)


@pytest.mark.parametrize("policy", ["never", "rten", "onnxruntime"])
@pytest.mark.parametrize("name", ["concat", "merged_if"])
def test_under_every_policy_and_from_a_file(policy: str, name: str) -> None:
    trace = decoded(policy, MODELS / "storyteller" / name / "model.onnx")
    again = told.loaded(trace)
    repr(explain(trace))
    repr(explain(again))
    refs = [weakref.ref(one) for one in (trace, trace.graph, again, again.graph)]
    del trace, again
    assert_freed(*refs)


def test_three_hundred_times_load_run_explain_and_drop_take_no_more_memory_than_ten() -> None:
    weight = np.ones((512, 512), np.float32)
    proto = model([node("MatMul", "x w", "y"), node("Relu", "y", "z")], ["x float 1 512"], ["z float 1 512"], w=weight)
    data, x = proto.SerializeToString(), np.ones((1, 512), np.float32)

    def once() -> None:
        repr(explain(kvviz.run(kvviz.load(data), {"x": x})))

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 if sys.platform == "darwin" else 1024)

    for _ in range(10):
        once()
    before = peak()
    for _ in range(290):
        once()
    # In MB; the weights alone are 300.
    assert peak() - before < 30


@pytest.mark.parametrize("policy", ["onnxruntime", "rten"])
def test_a_graph_that_was_changed_for_a_run_is_freed_with_the_one_it_was_made_from(policy: str) -> None:
    # given: a Cast that onnxruntime rewires, and an inner value that rten is given
    graph = graph_of("""g (int64[3] x) => (int64[3] y, int64[3] z) {
        a = Cast <to = 7> (x) y = Neg(a) b = Cast <to = 7> (a) z = Neg(b) }""")
    trace = kvviz.run(graph, {"x" if policy == "onnxruntime" else "a": np.arange(3)}, policy=policy)
    assert trace.graph is not graph
    refs = [weakref.ref(it) for it in (trace, trace.graph, graph)]
    del trace, graph
    assert_freed(*refs)


def thrice() -> Trace:
    """Three runs, of which the first two are alike."""
    graph = graph_of("""chain (float[n, 3] x) => (float[n, 3] y, float[m, n] z) <float[3] bias = {1, 2, 3}> {
        shifted = Add(x, bias) scaled = Mul(shifted, shifted) z = Transpose(shifted) y = Neg(scaled) }""")
    return kvviz.stream(graph, [{"x": np.ones((length, 3), np.float32)} for length in (2, 2, 5)])


def test_steps_that_do_what_they_did_before_share_their_records() -> None:
    trace = thrice()
    rows = [trace.log[run.first : run.last] for run in trace.runs]
    for old, new in zip(rows[0], rows[1], strict=True):
        # Refusals, the shape, and the strides of a view.
        assert old.masks is new.masks
        (before,), (after,) = old.outs, new.outs
        assert before is not None and after is not None
        assert before.shape is after.shape and before.strides is after.strides
    assert any(row.masks for row in rows[1]), "some op was refused to run in place"
    assert any(out is not None and out.strides for row in rows[1] for out in row.outs), "some output is a view"


def test_what_a_step_writes_down_is_nothing_for_the_collector_to_walk() -> None:
    chain = " ".join(f"v{i + 1} = Exp(v{i})" for i in range(1000))
    graph = graph_of(f"g (float[4] v0) => (float[4] v1000) {{ {chain} }}")
    x = {"v0": np.ones(4, np.float32)}
    kvviz.run(graph, x, policy="never")
    gc.collect()
    before = len(gc.get_objects())
    trace = kvviz.run(graph, x, policy="never")
    trace.log.settle()
    gc.collect()
    assert len(trace.log) == 1000
    assert len(gc.get_objects()) - before < 200


def test_a_run_leaves_frozen_what_somebody_has_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        thrice()
        assert gc.get_freeze_count() > frozen // 2 > 0
    finally:
        gc.unfreeze()


def test_runs_in_two_threads_leave_the_collector_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.enable()
    first, second, asked = unwatched(), unwatched(), gc.isenabled

    def ends_meanwhile() -> bool:
        enabled = asked()
        first.__exit__()
        return enabled

    first.__enter__()
    monkeypatch.setattr(gc, "isenabled", ends_meanwhile)
    second.__enter__()
    second.__exit__()
    assert asked()
