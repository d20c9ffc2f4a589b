"""Which bytes each op of a run writes, by the log, against the bytes that really change under it."""

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import string_at
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as given_that
from hypothesis import settings
from hypothesis import strategies as st

import kvviz
from kvviz.engine.execution import Execution
from kvviz.engine.sessions.io_binding import bind
from kvviz.memory.storage import address
from kvviz.trace.index.accesses import accesses_of
from kvviz.trace.index.value_index import index_of
from tests.debugger.cursors import graph
from tests.engine.cache_graphs import cache_example, given
from tests.engine.graphs import graph_of, numbers
from tests.engine.test_damaged_traces import fails, with_header
from tests.trace.test_regions import bytes_of

Changes = list[dict[int, set[int]]]


@contextmanager
def watched() -> Iterator[Changes]:
    """For each op that is run: by storage, the bytes that changed in what was there before."""
    found: Changes = []
    execute = Execution.execute

    def looked_at(execution: Any, frame: Any, planned: Any) -> None:
        storages = [s for s in execution.ledger.storages if s is not None and isinstance(s.root, np.ndarray)]
        before = [(s.id, s.root, string_at(address(s.root), s.root.nbytes)) for s in storages]
        execute(execution, frame, planned)
        after = [(id, old, string_at(address(root), root.nbytes)) for id, root, old in before]
        found.append({id: {i for i, (a, b) in enumerate(zip(old, new)) if a != b} for id, old, new in after})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Execution, "execute", looked_at)
        yield found


def written(trace: kvviz.Trace, step: int) -> dict[int, set[int]]:
    """By storage, the bytes that the log says that a step wrote."""
    found: dict[int, set[int]] = {}
    for access in accesses_of(index_of(trace), step):
        if access.writes:
            dtype = np.dtype(access.region.dtype)
            found.setdefault(access.storage, set()).update(bytes_of(access.region, (1, dtype.itemsize)))
    return found


@settings(max_examples=150)
@given_that(seed=st.integers(0, 1 << 20), length=st.integers(1, 12))
def test_every_byte_that_an_op_changes_is_one_that_it_wrote_by_the_log(seed: int, length: int) -> None:
    example = cache_example(seed, length)
    with watched() as changes:
        trace = kvviz.run(kvviz.load(example.model), given(example).feeds, donate=example.donate)
    ops = [step.index for step in trace.steps if not trace.log[step.index].op.control]
    assert len(ops) == len(changes)
    for step, changed in zip(ops, changes):
        told = written(trace, step)
        for storage, there in changed.items():
            assert there <= told.get(storage, set()), (trace.steps[step].op_type, storage)


def test_hazards_compare_rows_and_coarser_levels_do_not() -> None:
    # given: an op that overwrites row 1 of a cache, and one that reads rows 2 and 3 after it
    text = """g (float[1, 8, 4] past, float[1, 1, 4] new, int64[1] at) => (float[1, 8, 4] present, float[1, 2, 4] y)
        <int64[1] a = {2}, int64[1] z = {4}, int64[1] along = {1}> {
            present = TensorScatter (past, new, at) part = Slice (past, a, z, along) y = Neg (part) }"""
    feeds = {"past": numbers(1, 8, 4), "new": numbers(1, 1, 4), "at": np.array([1])}
    policy = bind(kvviz.policies.ideal, {"present": "past"})
    for row, broken in ((1, False), (2, True), (3, True), (4, False)):
        own = {**feeds, "past": feeds["past"].copy(), "at": np.array([row])}
        trace = kvviz.run(graph_of(text, 24), own, donate=["past"], policy=policy)
        assert trace.steps[0].decision.dispatch == "in_place"
        found = [(h.kind, h.bytes, h.broken) for h in kvviz.hazards(trace)]
        assert found == ([("WAR", 16, True)] if broken else [])
        assert [h.broken for h in kvviz.hazards(trace, "root")] == [True]
        # then the result is wrong where the log says so, and only there
        assert np.array_equal(trace.outputs["y"], -feeds["past"][:, 2:4]) == (not broken)


WRONG = [
    *(("written", 0, field, value) for field, value in ((0, 1), (1, 1), (3, 1), (2, 1 << 60), (4, [1.5]))),
    *(("kinds", 0, field, value) for field, value in ((0, [1, 1]), (0, [1, 3, -1, 4]), (2, "float31"))),
]


@pytest.mark.parametrize(("table", "row", "field", "value"), WRONG)
def test_a_file_holds_the_rows_and_ones_that_make_no_sense_are_refused(
    table: str, row: int, field: int, value: Any, tmp_path: Path
) -> None:
    text = """g (float[2, 3, 8, 4] past, float[2, 3, 2, 4] new, int64[2] at) => (float[2, 3, 8, 4] present)
        { present = TensorScatter <mode = "circular"> (past, new, at) }"""
    feeds = {"past": numbers(2, 3, 8, 4), "new": numbers(2, 3, 2, 4), "at": np.array([7, 2])}
    trace = kvviz.run(graph_of(text, 24), feeds, donate=["past"])
    trace.save(tmp_path / "x")
    assert written(kvviz.Trace.load(tmp_path / "x"), 0) == written(trace, 0)
    assert sum(map(len, written(trace, 0).values())) == 2 * 3 * 2 * 16
    data = (tmp_path / "x").read_bytes()
    fails(with_header(data, ("declared", table, row, field), value), tmp_path / "y")


FORMS = [("tensor_scatter", {}), ("static_scatter_nd", {}), ("gqa", {"cache": "shared"})]


@pytest.mark.parametrize(("form", "options"), FORMS)
def test_a_decode_writes_one_row_a_token_into_each_cache(form: str, options: dict[str, Any]) -> None:
    trace = kvviz.decode(graph(form), [1, 2, 3], 3, progress=False, **options)
    for cache in trace.caches:
        # The first run of a cache that lies turned in its block makes a block of its own.
        for run in trace.runs[1:]:
            frame = next(frame for frame in trace.frames if frame.run == run.index)
            past = next(bound for bound in frame.bindings if bound.name == cache.input)
            steps = range(run.first, run.last)
            places = set().union(*(written(trace, step).get(past.storage, set()) for step in steps))
            assert past.shape is not None and cache.axis is not None
            assert len(places) == past.nbytes // past.shape[cache.axis]


def test_steps_that_are_forgotten_take_their_rows_with_them() -> None:
    trace = kvviz.decode(graph("tensor_scatter"), [1, 2, 3], 6, progress=False, detail={1, 4})
    # The first run is kept, too.
    assert [run.last > run.first for run in trace.runs] == [True, True, False, False, True, False]
    ops = [trace.steps[step].op_type for step in trace.log.declared.written]
    assert ops == ["TensorScatter"] * 3 * len(trace.caches)
