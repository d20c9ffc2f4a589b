"""What holds for every graph: no policy, order, donation or reservation changes a bit of a result."""

import random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvviz
from kvviz import Policy, Trace
from kvviz.debugger.cursor import Cursor
from kvviz.decode.run_sessions import SingleRun
from kvviz.memory.storage import Pool
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
