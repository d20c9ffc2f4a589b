"""A run is made again on ghosts from what its trace says, also where the model is not there any more."""

from pathlib import Path
from typing import Any

import pytest

import kvviz
from kvviz import Trace
from kvviz.fixes.replays import Replays
from kvviz.trace.index.value_index import index_of
from tests.decode.small import small
from tests.explain.test_fixes import DECODERS, POLICIES, decoded, of_seed
from tests.graph.build import file_id

FORMS = ["concat", "merged", "scatter_nd", "grouped_shared", "attention"]


def told(trace: Trace, run: int, places: bool) -> list[Any]:
    """All that a run did to memory; ``places``: with offsets and strides."""
    steps = [step for step in trace.steps if step.run == run]
    layouts = [[(o.how, o.shape, (o.offset, o.strides) if places else 0) for o in s.outs if o] for s in steps]
    return [
        (s.node, s.frame, s.decision.dispatch, s.decision.taken, s.allocated, s.copied, outs)
        for s, outs in zip(steps, layouts)
    ]


def assert_replayed(trace: Trace) -> None:
    live = trace.recipe is not None
    replays = Replays(index_of(trace))
    for run in range(len(trace.runs)):
        assert told(replays.run(run), 0, live) == told(trace, run, live)
    if trace.options.kind == "decode":
        again = replays.decode()
        for run in range(len(again.runs)):
            assert told(again, run, live) == told(trace, run, live)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", FORMS)
def test_each_run_of_a_decode_alone_and_all_of_it_do_the_same_again(form: str, policy: str, tmp_path: Path) -> None:
    for capacity in (None, 16):
        model = small(form)
        options = {**model.options, "kv_capacity": capacity}
        trace = kvviz.decode(kvviz.load(model.proto), [3, 1, 4, 1, 5], 4, policy=policy, progress=False, **options)
        trace.save(tmp_path / "trace")
        assert_replayed(trace)
        assert_replayed(Trace.load(tmp_path / "trace"))


@pytest.mark.parametrize("path", DECODERS, ids=file_id)
def test_real_models_do_the_same_again(path: Path) -> None:
    # Each under two policies in turn; rules that append nothing have no use for room.
    at = DECODERS.index(path)
    for policy in (POLICIES[at % 4], POLICIES[(at + 1) % 4]):
        for capacity in (None, 40) if policy in ("ideal", "rten") else (None,):
            assert_replayed(decoded(path, 3, policy=policy, kv_capacity=capacity))


@pytest.mark.parametrize("policy", POLICIES)
def test_bodies_inside_bodies_do_the_same_again(policy: str) -> None:
    for seed in range(40):
        assert_replayed(of_seed(seed, policy))
