"""The graphs of a recording as tensors, with nothing of the recording's own but buffers and places in them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

from kvviz.ggml.compute_graph import ComputeGraph
from kvviz.ggml.tensor import Tensor


class Recorded(NamedTuple):
    meta: dict[str, Any]
    graphs: list[ComputeGraph]
    buffers: dict[str, int]


def read_lines(path: Path) -> Recorded:
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    usage = {row["buf"]: row["usage"] for row in rows if row["k"] == "buffer"}
    graphs: list[ComputeGraph] = []
    tensors: dict[int, Tensor] = {}
    for row in rows:
        if row["k"] == "graph":
            graphs.append(ComputeGraph(f"{path.name} {row['g']}"))
        elif row["k"] in ("leaf", "node"):
            tensors[row["id"]] = one = _tensor(row, usage)
            one.src = [None if i is None else one if i == row["id"] else tensors[i] for i in row["src"]]
            one.view_src = None if row["view_src"] is None else tensors[row["view_src"]]
            if row["k"] == "node":
                graphs[-1].nodes.append(one)
    for graph in graphs:
        met = dict.fromkeys(source for node in graph.nodes for source in node.src if source is not None)
        nodes = set(graph.nodes)
        graph.leafs = [tensor for tensor in met if tensor not in nodes]
    return Recorded(rows[0], graphs, {row["usage"]: row["size"] for row in rows if row["k"] == "buffer"})


def _tensor(row: dict[str, Any], usage: dict[int, str]) -> Tensor:
    return Tensor(
        row["name"],
        row["type"],
        tuple(row["ne"]),
        tuple(row["nb"]),
        row["op"],
        row.get("desc", ""),
        tuple(row.get("op_params", ())),
        row["flags"],
        role=row.get("role", ""),
        view_offs=row["view_offs"],
        buffer=usage.get(row["buf"], ""),
        address=row.get("buf_offs"),
    )
