"""Reading a recording of lines of JSON (schema ``kvviz-ggml-recording/1``): the tensors of each graph, in order."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.ggml.graph.op_effects import rows_named
from kvviz.ggml.graph.tensor import VIEW_OPS, Tensor
from kvviz.ggml.recording.recorded_graphs import RecordedGraph, Recording, leafs_of
from kvviz.ggml.recording.recording_fields import (
    LARGEST,
    TensorLine,
    parsed,
    tensor_line,
    text,
    type_table,
    whole_number,
)
from kvviz.graph.names import quoted

SCHEMA = "kvviz-ggml-recording/1"
LONGEST = 1 << 26
"""Bytes of a line, at most."""

# Sources that what an op touches is told by.
_SOURCES = {"CPY": 1, "SET_ROWS": 2, "GET_ROWS": 2, **dict.fromkeys(VIEW_OPS, 1)}


def read_lines(path: Path) -> Recording:
    """A recording from ``.jsonl`` or ``.jsonl.gz``.

    Raises
    ------
    KvvizError
        If the file cannot be read or a line is wrong; it names the line.
    """
    reading = _Reading(path.name)
    number = 0
    try:
        for number, line in _lines(path):  # noqa: B007 -- the messages have it
            reading.take(line)
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
    """A recording from lines that are objects already."""
    reading = _Reading(title)
    for one in objects:
        reading.take_object(dict(one))
    return reading.done()


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        file: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
        number = 1
        while line := file.readline(LONGEST):
            if len(line) == LONGEST:
                raise KvvizError(f"line {number} has more than {LONGEST:,} bytes")
            if line.strip():
                yield number, line
            number += 1


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the file ends here, in the middle of its packed data"
    return str(error) if isinstance(error, KvvizError) else f"it cannot be unpacked: {error}"


class _Reading:
    """A recording while it is read."""

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

    def take(self, line: bytes) -> None:
        self.take_object(parsed(line))

    def take_object(self, line: dict[str, Any]) -> None:
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
            self._tensor(tensor_line(line, self.types))
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
        same = line.get("same_pointers_as_previous") is True
        self.graphs.append(RecordedGraph(f"{self.title} graph {number}", number, text(line, "step", ""), same))
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

    def _tensor(self, line: TensorLine) -> None:
        called = f"{'leaf' if line.role else 'node'} {quoted(line.name)}"
        if line.id in self.own or line.id in self.kept:
            raise KvvizError(f"{called} has the id {line.id} of another tensor")
        if line.buffer is not None and line.buffer not in self.buffers:
            raise KvvizError(f"{called} lies in buffer {line.buffer}, which no earlier line declares")
        tensor = Tensor(
            line.name,
            line.type,
            line.ne,
            line.nb,
            line.op,
            line.desc,
            line.op_params,
            line.flags,
            view_offs=line.view_offs,
            role=line.role,
            values=None if line.values is None else np.array(line.values, np.int64),
            buffer="" if line.buffer is None else self.buffers[line.buffer],
            address=line.address,
        )
        tensor.src = [None if id is None else self._find(id, line, tensor, called) for id in line.src]
        if line.view_src is not None:
            tensor.view_src = self._find(line.view_src, line, tensor, called)
        _check(tensor, called)
        (self.kept if line.role in ("weight", "state") else self.own)[line.id] = tensor
        if line.place is not None:
            if line.place in self.places:
                raise KvvizError(f"{called} has place {line.place} in the order, as another node does")
            self.places[line.place] = tensor
            self.graphs[-1].nodes.append(tensor)

    def _find(self, id: int, line: TensorLine, tensor: Tensor, called: str) -> Tensor:
        found = tensor if id == line.id else self.own.get(id) or self.kept.get(id)
        if found is None:
            raise KvvizError(f"{called} uses tensor {id}, which no earlier line of this graph declares")
        return found


def _check(tensor: Tensor, called: str) -> None:
    """Raise unless what a tensor says of itself can be."""
    root = tensor.root
    if tensor.view_src is not None and (root is tensor or root.view_src is not None):
        raise KvvizError(f"{called} is a view of {quoted(root.name)}, which is a view itself and owns no memory")
    if tensor.nbytes > LARGEST or (tensor.address or 0) + tensor.nbytes > LARGEST:
        raise KvvizError(f"{called} of {tensor.ne} elements, {tensor.nb} bytes apart, is larger than any memory")
    if tensor.view_offs + tensor.nbytes > root.nbytes and 0 not in tensor.ne:
        end = tensor.view_offs + tensor.nbytes
        raise KvvizError(f"{called} reaches to byte {end} of {quoted(root.name)}, which has {root.nbytes}")
    others = [source for source in tensor.src if source is not None]
    if len(others) < _SOURCES.get(tensor.op, 0):
        raise KvvizError(f"{called} is a {tensor.op} of {len(others)} tensors, but needs {_SOURCES[tensor.op]}")
    if tensor.op in VIEW_OPS and others[0] is tensor:
        raise KvvizError(f"{called} is a view of itself")
    if tensor.op in ("SET_ROWS", "GET_ROWS"):
        table = tensor if tensor.op == "SET_ROWS" else others[0]
        wrong = [row for row in rows_named(table, others[1]) or () if not 0 <= row < table.ne[1]]
        if wrong:
            raise KvvizError(f"{called} has the row index {wrong[0]}, but there are {table.ne[1]} rows")
