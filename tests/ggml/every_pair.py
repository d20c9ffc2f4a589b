"""Hidden pairs of a recording by brute force: every pair of nodes, on sorted arrays of the bytes that they touch.

It reads the lines of the file itself and shares no code with kvviz.
"""

import gzip
import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

NOTHING = {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", "NONE"}
Line = dict[str, Any]
Pairs = dict[str, dict[tuple[str, int, int], int]]
"""Bytes by precision, and by (kind, earlier node, later node)."""


def lines_of(path: Path) -> list[Line]:
    data = path.read_bytes()
    return [json.loads(line) for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()]


def bytes_of(tensor: Line, types: dict[str, list[int]], rows: list[int] | None = None) -> np.ndarray:
    """Addresses in the root, one by one."""
    elements, size = types[tensor["type"]]
    places = np.array([tensor["view_offs"]])
    for axis in (3, 2, 1):
        steps = np.arange(tensor["ne"][axis]) if axis != 1 or rows is None else np.array(sorted(set(rows)), np.int64)
        places = (places[:, None] + steps * tensor["nb"][axis]).ravel()
    places = (places[:, None] + np.arange(tensor["ne"][0] // elements) * tensor["nb"][0]).ravel()
    return np.unique(places[:, None] + np.arange(size))


def hidden_pairs(path: Path) -> list[Pairs]:
    """What is hidden in each graph of a recording."""
    lines = lines_of(path)
    by_id = {line["id"]: line for line in lines if line["k"] in ("leaf", "node")}
    graphs: list[list[Line]] = []
    for line in lines:
        if line["k"] == "graph":
            graphs.append([])
        elif line["k"] == "node":
            graphs[-1].append(line)
    return [_of_graph(nodes, by_id, lines[0]["types"]) for nodes in graphs]


def _of_graph(nodes: list[Line], by_id: dict[int, Line], types: dict[str, list[int]]) -> Pairs:
    place = {node["id"]: number for number, node in enumerate(nodes)}
    before: list[set[int]] = []
    touches = defaultdict(list)
    for number, node in enumerate(nodes):
        own = {place[one] for one in node["src"] if one in place and one != node["id"]}
        before.append(own.union(*(before[one] for one in own)))
        for tensor, writes, rows in _touched(node, by_id):
            if 0 not in tensor["ne"]:
                root = tensor["id"] if tensor["view_src"] is None else tensor["view_src"]
                touches[root].append((number, writes, tensor, rows))
    found: Pairs = {"root": {}, "range": {}, "exact": {}}
    for touched in touches.values():
        known: dict[int, np.ndarray] = {}
        for (one, early), (two, late) in combinations(enumerate(touched), 2):
            if early[0] == late[0] or early[0] in before[late[0]] or not (early[1] or late[1]):
                continue
            for at, (_, _, tensor, rows) in ((one, early), (two, late)):
                if at not in known:
                    known[at] = bytes_of(tensor, types, rows)
            some, others = known[one], known[two]
            key = "RAW" if not late[1] else "WAW" if early[1] else "WAR", early[0], late[0]
            found["root"][key] = 0
            if some[0] <= others[-1] and others[0] <= some[-1]:
                found["range"][key] = 0
            shared = len(np.intersect1d(some, others, assume_unique=True))
            if shared:
                found["exact"][key] = shared
    return found


def _touched(node: Line, by_id: dict[int, Line]) -> list[tuple[Line, bool, list[int] | None]]:
    if node["op"] in NOTHING or 0 in node["ne"]:
        return []
    sources = [by_id[one] for one in node["src"] if one is not None and one != node["id"]]
    if node["op"] == "CPY":
        sources = sources[:1]
    rows = _values(sources[1], by_id) if node["op"] in ("GET_ROWS", "SET_ROWS") else None
    if node["op"] == "SET_ROWS":
        return [(sources[0], False, None), (sources[1], False, None), (node, True, rows)]
    reads = [(source, False, rows if at == 0 else None) for at, source in enumerate(sources)]
    return [*reads, (node, True, None)]


def _values(index: Line, by_id: dict[int, Line]) -> list[int] | None:
    root = index if index["view_src"] is None else by_id[index["view_src"]]
    first = index["view_offs"] // index["nb"][0]
    values: list[int] | None = root.get("values")
    return None if values is None else values[first : first + index["ne"][0]]
