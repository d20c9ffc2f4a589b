"""Files of which nobody knows who wrote them: one clear error with the number of the line, and names that survive."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.graph.memory_plan import lives
from kvviz.trace.schema.regions import LEVELS
from tests.ggml.every_pair import lines_of
from tests.ggml.recordings import DATA

SEED = lines_of(DATA / "seed_set_rows.jsonl")
NAME = 'a "b" | </script> <x>&amp; \\ (f32)|3 é'


def written(folder: Path, lines: list[Any]) -> Path:
    path = folder / "bad.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def changed(number: int, **fields: Any) -> list[Any]:
    """The lines of a recording, one of them changed; lines are counted from 1."""
    return [{**line, **fields} if at == number else line for at, line in enumerate(SEED, 1)]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "after line 0: the file is empty"),
        ([*SEED[:2], "{\n"], "line 3: is not JSON"),
        ([*SEED[:2], "[" * 100_000 + "\n"], "line 3: is not JSON: it is nested too deeply"),
        ([*SEED[:2], "[1, 2]\n"], "line 3: is a list, not an object"),
        (SEED[1:], "line 1: the first line of a recording must have"),
        ([SEED[0], *SEED[2:]], "line 2: a leaf before the first graph"),
        (SEED[:-1], "after line 8: graph 0 has 2 nodes, but announced 3"),
        (SEED[:1], "after line 1: no graph with a node"),
        ([*SEED, SEED[-1]], "line 10: node 'kq' has the id 5 of another tensor"),
        (changed(6, src=[1, 2, 99]), "line 6: node 'k_write' uses tensor 99, which no earlier line"),
        (changed(7, view_src=0), "line 7: node 'k_read_view' is a view of 'k_write', which is a view itself"),
        (changed(6, ne=[4, -8, 1, 1]), "line 6: has 'ne' = [4, -8, 1, 1], but needs a list of numbers from 0"),
        (changed(6, ne=[4, 8, 1]), "line 6: has 3 numbers in 'ne', not 4"),
        (changed(5, ne=[1 << 47, 8, 1, 1]), "line 5: leaf 'k_cache' of"),
        (changed(5, ne=[4, 7, 1, 1]), "line 6: node 'k_write' reaches to byte 128 of 'k_cache', which has 112"),
        (changed(7, type="q4_0"), "line 7: node 'k_read_view' reaches to byte 130 of 'k_cache', which has 128"),
        (changed(5, type="f7"), "line 5: the tensor type 'f7' is not known"),
        (changed(5, role="friend"), "line 5: has the role 'friend'; the role of a leaf is one of weight, state, input"),
        (changed(5, name=None), "line 5: has 'name' = None, but needs a text"),
        (changed(4, values=[3, 1 << 70]), "line 4: has 'values'"),
        (changed(4, values=[3, 8]), "line 6: node 'k_write' has the row index 8, but there are 8 rows"),
        (changed(6, src=[1]), "line 6: node 'k_write' is a SET_ROWS of 1 tensors, but needs 2"),
        (changed(6, src=[1] * 11), "line 6: has 'src'"),
        (changed(6, g=1), "line 6: a node within graph 0 says that it is of another graph"),
        (changed(6, buf=3), "line 6: node 'k_write' lies in buffer 3, which no earlier line declares"),
        (changed(7, i=0), "line 7: node 'k_read_view' has place 0 in the order, as another node does"),
        (changed(6, k="nod"), "line 6: there is no kind of line 'nod'"),
        (changed(1, types={"f32": [1, 8]}), "line 3: is of type f32, whose blocks are (1, 4), not (1, 8)"),
    ],
)
def test_a_wrong_line_is_one_error_with_its_number(tmp_path: Path, lines: list[Any], said: str) -> None:
    with pytest.raises(KvvizError, match=re.escape(said)) as caught:
        kvviz.ggml.load(written(tmp_path, lines))
    assert str(tmp_path / "bad.jsonl") in str(caught.value) and len(str(caught.value)) < 600


def test_a_cut_a_changed_a_missing_and_another_kind_of_file_are_said(tmp_path: Path) -> None:
    data = (DATA / "tiny_mamba.jsonl.gz").read_bytes()
    for name, part in (("cut", data[:3000]), ("none", data[:5]), ("other", data[:2000] + b"\0" * 40 + data[2040:])):
        path = tmp_path / f"{name}.jsonl.gz"
        path.write_bytes(part)
        with pytest.raises(KvvizError, match=re.escape(str(path)) + r", (after|at|line)"):
            kvviz.ggml.load(path)
    with pytest.raises(KvvizError, match=r"none\.jsonl cannot be read: No such file"):
        kvviz.ggml.load(tmp_path / "none.jsonl")
    with pytest.raises(KvvizError, match=r"its name must end in one of \.jsonl, \.jsonl\.gz, \.dot"):
        kvviz.ggml.load(tmp_path / "model.onnx")


def test_names_of_any_letters_reach_the_page_and_a_saved_trace(tmp_path: Path) -> None:
    found = kvviz.ggml.load(written(tmp_path, changed(5, name=NAME)))
    page = found.trace.to_html()
    assert "</script> <x>" not in page
    found.trace.save(tmp_path / "trace.kvv")
    (hidden,) = kvviz.hazards(kvviz.Trace.load(tmp_path / "trace.kvv"))
    assert hidden.root == NAME


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 80), 1 << 80),
    st.integers(-2, 12),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.none(), st.integers(-3, 70), st.integers()), max_size=6),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from(["node", "leaf", "graph", "CPY", "GET_ROWS", "SET_ROWS", "VIEW", "NONE", "q8_0", "i64", "state"]),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_line_says_there_is_a_recording_or_one_error(tmp_path: Path, data: st.DataObject) -> None:
    lines = [dict(line) for line in data.draw(st.sampled_from([SEED, lines_of(DATA / "cast_shift.jsonl")]))]
    for _ in range(data.draw(st.integers(1, 3))):
        line = data.draw(st.sampled_from(lines))
        line[data.draw(st.sampled_from(sorted(line)))] = data.draw(ANYTHING)
    _read_or_refused(written(tmp_path, list(lines)))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_bytes_are_changed_there_is_a_recording_or_one_error(tmp_path: Path, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(["cast_shift.jsonl", "seed_set_rows.dot", "old_seed_set_rows.dot"]))
    content = bytearray((DATA / file).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    packed = file.endswith("jsonl") and data.draw(st.booleans())
    path = tmp_path / f"bad{Path(file).suffix}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(bytes(content)) if packed else bytes(content))
    _read_or_refused(path)


def _read_or_refused(path: Path) -> None:
    try:
        found = kvviz.ggml.load(path)
        for graph in found.graphs:
            for level in LEVELS:
                kvviz.hazards(graph, level)
            lives(graph)
        assert len(found.trace.storages) > 0
    except KvvizError as error:
        assert re.search(r"bad\.\S+, (after )?line \d+: ", str(error))
