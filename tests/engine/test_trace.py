"""The trace: its steps as a sequence, saving and loading it, and files that are damaged or hostile."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz import Trace
from kvviz.engine.records import Step
from kvviz.errors import LoadError
from tests.engine.graphs import numbers, run
from tests.engine.test_control import FUNCTIONS, NESTED
from tests.graph.build import MODELS

LOOP = """g (float[2] x, int64 n) => (float[2] y, float[k, 2] s) <int64[1] z = {0}> {
    a = Exp(x) b = Unsqueeze(a, z) c = Squeeze(b)
    [loop] y, s = Loop (n, "", c) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w, float[2] u) {
        on = Identity(go) w = Add(v, x) u = Mul(w, a) }> }"""


def make(kind: str) -> Trace:
    if kind == "nested":
        return run(NESTED, {"x": numbers(2), "c": np.array(True), "d": np.array(False)})
    if kind == "functions":
        return run(FUNCTIONS, {"x": numbers(4)})
    if kind == "loop":
        return run(LOOP, {"x": numbers(2), "n": np.array(3)})
    graph = kvviz.load(MODELS / "storyteller" / kind / "model.onnx")
    words = json.loads((MODELS / "storyteller" / "vocab.json").read_text("utf-8"))
    return kvviz.decode(graph, [1, 2, 3], 3, kv_capacity=80, tokenizer=words, progress=False)


KINDS = ["nested", "functions", "loop", "concat", "merged_if", "tensor_scatter"]


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Trace]:
    """A trace, and the same after saving and loading."""
    trace = make(request.param)
    path = tmp_path_factory.mktemp("traces") / "a trace.kvviz"
    trace.save(path)
    return trace, Trace.load(path)


def plain(step: Step) -> dict[str, Any]:
    """A step without its node, which is an object of its own in each trace, but with what is known of it."""
    record = {name: getattr(step, name) for name in Step.__slots__ if name != "graph_node"}
    node = step.graph_node
    parts = ("name", "op_type", "domain", "inputs", "outputs", "index", "captures", "opset", "scope")
    return record | {name: getattr(node, name) for name in parts} | {"bodies": list(node.subgraphs)}


def test_every_step_is_the_same_after_saving_and_loading(pair: tuple[Trace, Trace]) -> None:
    before, after = pair
    assert len(before.steps) == len(after.steps) > 0
    for first, second in zip(before.steps, after.steps):
        assert plain(first) == plain(second)


def test_all_else_that_is_recorded_is_the_same_too(pair: tuple[Trace, Trace]) -> None:
    before, after = pair
    assert before.storages == after.storages
    assert before.runs == after.runs
    assert before.caches == after.caches
    assert (before.title, before.prompt, before.tokens, before.words, before.interrupted) == (
        after.title, after.prompt, after.tokens, after.words, after.interrupted)  # fmt: skip
    for total in ("peak_bytes", "bytes_copied", "bytes_written", "bytes_allocated"):
        assert getattr(before, total) == getattr(after, total)
    assert (before.policy.name, before.policy.about) == (after.policy.name, after.policy.about)
    assert repr(before) == repr(after)


def test_frames_and_their_graphs_are_the_same(pair: tuple[Trace, Trace]) -> None:
    before, after = pair
    for first, second in zip(before.frames, after.frames, strict=True):
        for part in ("id", "parent", "attribute", "iteration", "run", "path", "bindings"):
            assert getattr(first, part) == getattr(second, part)
        assert [n.name for n in first.order] == [n.name for n in second.order]
        assert [n.name for n in first.graph.nodes] == [n.name for n in second.graph.nodes]
        assert (first.graph.name, first.graph.inputs, first.graph.outputs) == (
            second.graph.name, second.graph.inputs, second.graph.outputs)  # fmt: skip
        assert list(first.graph.weights) == list(second.graph.weights)
    assert len(list(before.graph.walk())) == len(list(after.graph.walk()))


def test_a_loaded_trace_can_be_saved_again(pair: tuple[Trace, Trace], tmp_path: Path) -> None:
    _, after = pair
    after.save(tmp_path / "again")
    assert [plain(s) for s in Trace.load(tmp_path / "again").steps] == [plain(s) for s in after.steps]


def test_steps_are_a_sequence() -> None:
    trace = make("loop")
    steps = trace.steps
    assert [s.index for s in steps] == list(range(len(steps)))
    assert steps[-1] == steps[len(steps) - 1] == list(steps)[-1]
    assert steps[2:8:3] == [steps[2], steps[5]]
    assert steps[1] in steps and steps.index(steps[4]) == 4
    for outside in (len(steps), -len(steps) - 1):
        with pytest.raises(IndexError, match=f"step {outside} does not exist; the trace has {len(steps)} steps"):
            steps[outside]


def test_rows_of_a_run_are_found_by_its_marks() -> None:
    trace = make("concat")
    assert [(r.first, r.last) for r in trace.runs] == [(554 * k, 554 * (k + 1)) for k in range(3)]
    assert {s.run for s in trace.steps[trace.runs[1].first : trace.runs[1].last]} == {1}


# -- files that are no traces --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("traces") / "loop"
    make("loop").save(path)
    return path.read_bytes()


def rewritten(data: bytes, name: str, change: Any) -> bytes:
    """The archive with one member changed."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as copy:
        for entry in source.namelist():
            content = source.read(entry)
            copy.writestr(entry, change(content) if entry == name else content)
    return target.getvalue()


