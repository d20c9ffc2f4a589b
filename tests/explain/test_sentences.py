"""Sentences about real steps: one each, and what they claim can be looked up in the trace."""

import re
from pathlib import Path

import numpy as np
import pytest

import kvviz
from kvviz.explain.sentences import rule, sentence
from tests.engine.graphs import graph_of
from tests.graph.build import MODELS


@pytest.fixture(scope="module")
def roomy() -> kvviz.Trace:
    """A decode whose caches have room."""
    return kvviz.decode(kvviz.load(MODELS / "o05_dynamo_llama_op23" / "model.onnx"), [5, 17, 33], 3, kv_capacity=16)


@pytest.fixture(scope="module")
def tight() -> kvviz.Trace:
    """The same decode, its caches without room."""
    return kvviz.decode(kvviz.load(MODELS / "o05_dynamo_llama_op23" / "model.onnx"), [5, 17, 33], 3)


@pytest.fixture(scope="module")
def branches() -> kvviz.Trace:
    path: Path = MODELS / "storyteller" / "merged_if" / "model.onnx"
    return kvviz.decode(kvviz.load(path), [1, 5, 9], 2)


def test_every_step_has_one_sentence_that_begins_with_its_op(roomy: kvviz.Trace, branches: kvviz.Trace) -> None:
    for trace in (roomy, branches):
        for step in trace.steps:
            text = sentence(step, trace)
            assert text.startswith(f"{step.op_type} ") and text.endswith(".")
            assert "\n" not in text and len(text) < 400
            assert rule(step)
            # every buffer that it names is one of the step
            assert set(re.findall(r"\b(B\d+)(?:\.\d+)?\b", text)) <= {f"B{o.storage}" for o in step.outs}


def test_a_cache_with_room_grows_by_one_row_a_token_and_copies_nothing(roomy: kvviz.Trace) -> None:
    last = roomy.runs[-1]
    grown = [s for s in roomy.steps[last.first : last.last] if any(o.how == "append" for o in s.outs)]
    assert len(grown) == len(roomy.caches)
    for step in grown:
        assert re.fullmatch(
            r"Concat appended 1 row to B\d+ in place; 0 of [\d,]+ B of past copied\.", sentence(step, roomy)
        )


def test_a_cache_without_room_is_copied_and_the_sentence_says_why(tight: kvviz.Trace) -> None:
    last = tight.runs[-1]
    presents = {cache.output for cache in tight.caches}
    steps = [s for s in tight.steps[last.first : last.last] if presents & set(s.outputs)]
    assert len(steps) == len(tight.caches)
    for step in steps:
        text = sentence(step, tight)
        past = next(name for name in step.inputs if "past" in name)
        assert f"to a new buffer B{step.outs[0].storage}" in text and f"cannot append to {past}" in text


def test_the_op_that_is_blamed_for_a_missed_chance_really_reads_the_input_later(roomy: kvviz.Trace) -> None:
    blamed = 0
    for step in roomy.steps:
        found = re.search(r"cannot overwrite (\S+): (\S+) \(step ([\d,]+)\) still reads it", sentence(step, roomy))
        if found:
            later = roomy.steps[int(found[3].replace(",", ""))]
            assert later.index > step.index and later.run == step.run
            assert later.node == found[2] and found[1] in later.inputs
            blamed += 1
    assert blamed > 5


def test_an_if_names_its_branch_and_how_values_came_in_and_alone_what_it_handed_out(
    roomy: kvviz.Trace, branches: kvviz.Trace
) -> None:
    told = [sentence(s, branches) for s in branches.steps if s.op_type == "If"]
    assert [text.split(";")[0] for text in told] == ["If took its else_branch", "If took its then_branch"]
    for text, frame in zip(told, [f for f in branches.frames if f.parent is not None]):
        hows = [b.how for b in frame.bindings]
        assert f"{hows.count('captured by reference')} values by reference" in text
    # a step alone is described with less but in the same words
    same = [sentence(s) == sentence(s, roomy) for s in roomy.steps]
    assert sum(same) > 0.8 * len(same)
    control = next(s for s in branches.steps if s.op_type == "If")
    assert sentence(control).startswith("If handed out B")


def test_a_loop_counts_its_turns() -> None:
    loaded = graph_of("""g (float[2] x, int64 trips) => (float[2] y) { y = Loop (trips, "", x) <body = b
        (int64 i, bool go, float[2] v) => (bool on, float[2] w) { on = Identity(go) w = Add(v, v) }> }""")
    for trips, words in ((3, "ran its body 3 times"), (1, "ran its body 1 time"), (0, "ran no body")):
        trace = kvviz.run(loaded, {"x": np.ones(2, np.float32), "trips": np.array(trips)})
        assert sentence(trace.steps[-1], trace).startswith(f"Loop {words}")


def test_a_borrowed_input_is_named_as_the_callers_and_donating_it_changes_the_sentence() -> None:
    loaded = graph_of("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    kept, given = (kvviz.run(loaded, {"x": np.ones(4, np.float32)}, donate=donate) for donate in ([], ["x"]))
    assert "belongs to the caller" in sentence(kept.steps[0], kept)
    assert rule(kept.steps[0]) == "refused: borrowed from the caller"
    assert sentence(given.steps[0], given).startswith("Relu overwrote x in place")
