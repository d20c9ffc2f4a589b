"""What holds for every graph: no policy, order, donation or reservation changes a bit of a result."""

import io
import random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvviz
from kvviz import Policy, Trace
from kvviz.debugger.cursor import Cursor
from kvviz.decode.run_sessions import SingleRun
from kvviz.memory.storage import Pool
from kvviz.trace.records import Step
from tests.engine.graphs import ort_run
from tests.engine.random_graphs import Example, examples

many = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
pooled = Policy("pooled", pool=Pool)


def feeds(example: Example) -> dict[str, np.ndarray]:
    """Arrays for one run: the donated ones its own, with room where asked for, the borrowed ones read-only."""
    given = {name: array.copy() for name, array in example.inputs.items()}
    for name in example.grow:
        given[name] = kvviz.reserve(given[name], 0, len(given[name]) + 7)
    for name, array in given.items():
        array.flags.writeable = name in example.donate
    return given


def assert_same_bits(first: Trace, second: Trace) -> None:
    assert first.outputs.keys() == second.outputs.keys()
    for name, output in first.outputs.items():
        other = second.outputs[name]
        assert (output.dtype, output.shape) == (other.dtype, other.shape)
        assert output.tobytes() == other.tobytes(), f"{name} differs"


def assert_books_balance(trace: Trace) -> None:
    """Live bytes, peak and lives of storages agree, and nothing lives on in a storage that is free."""
    storages = trace.storages
    for step in trace.steps:
        alive = [s for s in storages if s.born <= step.index and (s.freed is None or s.freed >= step.index)]
        assert step.live_bytes == sum(s.capacity for s in alive)
        for out in step.outs:
            freed = storages[out.storage].freed
            assert storages[out.storage].born <= step.index and (freed is None or freed >= step.index)
            assert 0 <= out.offset <= out.offset + (out.strides is None) * out.nbytes <= storages[out.storage].capacity
    if len(trace.steps):
        assert trace.peak_bytes == max(step.live_bytes for step in trace.steps)
    made = sum(s.capacity for s in storages if s.origin == "run")
    assert trace.bytes_allocated == made == sum(step.allocated for step in trace.steps)
    assert trace.bytes_written == sum(step.written for step in trace.steps)
    assert trace.bytes_copied == sum(step.copied for step in trace.steps) <= trace.bytes_written


def assert_decisions_are_whole(step: Step) -> None:
    """In place and blocked are told apart, and what was taken is where the output is."""
    decision = step.decision
    assert (decision.dispatch == "in_place") == bool(decision.taken)
    assert all(blocker.input not in decision.taken for blocker in decision.blockers)
    if decision.dispatch == "in_place":
        assert set(decision.taken) <= set((decision.shares or {}).values()) and step.allocated == 0
    elif step.allocated and step.op_type not in ("If", "Loop"):
        assert decision.blockers


@many
@given(example=examples())
def test_running_in_place_changes_no_bit_and_no_borrowed_array(example: Example) -> None:
    graph = kvviz.load(example.model)
    given = feeds(example)
    ideal = kvviz.run(graph, given, donate=example.donate, poison=True)
    never = kvviz.run(graph, example.inputs, policy="never", poison=True)
    assert_same_bits(ideal, never)
    for name, array in example.inputs.items():
        if name not in example.donate:
            assert given[name].tobytes() == array.tobytes()


@many
@given(example=examples())
def test_results_are_those_of_onnxruntime(example: Example) -> None:
    trace = kvviz.run(kvviz.load(example.model), feeds(example), donate=example.donate, poison=True)
    for have, want in zip(trace.outputs.values(), ort_run(example.model, example.inputs), strict=True):
        assert (have.dtype, have.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


@many
@given(example=examples(), policy=st.sampled_from(["ideal", "never"]))
def test_the_books_balance(example: Example, policy: str) -> None:
    trace = kvviz.run(kvviz.load(example.model), feeds(example), donate=example.donate, policy=policy, poison=True)
    assert_books_balance(trace)
    for step in trace.steps:
        assert_decisions_are_whole(step)


@many
@given(example=examples())
def test_a_pool_changes_no_bit_and_allocates_no_more(example: Example) -> None:
    graph = kvviz.load(example.model)
    plain = kvviz.run(graph, feeds(example), donate=example.donate)
    reused = kvviz.run(graph, feeds(example), donate=example.donate, policy=pooled, poison=True)
    assert_same_bits(plain, reused)
    assert reused.bytes_allocated <= plain.bytes_allocated
    assert reused.bytes_written == plain.bytes_written
    assert reused.peak_bytes == max(step.live_bytes for step in reused.steps)


@many
@given(example=examples(), seed=st.integers(0, 10**6))
def test_any_order_of_the_frontier_gives_the_same_bits(example: Example, seed: int) -> None:
    graph = kvviz.load(example.model)
    cursor = Cursor(SingleRun(graph, feeds(example), donate=example.donate, poison=True))
    draw = random.Random(seed)
    for _ in range(1000):
        if frontier := cursor.frontier():
            cursor.choose(draw.choice(frontier))
        elif cursor.next().reason == "end":
            break
    assert_same_bits(cursor.trace, kvviz.run(graph, example.inputs, policy="never"))
    assert_books_balance(cursor.trace)


@many
@given(example=examples())
def test_a_trace_says_the_same_after_saving_and_loading(example: Example) -> None:
    trace = kvviz.run(kvviz.load(example.model), feeds(example), donate=example.donate)
    file = io.BytesIO()
    trace.save(file)
    loaded = Trace.load(file)
    for first, second in zip(trace.steps, loaded.steps, strict=True):
        assert (first.node, first.frame, first.decision, first.outs) == (
            second.node,
            second.frame,
            second.decision,
            second.outs,
        )
    assert trace.storages == loaded.storages


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(example=examples())
def test_replayed_values_are_those_that_were_computed(example: Example) -> None:
    graph = kvviz.load(example.model)
    trace = kvviz.run(graph, feeds(example), donate=example.donate, poison=True)
    main = [name for node in graph.nodes for name in node.outputs if name and not node.subgraphs]
    truth = kvviz.run(graph, example.inputs, outputs=main or None, policy="never").outputs
    read = {name for node in trace.frames[0].order for name in (*node.inputs, *node.captures)} | set(trace.outputs)
    for step in trace.steps:
        for out in step.outs:
            # An output that nobody reads (of a Split, say) is gone at once.
            if not step.frame and out.name in truth and out.name in read:
                np.testing.assert_array_equal(trace.value(out.name, step.index), truth[out.name])
