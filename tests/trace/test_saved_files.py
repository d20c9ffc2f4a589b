"""The file of a trace: the same bytes for the same trace, whole or not there, and readable however little ran."""

import io
import sys
import zipfile
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.decode.token_loop import DecodeSession
from tests.engine.graphs import graph_of
from tests.graph.build import MODELS

PROMPT = [5, 17, 33]


@pytest.fixture(scope="module")
def graph() -> Any:
    return kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")


class Stopping:
    """Raises `KeyboardInterrupt` at a line of Python's own writer of zip files."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != zipfile.__file__ or frame.f_code.co_name == "__del__":
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


# Where the writer itself has only begun to be made, its destructor finds nothing.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_save_is_told_as_that_wherever_it_was_stopped(graph: Any, tmp_path: Path) -> None:
    trace = kvviz.decode(graph, PROMPT, 2, progress=False)
    path = tmp_path / "a.kvviz"
    path.write_bytes(b"old")
    traced = sys.gettrace()
    for line in range(1, 1000, 7):
        sys.settrace(Stopping(line))
        try:
            trace.save(path)
        except KeyboardInterrupt:
            sys.settrace(traced)
            assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
        else:
            break
        finally:
            sys.settrace(traced)
    assert line > 200


def test_the_same_trace_gives_the_same_bytes_whenever_it_is_saved(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = kvviz.decode(graph, PROMPT, 2, progress=False)
    files = []
    for year in (2001, 2020):
        monkeypatch.setattr("time.time", lambda year=year: (year - 1970) * 31_557_600.0)
        monkeypatch.setattr("time.localtime", lambda *_, year=year: (year, 1, 2, 3, 4, 5, 0, 2, 0))
        files.append(io.BytesIO())
        trace.save(files[-1])
    assert files[0].getvalue() == files[1].getvalue()
    again = io.BytesIO()
    kvviz.Trace.load(files[0]).save(again)
    assert again.getvalue() == files[0].getvalue()


@pytest.mark.parametrize("begun", [False, True])
def test_a_trace_of_no_step_is_read_as_it_was_saved(graph: Any, begun: bool, tmp_path: Path) -> None:
    # given a decode of which nothing has run
    session = DecodeSession(graph, PROMPT, max_new_tokens=2)
    if begun:
        session.next_run()
    # when
    session.trace.save(tmp_path / "nothing.kvviz")
    loaded = kvviz.Trace.load(tmp_path / "nothing.kvviz")
    # then every reader finds nothing in it
    assert (len(loaded.steps), len(loaded.runs)) == (0, begun)
    assert [node.name for node in loaded.graph.nodes] == [node.name for node in graph.nodes]
    assert not kvviz.explain(loaded).missed and not loaded.find("missed")
    assert repr(loaded.table()) == repr(session.trace.table()) and loaded.to_html()
    # nor in that of a graph without a node
    trace = kvviz.run(graph_of("g (float[2] x) => (float[2] x) { }"), {"x": np.ones(2, np.float32)})
    trace.save(tmp_path / "nothing.kvviz")
    assert len(kvviz.Trace.load(tmp_path / "nothing.kvviz").steps) == 0


def test_a_trace_without_an_optional_input_is_read_as_it_was_saved(tmp_path: Path) -> None:
    graph = graph_of("g (optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }")
    trace = kvviz.run(graph, {})
    trace.save(tmp_path / "a.kvviz")
    assert kvviz.Trace.load(tmp_path / "a.kvviz").table() == trace.table()
