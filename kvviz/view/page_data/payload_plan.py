"""The planning of a graph as the bytes that the page reads: a payload without steps, but with planning events.

Only the first frontier is sent. Each later one follows: the picked op leaves it, and the ops that can run because of
that pick join at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.graph.model import Graph
from kvviz.view.page_data.packed_columns import Columns, Strings, pack
from kvviz.view.page_data.payload import CODES, FORMAT
from kvviz.view.page_data.payload_graphs import Drawings, GraphTable

# Room for what the page writes into a box: "depth 1,234".
_CAPTION = "depth 000"


def plan_payload(graph: Graph, events: Sequence[Any], policy: Mapping[str, str]) -> bytes:
    """Planning events and their graph, as compressed bytes. ``policy``: ``name`` and ``about``."""
    table = GraphTable(graph, 0, "main", None)
    # By name: a planner may look at changed copies of nodes.
    at = {node.name: i for i, node in enumerate(graph.nodes)}
    order = [graph.nodes[at[event.node.name]] for event in events if event.action == "pick"]
    table.ordered(order)
    strings, columns = Strings(), Columns()
    _events(events, at, table, strings, columns)
    label = strings("main")
    columns.rows("frame", "graph i, parent i, node i, iteration i, run i, label i", [(0, -1, -1, -1, 0, label)])
    columns.ints("frame.bind", (0, 0))
    graphs, drawings = Drawings({id(graph): table}).headers({id(node): _CAPTION for node in order})
    header = {
        "format": FORMAT,
        "codes": CODES,
        "title": graph.name,
        "policy": dict(policy),
        "graphs": graphs,
        "drawings": drawings,
        "runs": [],
        "story": [],
        "caches": [],
        "live": None,
        "strings": strings.table(columns),
    }
    return pack(header, columns)


def _events(
    events: Sequence[Any], at: Mapping[str, int], table: GraphTable, strings: Strings, columns: Columns
) -> None:
    rows, ready, ready_at = [], [], [0]
    for event in events:
        ready += [at[node.name] for node in event.ready]
        ready_at.append(len(ready))
        node = -1 if event.node is None else at.get(event.node.name, -1)
        words = (strings(event.phase), strings(event.action), strings(event.reason))
        rows.append((node, table.value(event.value), *words, event.planned, event.depth))
    first = next((event.frontier for event in events if event.action == "pick"), ())
    columns.rows("event", "node i, value i, phase i, action i, reason i, planned i, depth i", rows)
    columns.ints("event.ready", ready_at)
    columns.ints("ready.node", ready)
    columns.ints("first.node", [at[node.name] for node in first])
