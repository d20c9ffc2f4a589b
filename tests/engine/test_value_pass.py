"""Values in a recording: as onnxruntime computes them, live as loaded, and gone with the steps that made them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz import Trace
from kvviz.caches.cache_heat import attention
from kvviz.decode.token_loop import DecodeSession
from kvviz.trace.values_view import Values
from kvviz.trace.writer import Writer
from tests.engine.graphs import graph_of
from tests.ort_session import session_of
from tests.outside.told import loaded
from tests.test_models import ROOT, VAD, single_runs
from tests.test_models import graph_of as graph_of_model

STORY = "storyteller/concat"
ALL = 10**9


def story(count: int = 4, **options: Any) -> Trace:
    return kvviz.decode(graph_of_model(STORY), [1, 5, 9, 13], count, progress=False, **options)


def values_of(trace: Trace) -> Values:
    assert trace.values is not None
    return trace.values


def every_value(path: Path) -> onnx.ModelProto:
    """A model all of whose inner values are outputs."""
    model = onnx.load(path)
    there = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in there]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return model


@pytest.mark.parametrize("name", ["o01_optimum_llama", STORY, "storyteller/attention_23", "storyteller/gqa"])
def test_inner_values_have_the_numbers_that_onnxruntime_computes(name: str) -> None:
    inputs, _ = single_runs(name)[1]
    session = session_of(every_value(ROOT / name / "model.onnx"))
    names = [output.name for output in session.get_outputs()]
    want = dict(zip(names, session.run(None, inputs), strict=True))
    trace = kvviz.run(graph_of_model(name), inputs)
    compared = 0
    for found in trace.summarise(ALL) or ():
        if found.step is None or found.name not in want or not np.issubdtype(want[found.name].dtype, np.number):
            continue
        array = want[found.name].astype(np.float64)
        finite = array[np.isfinite(array)]
        compared += 1
        assert found.numbers.nan == np.isnan(array).sum(), found.name
        assert found.numbers.above + found.numbers.below == np.isinf(array).sum(), found.name
        if finite.size:
            have = np.array(found.numbers[:3])
            np.testing.assert_allclose(have, [finite.min(), finite.max(), finite.mean()], rtol=2e-3, atol=2e-4)
            assert found.histogram is not None and found.histogram.sum() == finite.size
    # constants are folded here, and are values there
    assert compared > 0.8 * len(trace.steps)


def test_what_attention_weighed_is_that_which_a_replay_computes() -> None:
    trace = story()
    trace.summarise(ALL)
    for run in range(len(trace.runs)):
        for number, cache in enumerate(trace.caches):
            have, want = values_of(trace).attention(number, run), attention(trace, cache, run)
            assert have is not None and want is not None
            assert not want[:, have.shape[1] :].any()
            np.testing.assert_allclose(have, want[:, : have.shape[1]], atol=1 / 65535)


ROOTS = (
    "g (float[3] x, float[3] b) => (float[3] y) { a = Mul(x, x) s = Add(a, b) r = Sqrt(s) l = Log(a) y = Add(r, l) }"
)
NAN = [
    ([1, 0, 2], [1, -1, 1], "first_nan", (2, "Sqrt", "r")),
    ([1, 0, 2], [1, 0, 1], "first_inf", (3, "Log", "l")),
    ([1, 2, 3], [np.nan, 1, 1], "first_nan", (None, "", "b")),
    ([1, 2, 3], [1, 1, 1], "first_nan", None),
    ([1, 2, 3], [1, 1, 1], "first_inf", None),
]


@pytest.mark.parametrize(("x", "b", "first", "wanted"), NAN)
def test_what_made_the_first_nan_or_infinity_is_named(x: list, b: list, first: str, wanted: tuple | None) -> None:
    values = kvviz.run(graph_of(ROOTS), {"x": np.array(x, np.float32), "b": np.array(b, np.float32)}).summarise(ALL)
    found = getattr(values, first)()
    assert (found and (found.step, found.op_type, found.value)) == wanted
    given = values.given(0, "x") if values else None
    assert given is not None and given.numbers[:2] == (min(x), max(x))


def test_a_trace_without_values_is_as_it_was() -> None:
    trace = story(2)
    assert trace.values is None and loaded(trace).values is None
    trace.summarise("10 kB")
    assert trace.values is not None
    assert trace.summarise(0) is None and trace.values is None


def test_of_runs_whose_steps_were_not_kept_there_are_no_values() -> None:
    trace = story(8, detail=[5])
    whole = story(8)
    values, every = trace.summarise(ALL), whole.summarise(ALL)
    assert values is not None and every is not None
    assert {found.run for found in values} == {0, 5}
    mine = [found for found in values if found.run == 5 and found.step is not None]
    want = [found for found in every if found.run == 5 and found.step is not None]
    assert [(one.name, one.numbers) for one in mine] == [(one.name, one.numbers) for one in want]


def test_of_a_run_that_goes_on_the_steps_so_far_are_told_and_values_go_with_their_steps() -> None:
    session = DecodeSession(graph_of_model(STORY), [1, 5, 9], max_new_tokens=4, detail=[0])
    session.next_run()
    session.finish_run()
    session.next_run()
    for _ in range(40):
        session.advance()
    before = len(session.trace.log)
    values = session.trace.summarise(ALL)
    assert values is not None and max(found.step or 0 for found in values) == before - 1
    session.advance()
    assert f"of {before:,} of {before + 1:,} steps" in repr(session.trace.values)
    session.finish_run()
    values = values_of(session.trace)
    assert {found.run for found in values} == {0}
    assert loaded(session.trace).values is not None
    assert values.attention(0, 0) is not None and values.attention(0, 1) is None


def test_what_is_random_cannot_be_told_and_it_says_so() -> None:
    text = "g (float[3] x) => (float[3] y) { a = Neg(x) r = RandomNormalLike(a) y = Add(a, r) }"
    trace = kvviz.run(graph_of(text), {"x": np.ones(3, np.float32)})
    values = trace.summarise(ALL)
    assert values is not None and [found.name for found in values] == ["x", "a"]
    assert "would draw other random numbers" in repr(values)
    assert "would draw other random numbers" in repr(loaded(trace).values)


def test_bodies_and_every_chunk_of_a_stream_have_their_values() -> None:
    name = "storyteller/merged_if"
    trace = kvviz.run(graph_of_model(name), single_runs(name)[0][0])
    trace.summarise(ALL)
    inner = [step for step in trace.steps if step.frame and step.decision.dispatch != "control"]
    assert inner and all(trace.values and trace.values.of(step.index) is not None for step in inner[:50])
    chunks = [{k: v for k, v in inputs.items() if k != "state"} for inputs, _ in single_runs(VAD)]
    trace = kvviz.stream(graph_of_model(VAD), chunks)
    values = trace.summarise(ALL)
    assert values is not None and len(values) > len(trace.steps) / 2
    assert {found.run for found in values} == set(range(len(trace.runs)))


def test_a_writer_that_has_the_arrays_gives_their_values() -> None:
    w = Writer("by hand", values="1 kB")
    a, b = w.value("a", (2, 3), "float32"), w.value("b", (2, 3), "bfloat16")
    w.op("A", [], [a], arrays=[np.arange(6, dtype=np.float32).reshape(2, 3)])
    w.op("B", [a], [b], arrays=[np.full((2, 3), np.nan, np.float32)])
    trace = w.finish([b])
    first = values_of(trace).of(0)
    assert first is not None and first.numbers == (0, 5, 2.5, 0, 0, 0)
    assert first.pictures[0].cells.tolist() == [[0, 50, 100], [150, 200, 250]]
    nan = values_of(trace).first_nan()
    assert nan is not None and nan.step == 1
    assert repr(loaded(trace).values) == repr(trace.values)
