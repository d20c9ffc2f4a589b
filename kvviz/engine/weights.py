"""The weights of a model as storages of a trace. They are listed once for a graph.

A weight has the same number in every trace of its model, because weights come first.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.ledger import Ledger
from kvviz.engine.plans.plan import Plan
from kvviz.errors import LoadError
from kvviz.graph.model import Graph
from kvviz.memory.ghosts import ghost
from kvviz.memory.storage import Storage, address, root_of
from kvviz.trace.schema.events import Bind

Described = tuple[Bind, ...]
_KNOWN = 64  # elements of a weight that a dry run reads


class _Table:
    """The blocks of memory that hold a model's weights, at any depth, and which block each weight lies in.

    ``blocks``: bytes and root of each.
    """

    def __init__(self, graph: Graph, dry: bool) -> None:
        self.blocks: list[tuple[int, np.ndarray]] = []
        self._numbers: dict[int, int] = {}
        self._arrays: WeakKeyDictionary[Graph, Mapping[str, np.ndarray]] = WeakKeyDictionary()
        self._plans: WeakKeyDictionary[Plan, tuple[list[Any], list[tuple[int, int]], Described]] = WeakKeyDictionary()
        graphs = {graph: None} | {
            inner: None
            for _, node in graph.walk()
            for inner in (*node.subgraphs.values(), *((node.function,) if node.function else ()))
        }
        for inner in graphs:
            values = self._arrays[inner] = _ghosts(inner) if dry else inner.weights
            for value in values.values():
                root = root_of(value)
                if self._numbers.setdefault(id(root), len(self.blocks)) == len(self.blocks):
                    self.blocks.append((max(root.nbytes, value.nbytes), root))
        self.sizes = array("q", (size for size, _ in self.blocks))
        self.total = sum(self.sizes)

    def bound(self, plan: Plan) -> tuple[list[Any], list[tuple[int, int]], Described]:
        """For the weights of a plan: values by slot, (slot, number of the storage), and their bindings in the trace."""
        found = self._plans.get(plan)
        if found is None:
            weights = self._arrays[plan.graph]
            values: list[Any] = [None] * len(plan.names)
            places, described = [], []
            for name, slot in plan.weights:
                value = values[slot] = weights[name]
                root = root_of(value)
                number = self._numbers[id(root)]
                offset = address(value) - address(root) if value.size else 0
                places.append((slot, number))
                described.append(Bind(name, number, 0, "weight", value.shape, value.dtype, offset))
            found = self._plans[plan] = values, places, tuple(described)
        return found


def _ghosts(graph: Graph) -> Mapping[str, np.ndarray]:
    """The weights of a graph as ghosts; small ones are read, as they may be a shape, axes or a scale."""
    declared = getattr(graph.weights, "declared", None)
    found: dict[str, np.ndarray] = {}
    for name in graph.weights:
        value = declared(name) if declared is not None else graph.weights[name]
        shape, dtype, why = value.shape, value.dtype, ""
        if dtype is None or shape is None or dtype.hasobject or math.prod(shape) <= _KNOWN:
            try:
                found[name] = graph.weights[name]
                continue
            except LoadError as error:
                if dtype is None or shape is None:
                    raise
                why = str(error)
        found[name] = ghost(shape, dtype, why)
        found[name].flags.writeable = False
    return found


_TABLES: tuple[WeakKeyDictionary[Graph, _Table], ...] = (WeakKeyDictionary(), WeakKeyDictionary())


class Weights:
    """The weights of a model and of all its subgraphs, in one ledger; the model holds them permanently."""

    def __init__(self, graph: Graph, ledger: Ledger, dry: bool = False) -> None:
        if graph.files is not None and not dry:
            graph.files.check()
        tables = _TABLES[dry]
        self._table = tables.get(graph) or tables.setdefault(graph, _Table(graph, dry))
        self._ledger = ledger
        self._first = ledger.lend(self._table.sizes, self._table.total)
        self._bound: dict[Plan, tuple[list[Any], list[Storage | None]]] = {}

    def bind(self, frame: Frame) -> None:
        """Put a plan's weights into the slots of a frame that has just been opened."""
        bound = self._bound.get(frame.plan)
        if bound is None:
            values, places, _ = self._table.bound(frame.plan)
            stores: list[Storage | None] = [None] * len(values)
            for slot, number in places:
                stores[slot] = self._storage(number)
            bound = self._bound[frame.plan] = values, stores
        frame.vals[:], frame.stores[:] = bound

    def _storage(self, number: int) -> Storage:
        """The storage of a block of weights, made when a frame needs it, as making all is slow."""
        storages, id = self._ledger.storages, self._first + number
        storage = storages[id]
        if storage is None:
            size, root = self._table.blocks[number]
            storage = storages[id] = Storage(id, size, root, "weights", False, 1)
        return storage

    def described(self, plan: Plan) -> Described:
        """The bindings of a plan's weights in the trace."""
        return self._table.bound(plan)[2]
