"""A graph with its hidden edges for other people's tools: exact, and safe whatever a tensor is called."""

import html
import json
from pathlib import Path

import pygraphviz
import pytest

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.recording.graph_export import describe, export, to_dot, to_json

WILD = 'k "quoted" | bar \\ {x} <b>&amp;</b></script> naïve\nline'


def _seed(name: str = "k") -> ComputeGraph:
    ctx = Context()
    k = ctx.new_tensor("f32", 4, 8, name=name, data=0)
    k_cur = ctx.new_tensor("f32", 4, 2, name="k_cur", data=1)
    q = ctx.new_tensor("f32", 4, 1, name="q", data=1)
    write = ctx.cpy(k_cur, ctx.view_2d(k, 4, 2, 16, 48))
    return ctx.new_graph("seed").expand(write).expand(ctx.set_name(ctx.mul_mat(ctx.view_2d(k, 4, 8, 16, 0), q), "kq"))


def test_json_may_stand_in_a_page_and_has_the_names_as_they_are() -> None:
    text = to_json(_seed(WILD))
    assert "</script" not in text and "<" not in text
    assert WILD[:63] in {node["name"] for node in json.loads(text)["nodes"]}


def test_dot_has_one_line_for_each_node_and_edge_whatever_the_names_are() -> None:
    plain, wild = to_dot(_seed()), to_dot(_seed(WILD))
    assert len(wild.splitlines()) == len(plain.splitlines())
    assert "</script" not in wild
    assert 'kind = "RAW"; bytes = 32; root = "k";' in plain


def test_graphviz_reads_the_names_back() -> None:
    read = pygraphviz.AGraph(string=to_dot(_seed(WILD)))
    told = describe(_seed(WILD))
    assert len(read.nodes()) == len(told["nodes"])
    assert [edge.attr["bytes"] for edge in read.edges() if edge.attr["kind"] == "RAW"] == ["32"]
    labels = {html.unescape(node.attr["label"]) for node in read.nodes()}
    shown = WILD[:63].replace("\\", "\\\\").replace("\n", "\\n")
    assert f"{shown} (f32)\\nNONE [4, 8, 1, 1]" in labels


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KvvizError, match=r"\.dot or a \.json file, not to 'graph\.svg'"):
        export(_seed(), tmp_path / "graph.svg")
