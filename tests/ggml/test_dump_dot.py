"""DOT files: what those of ggml say is read and nothing made up; those that are written are exact and safe."""

import html
import json
import re
from collections import Counter
from pathlib import Path

import pygraphviz
import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.recording.graph_export import describe, export, to_dot, to_json
from kvviz.ggml.recording.recorded_graphs import RecordedGraph
from kvviz.view.page_data.payload import decode, payload
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
def test_a_wrong_line_is_one_error_with_its_number(tmp_path: Path, lines: list[str], said: str) -> None:
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
