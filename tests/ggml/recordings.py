"""What real ggml left of graphs that it ran: small ones built by hand, and layers of SmolLM2.

Source: tests/data/ggml, recorded through the public callback of llama-cpp-python 0.3.36 (ggml 0.25.3) and 0.3.14.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import kvviz
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.recording.recorded_graphs import Recording

DATA = Path(__file__).resolve().parent.parent / "data" / "ggml"
EXPECTED: dict[str, Any] = {
    one["file"]: one for one in json.loads((DATA / "expected.json").read_text("utf-8"))["recordings"]
}
OTHERS = sorted(path.name for path in DATA.glob("*.jsonl*") if path.name not in EXPECTED)


def lines(name: str) -> list[dict[str, Any]]:
    """The lines of a recording, read without kvviz."""
    path = DATA / name
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def recorded(rows: list[dict[str, Any]], ids: dict[int, str]) -> list[dict[str, Any]]:
    """What a recording says of nodes, sources by their names."""
    return [
        {
            **{key: row[key] for key in ("name", "op", "type", "ne", "nb", "flags", "view_offs")},
            "desc": row.get("desc", ""),
            "op_params": row.get("op_params", []),
            "src": [ids[source] for source in row["src"]],
            "view_src": None if row["view_src"] is None else ids[row["view_src"]],
        }
        for row in rows
    ]


def built(nodes: list[Tensor]) -> list[dict[str, Any]]:
    """The same of nodes that were built here."""
    return [
        {
            "name": node.name,
            "op": node.op,
            "type": node.type,
            "ne": list(node.ne),
            "nb": list(node.nb),
            "flags": node.flags,
            "view_offs": node.view_offs,
            "desc": node.desc,
            "op_params": list(node.op_params),
            "src": [source.name for source in node.src if source is not None],
            "view_src": None if node.view_src is None else node.view_src.name,
        }
        for node in nodes
    ]


def names(rows: list[dict[str, Any]]) -> dict[int, str]:
    """Names by id, of leafs and nodes."""
    return {row["id"]: row["name"] for row in rows if row["k"] in ("leaf", "node")}


def assert_same_nodes(graph: ComputeGraph, name: str) -> None:
    """Nodes of a graph, in their order, are those of a recording of one graph."""
    rows = lines(name)
    assert built(graph.nodes) == recorded([row for row in rows if row["k"] == "node"], names(rows))


@cache
def recording(name: str) -> Recording:
    """A recording, read once."""
    found: Recording = kvviz.ggml.load(DATA / name)
    return found
