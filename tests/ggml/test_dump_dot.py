"""Files of any writer: DOT files say what ggml's say, exactly and safely; what is wrong is one error with its line."""

import gzip
import html
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pygraphviz
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.graph.memory_plan import lives
from kvviz.ggml.recording.graph_export import describe, export, to_dot, to_json
from kvviz.ggml.recording.recorded_graphs import RecordedGraph
from kvviz.trace.schema.regions import LEVELS
from kvviz.view.page_data.payload import decode, payload
from tests.ggml.every_pair import lines_of
from tests.ggml.recordings import DATA, recording
from tests.ggml.seed_graphs import kv

PAIRS = [f"seed_{name}" for name in ("never_expanded", "read_first", "set_rows", "write_first")]
PAIRS += ["cast_shift", "inplace_chain", "tiny_mamba"]
HEAD = "digraph G {\n  newrank = true;\n  rankdir = TB;\n"
NODE = '  "{}" [ style = filled; fillcolor = white; shape = record; label="{}"; ]\n'
LEAF = NODE.format("a", "<x>x (f32)|CONST 0 [4, 1]")
EDGE = '  "{}" -> "{}" [ arrowhead = vee; style = solid; label = "src {}"; ]\n'


def labelled(name: str, ne: str = "4", type_: str = "f32", op: str = "x+y", place: int = 0) -> str:
    """The line of a node whose id is its name."""
    return NODE.format(name, f"{name} ({type_})|{place} [{ne}, 1] | <x>{op}")


def dot(name: str) -> RecordedGraph:
    file = "tiny_mamba_g0.dot" if name == "tiny_mamba" else f"{name}.dot"
    (graph,) = recording(file).graphs
    return graph


@pytest.mark.parametrize("name", PAIRS)
def test_nodes_and_hidden_pairs_by_root_are_those_of_the_recording_of_the_same_graph(name: str) -> None:
    file = f"{name}.jsonl.gz" if name == "tiny_mamba" else f"{name}.jsonl"
    graph, recorded = dot(name), recording(file).graphs[0]
    for one, two in zip(graph.nodes, recorded.nodes, strict=True):
        assert (one.name, one.op, one.type, one.ne[:2]) == (two.name, two.op, two.type, two.ne[:2])
        assert [source and source.name for source in one.src] == [source and source.name for source in two.src]
    found, other = ([(h.kind, h.first, h.second) for h in kvviz.hazards(g, "root")] for g in (graph, recorded))
    assert Counter(found) == Counter(other)
    # what is not known is the same at every precision
    assert len(kvviz.hazards(graph, "exact")) == len(found)


def test_each_pair_says_how_sure_it_is() -> None:
    for name, sure in (("seed_write_first", {"certain"}), ("tiny_mamba", {"likely", "certain"})):
        graph = dot(name)
        assert {one.confidence for one in kvviz.hazards(graph)} == sure
    exact = recording("tiny_mamba.jsonl.gz").graphs[0]
    assert {(one.known, one.confidence) for one in kvviz.hazards(exact)} == {("exact", "certain")}


def test_report_page_and_exports_say_what_is_known_and_keep_the_ids_of_the_file(tmp_path: Path) -> None:
    # given: the write takes 32 of 128 bytes, and the file does not say which
    graph = dot("seed_write_first")
    (hidden,) = kvviz.hazards(graph)
    assert (hidden.bytes, hidden.known, hidden.confidence) == (32, "root", "certain")
    # then the report
    assert "at most 32 B (the first: 0x1001 → 0x1003)" in " ".join(str(kvviz.explain(graph.trace)).split())
    # the page
    header, _ = decode(payload(graph.trace))
    assert header["hazards"]["says"] == "1 of which the exact bytes are not known; whole roots say 1"
    assert header["hazards"]["groups"] == ["RAW: CPY → MUL_MAT k_cache: at most 32 B"]
    assert "not known: at most 32 B" in header["strings"]
    assert header["graphs"][0]["attributes"]["1"] == 'id = "0x1001"'
    # both exports
    found = json.loads(kvviz.ggml.to_json(graph))
    assert found["level"] == "root"
    (pair,) = found["hidden"]
    assert (pair["known"], pair["confidence"]) == ("root", "certain")
    ids = {node["id"]: node["recorded_id"] for node in found["nodes"]}
    assert (ids[pair["from"]], ids[pair["to"]]) == ("0x1001", "0x1003")
    assert all(
        one in kvviz.ggml.to_dot(graph) for one in ('recorded_id = "0x1001"', 'confidence = "certain"', "at most")
    )
    # a saved trace
    graph.trace.save(tmp_path / "dot.kvviz")
    loaded = kvviz.Trace.load(tmp_path / "dot.kvviz")
    assert kvviz.hazards(loaded) == (hidden,)
    assert loaded.steps[hidden.first].graph_node.attributes["id"] == "0x1001"


