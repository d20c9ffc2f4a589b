"""Reading a recording of lines of JSON (schema ``kvviz-ggml-recording/1``): the tensors of each graph, in order.

Every field is checked, as it is not known who wrote the file.
"""

from __future__ import annotations

import gzip
import json
import reprlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kvviz.errors import KvvizError, quoted
from kvviz.ggml.graph.op_effects import rows_named
from kvviz.ggml.graph.tensor import MAX_DIMS, MAX_SRC, VIEW_OPS, Tensor, type_size
from kvviz.ggml.recording.recorded_graphs import RecordedGraph, Recording, leafs_of
from kvviz.trace.schema.regions import bounds

LARGEST = 1 << 48
"""No count, size or offset of a recording is larger; a trace has the same limit."""

_ROLES = ("weight", "state", "input")


def parsed(text: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise KvvizError(f"is not JSON: {reason}") from None
    if not isinstance(found, dict):
        raise KvvizError(f"is a {type(found).__name__}, not an object")
    return found


def whole_number(
    line: Mapping[str, Any], key: str, default: int | None = None, low: int = 0, high: int = LARGEST
) -> int:
    found = line.get(key, default)
    if type(found) is not int or not low <= found <= high:
        raise KvvizError(f"has {key!r} = {_shown(found)}, but needs a whole number from {low} to {high}")
    return found


def number_or_none(line: Mapping[str, Any], key: str) -> int | None:
    return None if line.get(key) is None else whole_number(line, key)


def text(line: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """A text of a line; raises for lone surrogates, which no file can hold."""
    found = line.get(key, default)
    if not isinstance(found, str):
        raise KvvizError(f"has {key!r} = {_shown(found)}, but needs a text")
    return found.encode("utf-8", "replace").decode()


def tensor_of(line: Mapping[str, Any], types: Mapping[str, tuple[int, int]]) -> Tensor:
    """The tensor of a leaf or a node, without its sources, root and buffer, which are ids."""
    role = "" if line["k"] == "node" else text(line, "role")
    if line["k"] != "node" and role not in _ROLES:
        raise KvvizError(f"has the role {_shown(role)}; the role of a leaf is one of {', '.join(_ROLES)}")
    ne, nb = (_numbers(line, key, 0, LARGEST, MAX_DIMS, MAX_DIMS) for key in ("ne", "nb"))
    values = _numbers(line, "values", -(1 << 63), (1 << 63) - 1) if line.get("values") is not None else None
    type_ = text(line, "type")
    if type_size(type_) != types.get(type_, type_size(type_)):
        raise KvvizError(f"is of type {type_}, whose blocks are {type_size(type_)}, not {types[type_]}")
    return Tensor(
        text(line, "name"),
        type_,
        ne,  # type: ignore[arg-type]
        nb,  # type: ignore[arg-type]
        text(line, "op"),
        text(line, "desc", ""),
        _numbers(line, "op_params", -(1 << 31), (1 << 31) - 1, 0, 16) if "op_params" in line else (),
        whole_number(line, "flags", 0, -(1 << 31), (1 << 31) - 1),
        view_offs=whole_number(line, "view_offs", 0),
        role=role,
        values=None if values is None else np.array(values, np.int64),
        address=number_or_none(line, "buf_offs"),
    )


def source_ids(line: Mapping[str, Any]) -> list[int | None]:
    src = line.get("src", [])
    if not isinstance(src, list) or len(src) > MAX_SRC or not all(one is None or type(one) is int for one in src):
        raise KvvizError(f"has 'src' = {_shown(src)}, but needs a list of at most {MAX_SRC} ids")
    return src


def type_table(line: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The first line's sizes of element types: elements of a block, and its bytes."""
    found = line.get("types", {})
    if not isinstance(found, dict):
        raise KvvizError(f"has 'types' = {_shown(found)}, but needs sizes by type")
    table = {name: _numbers(found, name, 1, 1 << 20, 2, 2) for name in found}
    return {name: (elements, size) for name, (elements, size) in table.items()}


def _numbers(
    line: Mapping[str, Any], key: str, low: int, high: int, least: int = 0, most: int | None = None
) -> tuple[int, ...]:
    found = line.get(key)
    if not isinstance(found, list) or not all(type(one) is int and low <= one <= high for one in found):
        raise KvvizError(f"has {key!r} = {_shown(found)}, but needs a list of numbers from {low} to {high}")
    if not least <= len(found) <= (len(found) if most is None else most):
        raise KvvizError(f"has {len(found)} numbers in {key!r}, not {least}")
    return tuple(found)


def _shown(found: Any) -> str:
    """A value in a message, cut if long."""
    return quoted(found) if isinstance(found, str) else reprlib.repr(found)


SCHEMA = "kvviz-ggml-recording/1"
LONGEST = 1 << 26
"""Bytes of a line, at most."""

SOURCES_NEEDED = {"CPY": 1, "SET_ROWS": 2, "GET_ROWS": 2, **dict.fromkeys(VIEW_OPS, 1)}
"""How many sources determine what an op touches."""


def read_lines(path: Path) -> Recording:
    reading = _Reading(path.name)
    number = 0
    try:
        for number, line in _lines(path):  # noqa: B007 -- the messages have it
            reading.take(parsed(line))
    except (KvvizError, EOFError, OSError, zlib.error) as error:
        where = f"line {number}" if isinstance(error, KvvizError) and number else f"after line {number}"
        if isinstance(error, OSError) and not number:
            where = "at its start"
        raise KvvizError(f"{path}, {where}: {_reason(error)}") from None
    try:
        return reading.done()
    except KvvizError as error:
        raise KvvizError(f"{path}, after line {number}: {error}") from None


def from_objects(objects: Iterable[Mapping[str, Any]], title: str) -> Recording:
    reading = _Reading(title)
    for one in objects:
        reading.take(dict(one))
    return reading.done()


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        file: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
        for number, line in enumerate(iter(lambda: file.readline(LONGEST), b""), 1):
            if len(line) == LONGEST:
                raise KvvizError(f"line {number} has more than {LONGEST:,} bytes")
            if line.strip():
                yield number, line


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the file ends here, in the middle of its packed data"
    return str(error) if isinstance(error, KvvizError) else f"it cannot be unpacked: {error}"


class _Reading:
    def __init__(self, title: str) -> None:
        self.title = title
        self.meta: dict[str, Any] | None = None
        self.types: dict[str, tuple[int, int]] = {}
        self.graphs: list[RecordedGraph] = []
        self.buffers: dict[int, str] = {}
        # Tensors by id: weights and state, which outlive a graph, and those of the last graph.
        self.kept: dict[int, Tensor] = {}
        self.own: dict[int, Tensor] = {}
        self.places: dict[int, Tensor] = {}
        self.announced = 0

    def take(self, line: dict[str, Any]) -> None:
        kind = line.get("k")
        if self.meta is None:
            if kind != "meta" or line.get("schema") != SCHEMA:
                raise KvvizError(f'the first line of a recording must have "k": "meta" and the schema {SCHEMA!r}')
            self.meta, self.types = line, type_table(line)
        elif kind == "graph":
            self._begin(line)
        elif kind == "buffer":
            self._buffer(line)
        elif kind in ("leaf", "node"):
            if not self.graphs:
                raise KvvizError(f"a {kind} before the first graph")
            if line.get("g") != self.graphs[-1].number:
                raise KvvizError(f"a {kind} within graph {self.graphs[-1].number} says that it is of another graph")
            self._tensor(line)
        else:
            raise KvvizError(f"there is no kind of line {kind!r}; choose meta, graph, buffer, leaf or node")

    def done(self) -> Recording:
        if self.meta is None:
            raise KvvizError("the file is empty")
        self._end()
        if not any(graph.nodes for graph in self.graphs):
            raise KvvizError("no graph with a node in it")
        return Recording(self.title, tuple(self.graphs), self.meta)

    def _begin(self, line: Mapping[str, Any]) -> None:
        self._end()
        number = whole_number(line, "g")
        if number != len(self.graphs):
            raise KvvizError(f"graph {number} is out of order: {len(self.graphs)} graphs come before it")
        self.announced = whole_number(line, "n_nodes")
        self.graphs.append(RecordedGraph(f"{self.title} graph {number}", number, text(line, "step", "")))
        self.own, self.places = {}, {}

    def _end(self) -> None:
        if not self.graphs:
            return
        graph = self.graphs[-1]
        if len(graph.nodes) != self.announced:
            raise KvvizError(f"graph {graph.number} has {len(graph.nodes)} nodes, but announced {self.announced}")
        graph.leafs = leafs_of(graph.nodes)
        meant = [self.places[place] for place in sorted(self.places)]
        if meant != graph.nodes:
            graph.meant = meant

    def _buffer(self, line: Mapping[str, Any]) -> None:
        number = whole_number(line, "buf")
        label = f"{text(line, 'name')} {text(line, 'usage')}"
        same = sum(name.split(" #")[0] == label for name in self.buffers.values())
        self.buffers[number] = f"{label} #{same + 1}" if same else label

    def _tensor(self, line: Mapping[str, Any]) -> None:
        tensor, id = tensor_of(line, self.types), whole_number(line, "id")
        place = whole_number(line, "i") if line["k"] == "node" else None
        called = f"{line['k']} {quoted(tensor.name)}"
        if id in self.own or id in self.kept:
            raise KvvizError(f"{called} has the id {id} of another tensor")
        buffer, root = number_or_none(line, "buf"), number_or_none(line, "view_src")
        if buffer is not None:
            if buffer not in self.buffers:
                raise KvvizError(f"{called} lies in buffer {buffer}, which no earlier line declares")
            tensor.buffer = self.buffers[buffer]

        def found(other: int) -> Tensor:
            one = tensor if other == id else self.own.get(other) or self.kept.get(other)
            if one is None:
                raise KvvizError(f"{called} uses tensor {other}, which no earlier line of this graph declares")
            return one

        tensor.src = [None if one is None else found(one) for one in source_ids(line)]
        if root is not None:
            tensor.view_src = found(root)
        _check(tensor, called)
        (self.kept if tensor.role in ("weight", "state") else self.own)[id] = tensor
        if place is not None:
            if place in self.places:
                raise KvvizError(f"{called} has place {place} in the order, as another node does")
            self.places[place] = tensor
            self.graphs[-1].nodes.append(tensor)


def _check(tensor: Tensor, called: str) -> None:
    """Raise unless the tensor's fields are consistent."""
    root = tensor.root
    if tensor.view_src is not None and (root is tensor or root.view_src is not None):
        raise KvvizError(f"{called} is a view of {quoted(root.name)}, which is a view itself and owns no memory")
    if tensor.nbytes > LARGEST or (tensor.address or 0) + tensor.nbytes > LARGEST:
        raise KvvizError(f"{called} of {tensor.ne} elements, {tensor.nb} bytes apart, is larger than any memory")
    # A row may be shorter than a block of its type, but occupies one.
    end = max(tensor.view_offs + tensor.nbytes, bounds(tensor.layout)[1])
    if end > root.nbytes and 0 not in tensor.ne:
        raise KvvizError(f"{called} reaches to byte {end} of {quoted(root.name)}, which has {root.nbytes}")
    others = tensor.sources
    if len(others) < SOURCES_NEEDED.get(tensor.op, 0):
        raise KvvizError(f"{called} is a {tensor.op} of {len(others)} tensors, but needs {SOURCES_NEEDED[tensor.op]}")
    if tensor.op in VIEW_OPS and others[0] is tensor:
        raise KvvizError(f"{called} is a view of itself")
    if tensor.op in ("SET_ROWS", "GET_ROWS"):
        table = tensor if tensor.op == "SET_ROWS" else others[0]
        wrong = [row for row in rows_named(table, others[1]) or () if not 0 <= row < table.ne[1]]
        if wrong:
            raise KvvizError(f"{called} has the row index {wrong[0]}, but there are {table.ne[1]} rows")
