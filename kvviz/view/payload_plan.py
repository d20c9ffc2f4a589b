"""The planning of a graph as the bytes that the page reads: a payload without steps, but with planning events.

Invariant: the frontier of every event follows from the changes since the last event that has all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.graph.model import Graph
from kvviz.view.packed_columns import Columns, Strings, pack
from kvviz.view.payload import CODES, FORMAT
from kvviz.view.payload_graphs import Drawings, GraphTable

# The maximum number of changes to follow to restore a frontier.
_KEY = 64
# Room for what the page writes into a box: "depth 1,234".
_CAPTION = "depth 000"


def plan_payload(graph: Graph, events: Sequence[Any], policy: Mapping[str, str], title: str = "") -> bytes:
    """Planning events and the graph that they are about, as compressed bytes.

    ``policy``: ``name`` and ``about``.
    ``title``: the graph's name by default.
    """
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
        "title": title or graph.name,
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
    rows, changes, ready = [], [], []
    change_at, ready_at = [0], [0]
    before: list[int] = []
    for i, event in enumerate(events):
        now = [at[node.name] for node in event.frontier]
        change = _change(before, now) if i % _KEY else None
        changes += now if change is None else change
        ready += [at[node.name] for node in event.ready]
        change_at.append(len(changes))
        ready_at.append(len(ready))
        node = -1 if event.node is None else at.get(event.node.name, -1)
        value = table.value(event.value)
        words = (strings(event.phase), strings(event.action), strings(event.reason))
        rows.append((node, value, *words, event.planned, event.depth, int(change is None)))
        before = now
    columns.rows("event", "node i, value i, phase i, action i, reason i, planned i, depth i, full i", rows)
    columns.ints("event.change", change_at)
    columns.ints("event.ready", ready_at)
    columns.ints("change.node", changes)
    columns.ints("ready.node", ready)


def _change(before: list[int], now: list[int]) -> list[int] | None:
    """The nodes that leave (as ``-1 - node``) and those that join at the end; None if that does not give the result."""
    stay = set(now)
    known = set(before)
    gone = [-1 - node for node in before if node not in stay]
    new = [node for node in now if node not in known]
    if len(gone) + len(new) >= len(now) or [node for node in before if node in stay] + new != now:
        return None
    return gone + new
