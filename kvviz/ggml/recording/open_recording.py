"""Recordings of graphs from files, by their ending, and the reader of what ``ggml_graph_dump_dot`` wrote.

A DOT file has shapes, ops and sources, and does not say where views lie. The format was read in ``ggml_graph_dump_dot``
(``src/ggml.c``, 2023 to 2026) and on files with both syntaxes of edges. Names are not escaped there, so a label is read
from its end.
"""

from __future__ import annotations

import os
import re
from math import prod
from pathlib import Path
from typing import NamedTuple

from kvviz.errors import KvvizError, quoted
from kvviz.ggml.graph.tensor import MAX_NAME, MAX_SRC, VIEW_OPS, Tensor, packed
from kvviz.ggml.recording.recorded_graphs import RecordedGraph, Recording, leafs_of
from kvviz.ggml.recording.recording_lines import LARGEST, SOURCES_NEEDED, read_lines

LONGEST = 1 << 16
"""Letters of a line, at most."""

_NODE = re.compile(r'^\s*"([^"]+)" \[ style = filled; fillcolor = \w+; shape = record; label="(.*)"; \]\s*$')
_EDGE = re.compile(
    r'^\s*"([^"]+)"(?::\w+)? -> "([^"]+)"(?::\w+)? \[ '
    r'(?:arrowhead = \w+; style = (\w+); )?label = "(.*)"; \]\s*$'
)
_SIZES = r"\[(\d+(?:, \d+){1,3})\]"
_COMPUTED = re.compile(rf"^(?:(.*) )?\((\w+)\)\|(\d+) {_SIZES} \| <x>(.*?)(?: \| <g>.*)?$")
_LEAF = re.compile(rf"^<x>(?:(.*) )?\((\w+)\)\|CONST \d+ {_SIZES}(?: \| \(.*\))?$")
_FRAME = re.compile(r"^\s*(?:digraph .*\{|newrank = true;|rankdir = \w+;|\})?\s*$")
_WORD = re.compile(r"^(\w+)\(.*\)$")
_SUFFIX = re.compile(r" \((?:view|reshaped|permuted|transposed)\)$")

SYMBOLS = {
    "x": "DUP",
    "x+y": "ADD",
    "x[i]+y": "ADD_ID",
    "view(x,nb,offset)+=y->x": "ACC",
    "x-y": "SUB",
    "x*y": "MUL",
    "x/y": "DIV",
    "x^2": "SQR",
    "√x": "SQRT",
    "Σx": "SUM",
    "Σx_k": "SUM_ROWS",
    "Σx/n": "MEAN",
    "X*Y": "MUL_MAT",
    "X[i]*Y": "MUL_MAT_ID",
    "x*v": "SCALE",
    "y-\\>view(x)": "SET",
    "x-\\>y": "CPY",
}
"""Ops by the symbol of a label; others have a word, as ``rope(x)``. ADD1 looks like ADD, OUT_PROD like MUL_MAT."""


class _Drawn(NamedTuple):
    """A node or leaf with the number of its line; ``place`` is None for a leaf."""

    tensor: Tensor
    place: int | None
    line: int


def read_dot(path: Path) -> Recording:
    """The graph of a DOT file, known at precision root; errors name the wrong line."""
    drawn: dict[str, _Drawn] = {}
    edges: list[tuple[int, str, str, int]] = []
    number = 0
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            for number, text in enumerate(iter(lambda: file.readline(LONGEST), ""), 1):
                _take(text, number, drawn, edges)
        if not any(one.place is not None for one in drawn.values()):
            raise KvvizError("no graph node in the file")
        for number, early, late, slot in edges:
            _join(drawn, number, early, late, slot)
        nodes = sorted((one for one in drawn.values() if one.place is not None), key=lambda one: one.place or 0)
        graph = RecordedGraph(path.name)
        for before, one in zip((None, *nodes), nodes):
            number = one.line
            if before is not None and before.place == one.place:
                raise KvvizError(f"node {one.place} is already in line {before.line}")
            _root(one, drawn)
            graph.nodes.append(one.tensor)
    except KvvizError as error:
        raise KvvizError(f"{path}, line {number}: {error}") from None
    graph.leafs = leafs_of(graph.nodes)
    _place(graph)
    return Recording(path.name, (graph,), {"format": "ggml_graph_dump_dot"})


def _take(text: str, number: int, drawn: dict[str, _Drawn], edges: list[tuple[int, str, str, int]]) -> None:
    if len(text) == LONGEST:
        raise KvvizError(f"more than {LONGEST:,} characters")
    if match := _NODE.match(text):
        if match[1] in drawn:
            raise KvvizError(f"{quoted(match[1])} is declared twice")
        drawn[match[1]] = _drawn(match[2], number)
        drawn[match[1]].tensor.id = match[1]
    elif match := _EDGE.match(text):
        # A gradient's edge says what belongs together, not what is computed from what.
        slot = re.fullmatch(r"src (\d)", match[4])
        if slot and match[3] != "dashed":
            edges.append((number, match[1], match[2], int(slot[1])))
    elif not _FRAME.match(text):
        raise KvvizError("is neither a node nor an edge as ggml_graph_dump_dot writes them")


