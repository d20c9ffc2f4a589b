"""What holds for every graph: no policy, order, donation or reservation changes a bit of a result."""

import numpy as np
from hypothesis import HealthCheck, given, settings

import kvviz
from kvviz import Policy, Trace
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
