"""A recording that somebody wrote by hand goes through every reader, as any trace of the engine does."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.trace.writer import Writer
from tests.outside.told import differences, loaded
from tests.trace.recordings import copy_into_view, two_lanes

Make = Callable[[], kvviz.Trace]
BOTH = pytest.mark.parametrize("make", [copy_into_view, two_lanes])


def test_storages_say_where_they_lie_and_an_address_that_is_used_twice_is_two_storages() -> None:
    storages = copy_into_view().storages
    twice = [s for s in storages if (s.arena, s.address) == ("compute", 0)]
    assert [(s.name, s.born, s.freed) for s in twice] == [
        ("inp_embd", 0, 1),
        ("kq-0", 5, 5),
        ("inp_embd#2", 6, 7),
        ("kq-0#2", 11, 11),
    ]
    assert {s.space for s in two_lanes().storages} == {"host", "dram", "l1"}


def test_a_copy_into_a_view_overwrites_it_and_its_bytes_are_counted_in_blocks() -> None:
    trace = copy_into_view()
    # 64 elements of q8_0 are two blocks of 34 bytes
    assert [(step.op_type, step.written) for step in trace.steps][3] == ("CPY", 68)
    assert [out.nbytes for step in trace.steps for out in step.outs if out.storage == 1] == [68, 68, 68, 68, 68, 136]
    assert trace.peak_bytes == 64 * 68 + 4 * 68 + 256 + 256
    assert [step.outs[0].how for step in trace.steps[2:5]] == ["view", "in place", "view"]
    assert [(step.outs[0].generation, step.outs[0].offset) for step in trace.steps[8:11]] == [(1, 68), (2, 68), (2, 0)]
    # values with one name are told apart
    outputs = [name for step in trace.steps for name in step.outputs]
    assert len(outputs) == len(set(outputs)) == 12
    assert outputs[2] == "cache_k_l0 (view)" and outputs[4] == "cache_k_l0 (view)#2"


@BOTH
def test_it_is_explained_drawn_and_exported_and_says_the_same_from_a_file(make: Make, tmp_path: Path) -> None:
    # given
    trace = make()
    report, again = kvviz.explain(trace), loaded(trace)
    # then
    assert again.steps and again.log.declared == trace.log.declared and differences(trace, again) == []
    assert all(step.decision.blockers == () for step in trace.steps)
    text = repr(report)
    assert "the recording does not say what else could have run in place" in text and "cannot" not in text
    assert sum(part.bytes for part in report.peak.parts) == report.peak.bytes == trace.peak_bytes
    assert json.loads(json.dumps(report.to_dict()))["steps"] == len(trace.steps)
    assert len(trace.table().rows) == len(trace.steps)
    for draw in (kvviz.plot.memory, kvviz.plot.lifetimes, kvviz.plot.copies):
        assert draw(trace).get_xlabel()
        plt.close("all")
    trace.to_perfetto(tmp_path / "trace.json")
    slices = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in slices if e["tid"]] == [step.op_type for step in trace.steps]
    assert trace.title in trace.to_html()


def test_lanes_overlap_in_time_and_each_has_a_track(tmp_path: Path) -> None:
    two_lanes().to_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [(tracks[e["tid"]], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]
    assert ("transfer", 5, 8) in spans and ("queue 0", 4, 9) in spans


def test_a_free_that_was_refused_is_a_reason_for_what_is_held_too_long() -> None:
    w = Writer("refused", "device")
    cache = w.value("cache", (4,), "float32")
    w.op("fill", [], [cache])
    w.free(w.storage_of(cache), "a program reads it", done=False)
    other = w.value("other", (4,), "float32")
    w.op("fill", [], [other])
    (held,) = kvviz.explain(w.finish([other])).held_too_long
    assert (held.name, held.freed) == ("cache", None)
    assert held.reason == "it was to be freed after step 0, which was refused: a program reads it"


def test_what_cannot_be_is_refused_with_a_sentence() -> None:
    w = Writer("wrong")
    storage = w.storage(16)
    with pytest.raises(KvvizError, match="value 'x' lies at bytes 8 to 24 of 16 in B0"):
        w.value("x", (4,), "float32", storage, offset=8)
    with pytest.raises(KvvizError, match="B0 is not alive"):
        w.free(storage)
    with pytest.raises(KvvizError, match="'wrong' has no op"):
        w.finish()
    with pytest.raises(KvvizError, match="'x' has the unknown element type 'q7'"):
        w.value("x", (4,), "q7")


def test_the_producer_in_the_guide_for_contributors_writes_this_trace() -> None:
    guide = (Path(__file__).parents[2] / ".github" / "CONTRIBUTING.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    assert repr(found["trace"].table()) == repr(copy_into_view().table())
