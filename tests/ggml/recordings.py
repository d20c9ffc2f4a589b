"""What real ggml left of graphs that it ran: small ones built by hand, and layers of SmolLM2.

Source: tests/data/ggml, recorded through the public callback of llama-cpp-python 0.3.36 (ggml 0.25.3) and 0.3.14.
"""

import json
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import kvviz
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.recording.recorded_graphs import Recording
from tests.ggml.every_pair import lines_of

DATA = Path(__file__).resolve().parent.parent / "data" / "ggml"
EXPECTED: dict[str, Any] = {
    one["file"]: one for one in json.loads((DATA / "expected.json").read_text("utf-8"))["recordings"]
}
OTHERS = sorted(path.name for path in DATA.glob("*.jsonl*") if path.name not in EXPECTED)


def lines(name: str) -> list[dict[str, Any]]:
    """The lines of a recording, read without kvviz."""
    return lines_of(DATA / name)


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


def built(nodes: list[Tensor], named: Callable[[Tensor], Any] = attrgetter("name")) -> list[dict[str, Any]]:
    """The same of nodes that were built here."""
    same = ("name", "op", "type", "flags", "view_offs", "desc")
    return [
        {
            **{key: getattr(node, key) for key in same},
            **{key: list(getattr(node, key)) for key in ("ne", "nb", "op_params")},
            "src": [named(source) for source in node.src if source is not None],
            "view_src": node.view_src and named(node.view_src),
        }
        for node in nodes
    ]


def names(rows: list[dict[str, Any]]) -> dict[int, str]:
    """Names by id, of leafs and nodes."""
    return {row["id"]: row["name"] for row in rows if row["k"] in ("leaf", "node")}


@cache
def recording(name: str) -> Recording:
    """A recording, read once."""
    found: Recording = kvviz.ggml.load(DATA / name)
    return found
