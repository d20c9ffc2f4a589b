"""What dry traces look like: nothing that was not computed is shown, and every face says what they are."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import validate

import kvviz
from kvviz import Trace
from kvviz.errors import InputError, KvvizError, ReplayError
from kvviz.report.faces.report_schema import REPORT_SCHEMA
from tests.graph.build import MODELS
from tests.outside.told import loaded

STORY = MODELS / "storyteller" / "concat" / "model.onnx"


@pytest.fixture(scope="module")
def dry() -> Trace:
    return kvviz.dry(STORY, prompt_tokens=4, max_new_tokens=3)


@pytest.fixture(scope="module")
def real() -> Trace:
    return kvviz.decode(kvviz.load(STORY), [5, 17, 33, 4], 3, progress=False)


@pytest.mark.parametrize("name", ["outputs", "tokens", "batch_tokens", "logits"])
def test_results_of_a_dry_trace_are_not_recorded_however_it_was_kept(dry: Trace, name: str) -> None:
    for trace in (dry, loaded(dry), pickle.loads(pickle.dumps(dry))):
        with pytest.raises(ReplayError, match=f"{name} were not recorded: a dry run works out layouts and no numbers"):
            getattr(trace, name)
        assert trace.words is None and trace.dry


def test_a_pickled_dry_trace_holds_no_bytes_of_ghosts() -> None:
    graph = kvviz.shapes.llama(layers=1, hidden=64, heads=4, inner=64, vocabulary=100, form="attention")
    trace = kvviz.dry(graph, prompt_tokens=100_000, max_new_tokens=1)
    assert trace.known("outputs")["present.0.key"].nbytes > 1e7
    assert len(pickle.dumps(trace)) < 1e5


PLOTS: list[Callable[..., Any]] = [kvviz.plot.memory, kvviz.plot.cache, kvviz.plot.copies, kvviz.plot.lifetimes]


@pytest.mark.parametrize("plot", PLOTS)
def test_every_plot_says_that_a_trace_is_a_dry_run(dry: Trace, real: Trace, plot: Callable[..., Any]) -> None:
    assert "dry run" in plot(dry).get_title("left") and "dry" not in plot(real).get_title("left")
    assert plot(dry).get_xlabel() == plot(real).get_xlabel()


def test_a_dry_report_says_so_and_counts_tokens(dry: Trace, real: Trace) -> None:
    found, told = dry.explain(), real.explain()
    validate(json.loads(json.dumps(found.to_dict())), REPORT_SCHEMA)
    assert found.to_dict()["dry"] and not told.to_dict()["dry"]
    assert [v.title for v in found.findings] == [v.title for v in told.findings]


@pytest.mark.parametrize("prompt", [{"prompt_tokens": 4}, {"prompt": [5, 17, 33, 4]}])
def test_a_comparison_of_dry_runs_claims_nothing_of_results(prompt: dict[str, Any], real: Trace) -> None:
    found = kvviz.compare(STORY, policies=["ideal", "never"], max_new_tokens=3, dry=True, **prompt)
    assert found.dry and found.equal is None and [row.equal for row in found] == [None, None]
    assert found[0].peak_bytes == real.peak_bytes and found[0].bytes_copied == real.bytes_copied
    for text in (repr(found), found._repr_html_()):
        assert "dry run, no results" in text and "equal" not in text
    assert "dry runs" in found.plot().axes[-1].get_title("left")
    with pytest.raises(InputError, match="prompt_tokens is for dry runs without a prompt"):
        kvviz.compare(STORY, prompt_tokens=4)


def test_what_a_policy_cannot_be_asked_is_said() -> None:
    with pytest.raises(KvvizError, match=r"policy 'rten': .*'nope'; its options are quirks, captures"):
        kvviz.policies.rten(nope=1)
    for wrong in (5, "cached_plan"):
        with pytest.raises(KvvizError, match=f"quirks of rten are True, False or a list of names, not {wrong!r}"):
            kvviz.policies.rten(quirks=wrong)
