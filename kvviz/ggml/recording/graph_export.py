"""A graph with its hidden edges made explicit, as DOT and as JSON, for tools that know nothing of views and roots."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.op_effects import effects
from kvviz.ggml.graph.tensor import Tensor
from kvviz.trace.index.hazards import Hazard
from kvviz.trace.schema.regions import Level

SCHEMA = "kvviz-ggml-graph/1"


def describe(graph: ComputeGraph, level: Level = "exact") -> dict[str, Any]:
    """A graph as plain data.

    Parameters
    ----------
    level : {"exact", "range", "root"}
        What counts as the same bytes, as in `kvviz.hazards`; of a DOT file no more than roots are known.

    Returns
    -------
    dict
        ``nodes``: leafs (``"l0"`` …) and nodes (``"n0"`` … by their place in the list) with name, op, type, ``ne``,
        ``nb``, flags, what the file that it was read from calls it (``recorded_id``) and, of a view, ``view_of`` and
        ``view_offs``. ``edges``: ``from``, ``to`` and which source it is.
        ``hidden``: ``from`` and ``to`` as executed, and what `kvviz.hazards` says of the pair.
    """
    ids = _ids(graph)
    executed = graph.executed
    hidden = [
        {
            "from": ids[executed[pair.first]],
            "to": ids[executed[pair.second]],
            "kind": pair.kind,
            "bytes": pair.bytes,
            "root": ids[_root(executed, pair)],
            "root_name": pair.root,
            "broken": pair.broken,
            "known": pair.known,
            "confidence": pair.confidence,
            "sentence": pair.sentence,
        }
        for pair in graph.hidden(level)
    ]
    return {
        "schema": SCHEMA,
        "title": graph.title,
        "level": level if all(tensor.exact for tensor in ids) else "root",
        "nodes": [_node(tensor, number, ids) for tensor, number in ids.items()],
        "edges": list(_edges(graph, ids)),
        "hidden": hidden,
    }


def to_json(graph: ComputeGraph, level: Level = "exact") -> str:
    """A graph as JSON. ``<`` is escaped, so that names are safe in a page's script."""
    return json.dumps(describe(graph, level), ensure_ascii=False, indent=1).replace("<", "\\u003c") + "\n"


def to_dot(graph: ComputeGraph, level: Level = "exact") -> str:
    """A graph in Graphviz's language: declared edges solid, hidden ones red, dashed, and with attributes of their own.

    Names are quoted, with ``&``, ``<`` and ``>`` as entities, which Graphviz reads as those characters.
    """
    graph_data = describe(graph, level)
    lines = ["digraph G {", "  rankdir = TB;", f"  label = {_quoted(graph_data['title'])};", "  node [ shape = box ];"]
    for node in graph_data["nodes"]:
        sizes = ", ".join(str(n) for n in node["ne"])
        style = 'style = "filled"; fillcolor = "pink"; ' if node["op"] == "NONE" else ""
        text = _quoted(f"{node['name']} ({node['type']})\n{node['op']} [{sizes}]")
        recorded = f"recorded_id = {_quoted(node['recorded_id'])}; " if "recorded_id" in node else ""
        lines.append(f"  {node['id']} [ {style}{recorded}label = {text}; ];")
    for edge in graph_data["edges"]:
        lines.append(f'  {edge["from"]} -> {edge["to"]} [ label = "src {edge["src"]}"; ];')
    for pair in graph_data["hidden"]:
        most = "" if pair["known"] == "exact" else "at most "
        text = _quoted(f"{pair['kind']} {most}{pair['bytes']} B of {pair['root_name']}")
        facts = f'kind = "{pair["kind"]}"; bytes = {pair["bytes"]}; root = {_quoted(pair["root_name"])}; '
        facts += f'known = "{pair["known"]}"; confidence = "{pair["confidence"]}"; '
        facts += f'broken = "{str(pair["broken"]).lower()}"; tooltip = {_quoted(pair["sentence"])};'
        lines.append(
            f'  {pair["from"]} -> {pair["to"]} [ color = "red"; style = "dashed"; constraint = false; label = {text}; '
            f"{facts} ];"
        )
    return "\n".join([*lines, "}", ""])


def export(graph: ComputeGraph, path: str | PathLike[str], level: Level = "exact") -> Path:
    """Write a graph with its hidden edges to a ``.dot`` or ``.json`` file; returns the path.

    Raises
    ------
    KvvizError
        If the file's name has another ending.
    """
    target = Path(fspath(path))
    made = {".dot": to_dot, ".json": to_json}.get(target.suffix)
    if made is None:
        raise KvvizError(f"a graph can be exported to a .dot or a .json file, not to {target.name!r}")
    target.write_text(made(graph, level), encoding="utf-8")
    return target


def _ids(graph: ComputeGraph) -> dict[Tensor, str]:
    nodes = {node: f"n{i}" for i, node in enumerate(graph.nodes)}
    leafs = dict.fromkeys([*graph.leafs, *(one for node in nodes for one in (*node.sources, node.root))])
    return {**{leaf: f"l{i}" for i, leaf in enumerate(one for one in leafs if one not in nodes)}, **nodes}


def _root(executed: Sequence[Tensor], pair: Hazard) -> Tensor:
    early, late = (
        [effect.tensor.root for effect in effects(executed[step]) if effect.writes is access.writes]
        for step, access in ((pair.first, pair.early), (pair.second, pair.late))
    )
    return next(root for root in early if root in late)


def _node(tensor: Tensor, number: str, ids: dict[Tensor, str]) -> dict[str, Any]:
    entry = {
        "id": number,
        "name": tensor.name,
        "op": tensor.kind,
        "type": tensor.type,
        "ne": list(tensor.ne),
        "nb": list(tensor.nb),
        "flags": tensor.flags,
    }
    if tensor.id:
        entry["recorded_id"] = tensor.id
    if tensor.view_src is not None:
        entry |= {"view_of": ids.get(tensor.view_src, ""), "view_offs": tensor.view_offs if tensor.placed else None}
    return entry


def _edges(graph: ComputeGraph, ids: dict[Tensor, str]) -> Iterator[dict[str, Any]]:
    for node in graph.nodes:
        for position, source in enumerate(node.src):
            if source is not None and source is not node:
                yield {"from": ids[source], "to": ids[node], "src": position}


def _quoted(text: str) -> str:
    safe = escape(text, quote=False).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + safe.replace("\r", " ").replace("\n", "\\n") + '"'