def fails(data: bytes, path: Path) -> str:
    path.write_bytes(data)
    with pytest.raises(LoadError) as caught:
        Trace.load(path)
    message = str(caught.value)
    assert message.count("\n") == 0 and len(message) < 500
    return message


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"hello", b"\0" * 4096], ids=["empty", "zip", "text", "zeros"])
def test_a_file_that_is_no_trace_is_refused(data: bytes, tmp_path: Path) -> None:
    assert "is not a trace of kvviz, or it is damaged" in fails(data, tmp_path / "x")


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no file"):
        Trace.load(tmp_path / "nothing")


def test_a_trace_of_another_format_is_refused(saved: bytes, tmp_path: Path) -> None:
    newer = rewritten(saved, "header.json", lambda text: text.replace(b'"format": 1', b'"format": 2'))
    assert "has trace format 2; this version reads 1" in fails(newer, tmp_path / "x")


def test_an_archive_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvviz.engine.traceread.LIMIT", 1 << 20)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b" " * (1 << 21))
    assert "is larger than 1,048,576 bytes" in fails(bomb.getvalue(), tmp_path / "x")


PLACES: list[tuple[tuple, Any]] = [
    ((), []),
    (("graphs",), []),
    (("graphs", 0, "nodes", 0, 9), [["body", 0]]),
    (("graphs", 1, "nodes", 0, 10), 0),
    (("graphs", 0, "nodes", 0, 3), [1]),
    (("graphs", 0, "inputs", 0, 1), "float31"),
    (("plans", 0, 0), 9),
    (("plans", 0, 0), -1),
    (("plans", 0, 1, 0, 0), 99),
    (("plans", 0, 1, 0, 3), [7]),
    (("frames",), []),
    (("frames", 0, 0), -1),
    (("frames", 1, 1), 1),
    (("frames", 1, 1), True),
    (("frames", 1, 2), 77),
    (("frames", 1, 2), None),
    (("frames", 0, 5), 3),
    (("frames", 0, 7, 0, 1), 1000),
    (("frames", 0, 7, 0, 4), [-4]),
    (("frames", 0, 7, 0, 5), "nonsense"),
    (("storages", 0, 0), -5),
    (("storages",), [[1, "run", True]]),
    (("runs", 0, 1), 10**6),
    (("runs",), [[0]]),
    (("caches",), [["a"]]),
    (("totals", 0), 1.5),
    (("tokens", 0), ["a"]),
    (("strings",), []),
    (("title",), {"a": 1}),
]


@pytest.mark.parametrize(("place", "value"), PLACES, ids=[".".join(map(str, p)) + f"={v}" for p, v in PLACES])
def test_a_header_with_something_out_of_place_is_refused(
    place: tuple, value: Any, saved: bytes, tmp_path: Path
) -> None:
    def change(text: bytes) -> bytes:
        header = whole = {"all": json.loads(text)}
        *path, last = ("all", *place)
        for key in path:
            header = header[key]
        header[last] = value
        return json.dumps(whole["all"]).encode()

    fails(rewritten(saved, "header.json", change), tmp_path / "x")


@pytest.mark.parametrize("name", ["step", "taken", "masks", "placed", "freed"])
@pytest.mark.parametrize("value", [-(2**62), 2**62, 10**6])
def test_a_column_whose_numbers_point_nowhere_is_refused(name: str, value: int, saved: bytes, tmp_path: Path) -> None:
    def change(content: bytes) -> bytes:
        return np.full(len(content) // 8, value, "<i8").tobytes()

    fails(rewritten(saved, f"{name}.i64", change), tmp_path / "x")


@pytest.mark.parametrize("name", ["header.json", "step.i64", "taken.i64", "masks.i64", "placed.i64", "freed.i64"])
def test_a_member_that_is_cut_or_too_long_is_refused(name: str, saved: bytes, tmp_path: Path) -> None:
    for change in (lambda c: c[:-8], lambda c: c[:-3], lambda c: c + c[:8]):
        fails(rewritten(saved, name, change), tmp_path / "x")


def test_json_that_is_nested_without_end_is_refused(saved: bytes, tmp_path: Path) -> None:
    fails(rewritten(saved, "header.json", lambda text: b"[" * 200_000), tmp_path / "x")


@settings(max_examples=60)
@given(places=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_whatever_bytes_are_damaged_the_result_is_a_trace_or_one_error(
    places: list[tuple[int, int]], saved: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(saved)
    for place, byte in places:
        data[place % len(data)] = byte
    path = tmp_path_factory.mktemp("damaged") / "x"
    path.write_bytes(data)
    try:
        trace = Trace.load(path)
    except LoadError:
        return
    assert len(list(trace.steps)) == len(trace.recorder.rows)
    assert trace.storages and trace.frames