def _drawn(label: str, number: int) -> _Drawn:
    leaf = _LEAF.match(label)
    computed = None if leaf else _COMPUTED.match(label)
    match = leaf or computed
    if match is None:
        raise KvvizError(f"the label {quoted(label)} is not one of ggml_graph_dump_dot")
    name, type_, sizes = match[1] or "", match[2], match[4 if computed else 3]
    ne = tuple(int(size) for size in sizes.split(", "))
    full = (*ne, *[1] * (4 - len(ne)))
    if max(ne) > LARGEST or prod(n or 1 for n in ne) > LARGEST:
        raise KvvizError(f"{quoted(name)} of {sizes} elements is larger than any memory")
    tensor = Tensor(name, type_, full, packed(type_, full), role="" if computed else "input")  # type: ignore[arg-type]
    if tensor.nbytes > LARGEST:
        raise KvvizError(f"{quoted(name)} of {sizes} elements is larger than any memory")
    if computed:
        tensor.op = _op(match[5])
    elif type_[0] in "qt" or name.endswith((".weight", ".bias")):
        # Only types and names distinguish weights from inputs.
        tensor.role = "weight"
    return _Drawn(tensor, int(match[3]) if computed and len(match[3]) < 10 else 0 if computed else None, number)


def _op(symbol: str) -> str:
    word = _WORD.match(symbol)
    return SYMBOLS.get(symbol) or (word[1].upper() if word else symbol or "NONE")


def _join(drawn: dict[str, _Drawn], number: int, early: str, late: str, slot: int) -> None:
    if late not in drawn:
        raise KvvizError(f"an edge to {quoted(late)}, which the file does not declare")
    if early not in drawn:
        # The file shows only part of a graph.
        outside = Tensor(f"not drawn {early}", "f32", (1, 1, 1, 1), (4, 4, 4, 4), role="input", id=early)
        drawn[early] = _Drawn(outside, None, number)
    one, two = drawn[early], drawn[late]
    if one.place is not None and two.place is not None and one.place >= two.place and one is not two:
        what = f"node {two.place} ({quoted(two.tensor.name)})"
        raise KvvizError(f"{what} uses node {one.place} ({quoted(one.tensor.name)}), which comes later")
    sources = two.tensor.src
    sources += [None] * (slot + 1 - len(sources))
    if slot >= MAX_SRC or sources[slot] is not None:
        raise KvvizError(f"a second source {slot} of {quoted(two.tensor.name)}")
    sources[slot] = one.tensor


def _root(one: _Drawn, drawn: dict[str, _Drawn]) -> None:
    """Find the root of a node from its op or, as a guess, from its name."""
    node = one.tensor
    first, second, third = (*node.src, None, None, None)[:3]
    needed = SOURCES_NEEDED.get(node.op, 0)
    if sum(source is not None for source in node.src) < needed or (needed and first is None):
        raise KvvizError(f"{quoted(node.name)} is a {node.op}, but lacks the {needed} sources that it needs")
    of: Tensor | None = None
    if node.op in VIEW_OPS:
        of = first
    elif node.op == "CPY":
        of = second if second is not node else None
    elif node.op == "SET_ROWS" and third is not None:
        of = third
    elif node.op == "SET_ROWS":
        of = _by_name(node.name, drawn)
    elif first is not None and node.name == f"{first.name} (view)"[:MAX_NAME]:
        of = first
    if node.op not in VIEW_OPS and node.op != "CPY" and of is not None and of is not third:
        node.guessed = True
    if of is node:
        raise KvvizError(f"{quoted(node.name)} is a view of itself")
    if of is not None:
        node.view_src = of.root
        node.placed = False


def _by_name(name: str, drawn: dict[str, _Drawn]) -> Tensor | None:
    """The only leaf that a view is named after."""
    while match := _SUFFIX.search(name):
        name = name[: match.start()]
    found = [one.tensor for one in drawn.values() if one.place is None and one.tensor.name == name]
    return found[0] if len(found) == 1 else None


def _place(graph: RecordedGraph) -> None:
    """Make roots as large as their views, as the file leaves out the fourth axis, and call written leafs state."""
    for node in graph.nodes:
        root = node.root
        if root is not node:
            root.room = max(root.room, node.nbytes)
            if node.writes_view and root.role:
                root.role = "state"


ENDINGS = (".jsonl", ".jsonl.gz", ".dot")


def load(path: str | os.PathLike[str]) -> Recording:
    """Read graphs that a real ggml executed.

    Parameters
    ----------
    path : path
        ``.jsonl`` or ``.jsonl.gz``: a recording (schema ``kvviz-ggml-recording/1``), exact to the byte. ``.dot``: what
        ``ggml_graph_dump_dot`` wrote, one graph, known at precision root: it says neither offsets nor strides.

    Raises
    ------
    KvvizError
        If the file cannot be read, or a line of it is wrong; the message has its number.

    Examples
    --------
    >>> recording = kvviz.ggml.load("decode.jsonl.gz")              # doctest: +SKIP
    >>> [hazard.sentence for hazard in kvviz.hazards(recording.graphs[1])][:1]     # doctest: +SKIP
    ['MUL_MAT node_23 reads cache_k_l0 (view), which SET_ROWS cache_k_l0 (view) writes: only the schedule runs …']
    """
    path = Path(path)
    if not path.name.endswith(ENDINGS):
        raise KvvizError(f"{path} is not a ggml recording: its name must end in one of {', '.join(ENDINGS)}")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise KvvizError(f"{path} cannot be read: {error.strerror or error}") from None
    return read_dot(path) if path.name.endswith(".dot") else read_lines(path)
