"""Hazards at three precisions, and the ordered ones, against brute force and by hand."""

import pytest
from hypothesis import given, settings

import kvviz
from kvviz.errors import InputError
from kvviz.trace.schema.regions import LEVELS, Level
from kvviz.trace.writer import Writer
from tests.engine.graphs import numbers, run
from tests.engine.random_graphs import Example, examples
from tests.explain.recorded_by_hand import recordings
from tests.outside import pairs


@settings(max_examples=200)
@given(trace=recordings())
def test_hazards_of_any_recording_are_those_that_trying_every_pair_finds(trace: kvviz.Trace) -> None:
    for level in LEVELS:
        for ordered in (False, True):
            assert pairs.told(kvviz.hazards(trace, level, ordered)) == pairs.expected(trace, {}, level, ordered)


@settings(max_examples=60)
@given(example=examples())
def test_hazards_of_a_run_are_those_that_trying_every_pair_finds(example: Example) -> None:
    feeds = {name: array.copy() for name, array in example.inputs.items()}
    trace = kvviz.run(kvviz.load(example.model), feeds, donate=example.donate)
    for level in LEVELS:
        for ordered in (False, True):
            want = pairs.expected(trace, feeds, level, ordered)
            assert want is None or pairs.told(kvviz.hazards(trace, level, ordered)) == want


def _kinds(trace: kvviz.Trace, level: Level = "exact", ordered: bool = False) -> list[tuple]:
    found = kvviz.hazards(trace, level, ordered)
    return [(h.kind, h.first, h.second, h.root, h.bytes, h.ordered, h.broken) for h in found]


def _cache(order: str) -> Writer:
    """Three rows of a cache of eight, q8_0: one op writes rows 5 and 0, others read rows of it, in an order."""
    w = Writer("rows")
    cache = w.value("cache", (8, 64), "q8_0", w.storage(8 * 68, origin="donated"))
    w.bind(cache, "donated")
    new = w.value("new", (2, 64), "float32")
    w.op("NEW", [], [new])
    after = w.value("cache (rows)", (8, 64), "q8_0", w.storage_of(cache))
    head = w.value("cache (view)", (2, 64), "q8_0", w.storage_of(cache), offset=68)
    for letter in order:
        if letter == "w":
            w.op("SET_ROWS", [new, cache], [after], reads=[new], writes=[after], rows={after: [5, 0]})
        elif letter == "a":
            w.op("MUL", [cache], [w.value("all", (8, 8), "float32")])
        else:
            w.op("MUL", [cache], [w.value("head", (8, 2), "float32")], reads=[head])
    return w


def test_a_reader_of_rows_that_were_written_reads_these_and_one_of_other_rows_does_not() -> None:
    trace = _cache("wa").finish()
    assert _kinds(trace) == [("RAW", 1, 2, "cache", 2 * 68, False, False)]
    assert kvviz.hazards(trace)[0].sentence.endswith("only the schedule runs SET_ROWS cache (rows) first")
    with pytest.raises(InputError, match="no level 'bytes'; choose one of root, range, exact"):
        kvviz.hazards(trace, "bytes")  # type: ignore[arg-type]
    # Rows 1 and 2 lie between rows 0 and 5.
    assert _kinds(_cache("wv").finish()) == []
    assert _kinds(_cache("wv").finish(), "range") == [("RAW", 1, 2, "cache", 2 * 68, False, False)]
    assert _kinds(_cache("wv").finish(), "root") == [("RAW", 1, 2, "cache", 8 * 68, False, False)]


def test_an_append_to_a_block_of_the_caller_rivals_who_reads_the_block_later() -> None:
    # given: the first op that touches the block appends to it, and another reads what was there before
    block = kvviz.reserve(numbers(2, 3), 0, 4)
    text = """g (float[2, 3] x) => (float[3, 3] y, float[3, 3] z) <float[1, 3] w = {1, 2, 3}> {
        y = Concat <axis = 0> (x, w) z = Concat <axis = 0> (x, w) }"""
    trace = run(text, {"x": block}, donate=["x"])
    assert [step.outs[0].how for step in trace.steps] == ["append", "new"]
    # then their bytes differ, and a coarse look takes them for the same
    assert kvviz.hazards(trace) == ()
    (hazard,) = kvviz.hazards(trace, "root")
    assert (hazard.kind, hazard.first, hazard.second, hazard.value, hazard.broken) == ("WAR", 0, 1, "x", True)
