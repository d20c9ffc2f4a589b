"""Short names of nodes and values: what tells one from another where both are listed, and no more.

Invariant: operators with the short names of a block's nodes are distinct, and so are short names of a graph's inputs,
and of its outputs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from kvviz.graph.blocks import Block
from kvviz.graph.model import Graph, Node

_PARTS = re.compile(r"[/:]+")


def node_names(parts: Iterable[Block]) -> dict[int, str]:
    """The telling part of the names of all nodes of some blocks, by ``id(node)``.

    That is the last part; where that only repeats the operator, the module around it, unless that is the block's own.
    What is then not unique in its block gets the exporter's number (``Concat_5`` gives ``#5``), else more of its path.
    """
    found: dict[int, str] = {}
    for block in parts:
        home = block.path[-1] if block.path else ""
        told = [(node, *_telling(node, home)) for node in block.nodes]
        often = Counter((node.op_type, name) for node, name, _ in told)
        names = [
            f"{name} {number}".strip() if not name or often[node.op_type, name] > 1 else name
            for node, name, number in told
        ]
        often = Counter((node.op_type, name) for node, name in zip(block.nodes, names))
        alike = [node.name for node, name in zip(block.nodes, names) if often[node.op_type, name] > 1]
        longer = distinct(alike)
        for node, name in zip(block.nodes, names):
            found[id(node)] = longer.get(node.name, name)
    return found


def _telling(node: Node, home: str) -> tuple[str, str]:
    """The telling part of one name, and the exporter's number behind it."""
    parts = [part for part in _PARTS.split(node.name) if part]
    last = parts.pop() if parts else ""
    match = re.fullmatch(rf"(?:node_)?{re.escape(node.op_type)}(?:_node)?(?:_(\d+))?", last, re.IGNORECASE)
    number = f"#{match[1]}" if match and match[1] else ""
    if not match:
        return last, number
    around = parts[-1] if parts else ""
    return (around if around != home and around in node.scope else ""), number


def value_names(graph: Graph, names: Iterable[str]) -> list[str]:
    """Short names of values: the last two parts of a path, and as many more as tell inputs, or outputs, apart."""
    lists = ([value.name for value in graph.inputs], [value.name for value in graph.outputs])
    known: dict[str, str] = {}
    for own in lists:
        known |= distinct(own)
    return [known.get(name) or _last(name, 2) for name in names]


def distinct(names: Sequence[str]) -> dict[str, str]:
    """The last parts of some names by name, at least two, and so many that no two names have the same."""
    found: dict[str, str] = {}
    left = list(dict.fromkeys(names))
    for length in range(2, 2 + max((_length(name) for name in left), default=0)):
        cut = {name: _last(name, length) for name in left}
        often = Counter([*cut.values(), *found.values()])
        found |= {name: text for name, text in cut.items() if often[text] == 1}
        left = [name for name in left if name not in found]
    return found | {name: name for name in left}


def _length(name: str) -> int:
    return len(_split(name)[1])


def _last(name: str, length: int) -> str:
    mark, parts = _split(name)
    return mark.join(parts[-length:]) if len(parts) > length else name


def _split(name: str) -> tuple[str, list[str]]:
    mark = "/" if "/" in name else "."
    return mark, [part for part in name.split(mark) if part]
