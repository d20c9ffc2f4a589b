"""Public functions take the path of what they take, and say what is meant where they are given something else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.errors import InputError, LoadError
from tests.graph.build import MODELS

LLAMA = MODELS / "o01_optimum_llama" / "model.onnx"
PROMPT = [5, 17, 33]

OF_A_GRAPH: dict[str, Callable[[Any], Any]] = {
    "decode": lambda given: kvviz.decode(given, PROMPT, 2).tokens,
    "run": lambda given: kvviz.run(given, kvviz.inputs(kvviz.load(LLAMA))).outputs["logits"].tolist(),
    "inputs": lambda given: sorted(kvviz.inputs(given)),
    "compare": lambda given: kvviz.compare(given, policies=["ideal"], prompt=PROMPT, max_new_tokens=2).equal,
    "debug": lambda given: kvviz.debug(given, prompt=PROMPT, max_new_tokens=2).trace.prompt,
    "plan": lambda given: repr(kvviz.plan(given)),
    "lessons.recompute": lambda given: kvviz.lessons.recompute(given, PROMPT, 2).tokens,
    "lessons.changed_rows": lambda given: kvviz.lessons.changed_rows(given, PROMPT, PROMPT).tolist(),
    "lessons.serving.empty_rows": lambda given: sorted(kvviz.lessons.serving.empty_rows(given)),
    "lessons.serving.forward": lambda given: kvviz.lessons.serving.forward(given, [PROMPT]).next_tokens,
    "lessons.serving.tell": lambda given: kvviz.lessons.serving.tell(given, PROMPT, 2).tokens,
    "lessons.serving.speculate": lambda given: kvviz.lessons.serving.speculate(given, PROMPT, 2).tokens,
    "lessons.serving.PagedServer": lambda given: sorted(kvviz.lessons.serving.PagedServer(given, 4, 4).pool),
}
OF_A_TRACE: dict[str, Callable[[Any], Any]] = {
    "explain": lambda given: str(kvviz.explain(given)),
    "hazards": lambda given: [hazard.sentence for hazard in kvviz.hazards(given)],
    "cache_warnings": lambda given: [str(warning) for warning in kvviz.cache_warnings(given)],
    "plot.memory": lambda given: kvviz.plot.memory(given).get_ylabel(),
    "plot.cache": lambda given: kvviz.plot.cache(given).get_ylabel(),
    "plot.copies": lambda given: kvviz.plot.copies(given).get_ylabel(),
    "plot.lifetimes": lambda given: kvviz.plot.lifetimes(given).get_xlabel(),
    "Pair": lambda given: repr(kvviz.Pair(given, given)),
}


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    return kvviz.decode(kvviz.load(LLAMA), PROMPT, 2)


@pytest.fixture(scope="module")
def saved(trace: kvviz.Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "x.kvviz"
    trace.save(path)
    return path


@pytest.mark.parametrize("name", OF_A_GRAPH)
def test_what_takes_a_graph_takes_the_path_of_a_model(name: str) -> None:
    use = OF_A_GRAPH[name]
    assert use(LLAMA) == use(str(LLAMA)) == use(kvviz.load(LLAMA))


@pytest.mark.parametrize("name", sorted(OF_A_GRAPH.keys() - {"debug"}))
def test_what_takes_a_graph_says_so_of_a_trace_and_of_anything_else(name: str, trace: kvviz.Trace, saved: Path) -> None:
    for given in (trace, saved):
        with pytest.raises(InputError, match=f"kvviz.{name} takes a graph, and this is a trace"):
            OF_A_GRAPH[name](given)
    with pytest.raises(
        InputError, match=f"kvviz.{name} takes a graph or the path of a model, not an object of type int"
    ):
        OF_A_GRAPH[name](3)


@pytest.mark.parametrize("name", OF_A_TRACE)
def test_what_takes_a_trace_takes_the_path_of_a_saved_one(name: str, saved: Path) -> None:
    assert OF_A_TRACE[name](saved) == OF_A_TRACE[name](kvviz.Trace.load(saved))


@pytest.mark.parametrize("name", [*OF_A_TRACE, "fork"])
def test_what_takes_a_trace_says_what_to_run_for_a_model(name: str) -> None:
    use = OF_A_TRACE.get(name, lambda given: kvviz.fork(given, policy="rten"))
    for given in (LLAMA, kvviz.load(LLAMA)):
        with pytest.raises(
            InputError, match=rf"kvviz\.{name} takes a trace, and this is a model: run it with kvviz\.run"
        ):
            use(given)
    with pytest.raises(InputError, match="takes a trace or the path of a saved one, not None"):
        use(None)


def test_load_says_of_a_saved_trace_what_to_call_and_that_call_works_as_does_the_debugger(saved: Path) -> None:
    assert len(kvviz.debug(saved).trace.steps) == len(kvviz.Trace.load(saved).steps)
    with pytest.raises(LoadError, match="is a saved trace, not a model; open it with ") as caught:
        kvviz.load(saved)
    line = str(caught.value).rpartition("open it with ")[2]
    assert isinstance(eval(line, {"kvviz": kvviz}), kvviz.Trace)


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", '{"schema": 1}'), ("a.dot", "digraph G {}")])
def test_load_names_the_call_for_a_recording(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(LoadError, match=r"kvviz\.ggml\.load"):
        kvviz.load(tmp_path / name)


def test_a_token_outside_of_the_vocabulary_is_named_as_that() -> None:
    graph = kvviz.load(LLAMA)
    assert kvviz.decode(graph, [5, 159], 1).tokens
    for prompt in ([5, 160], [[5, 17], [160]], np.array([160])):
        with pytest.raises(
            InputError, match="the token 160 is outside of the model's vocabulary, which has 160 tokens"
        ):
            kvviz.decode(graph, prompt, 1)