@pytest.mark.parametrize(
    ("file", "old", "new", "sure"),
    [
        # Two views that both leave something out may lie apart.
        ("seed_write_first", "k_read_view (f32)|2 [4, 8]", "part (f32)|2 [4, 3]", ["unknown"]),
        # Before SET_ROWS named its destination, only the name that ggml gives to a view shows it.
        ("old_seed_set_rows", "", "", []),
        ("old_seed_set_rows", "k_write (f32)", "k_cache (view) (f32)", ["likely"]),
    ],
)
def test_what_a_file_does_not_say_makes_a_pair_less_sure(
    tmp_path: Path, file: str, old: str, new: str, sure: list[str]
) -> None:
    path = tmp_path / "changed.dot"
    path.write_text((DATA / f"{file}.dot").read_text("utf-8").replace(old, new), "utf-8")
    (graph,) = kvviz.ggml.load(path).graphs
    assert [(one.kind, one.confidence) for one in kvviz.hazards(graph)] == [("RAW", one) for one in sure]


def test_names_with_bars_quotes_arrows_and_types_in_them_are_read_from_behind(tmp_path: Path) -> None:
    name = 'a "b"; ] | (f32)|3 [4, 8] | <x>y </script> -> "0x2"'
    path = tmp_path / "names.dot"
    leaf = NODE.format("0x1", f"<x>{name} (f32)|CONST 0 [4, 1] | (#, #, #, #)")
    path.write_text(
        HEAD + leaf + NODE.format("0x2", f"{name} (f32)|0 [4, 1] | <x>x+y") + EDGE.format("0x1", "0x2", 0) + "}\n"
    )
    (graph,) = kvviz.ggml.load(path).graphs
    assert [(node.name, node.op, node.src[0] and node.src[0].name) for node in graph.nodes] == [(name, "ADD", name)]
    assert "</script> ->" not in graph.trace.to_html()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([LEAF, labelled("b", op="get_rows(x)"), EDGE.format("a", "b", 0)], "lacks the 2 sources"),
        ([], "line 3: no graph node in the file"),
        (["node -> edge\n"], "line 4: is neither a node nor an edge"),
        ([NODE.format("a", "x [4]")], "line 4: the label 'x [4]' is not one of ggml_graph_dump_dot"),
        ([labelled("a")] * 2, "line 5: 'a' is declared twice"),
        ([labelled("a"), labelled("b")], "line 5: node 0 is already in line 4"),
        ([labelled("a", type_="f9")], "line 4: the tensor type 'f9' is not known"),
        ([labelled("a", "33", "q8_0")], "line 4: a row of 33 elements is not a whole number of q8_0"),
        ([labelled("a", "9" * 60)], "line 4: 'a' of"),
        ([labelled("a", op="view(x)")], "line 4: 'a' is a VIEW, but lacks the 1 sources"),
        ([labelled("a"), EDGE.format("a", "b", 0)], "line 5: an edge to 'b'"),
        (
            [labelled("a"), labelled("b", place=1), EDGE.format("b", "a", 0)],
            "line 6: node 0 ('a') uses node 1 ('b'), which comes later",
        ),
    ],
)
def test_a_wrong_line_of_dot_is_one_error_with_its_number(tmp_path: Path, lines: list[str], said: str) -> None:
    path = tmp_path / "bad.dot"
    path.write_text(HEAD + "".join(lines), "utf-8")
    with pytest.raises(KvvizError, match=re.escape(said)):
        kvviz.ggml.load(path)


def test_no_export_of_a_dot_file_claims_to_know_bytes_exactly() -> None:
    # given: no views, but ops that may overwrite their sources, which the file does not show
    graph = dot("inplace_chain")
    assert json.loads(kvviz.ggml.to_json(graph))["level"] == "root"
    assert "not known" in graph.trace.policy.about
    assert json.loads(kvviz.ggml.to_json(recording("inplace_chain.jsonl").graphs[0]))["level"] == "exact"


WILD = 'k "quoted" | bar \\ {x} <b>&amp;</b></script> naïve\nline'


def test_exports_are_safe_and_have_the_names_as_they_are(tmp_path: Path) -> None:
    graph = kv(name=WILD).graph
    text, plain, wild = to_json(graph), to_dot(kv().graph), to_dot(graph)
    assert "<" not in text and WILD[:63] in {node["name"] for node in json.loads(text)["nodes"]}
    assert len(wild.splitlines()) == len(plain.splitlines()) and "</script" not in wild
    read = pygraphviz.AGraph(string=wild)
    assert len(read.nodes()) == len(describe(graph)["nodes"])
    assert [edge.attr["bytes"] for edge in read.edges() if edge.attr["kind"] == "RAW"] == ["32"]
    labels = {html.unescape(node.attr["label"]) for node in read.nodes()}
    shown = WILD[:63].replace("\\", "\\\\").replace("\n", "\\n")
    assert f"{shown} (f32)\\nNONE [4, 8, 1, 1]" in labels
    with pytest.raises(KvvizError, match=r"\.dot or a \.json file, not to 'graph\.svg'"):
        export(graph, tmp_path / "graph.svg")


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
