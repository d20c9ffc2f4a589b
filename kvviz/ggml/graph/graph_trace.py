"""Compute graphs, built, run or recorded, as a trace: each graph is a run, and its nodes are ops in list order.

The layer that a node belongs to follows from llama.cpp's names: ``Kcur-3``, ``cache_k_l3``, ``blk.3.…``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from kvviz.caches.stored_rows import stored_caches
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.memory_plan import RULES, MemoryPlan, NodePlan, observed_plan
from kvviz.ggml.graph.op_effects import Effect, effects, is_noop
from kvviz.ggml.graph.tensor import OUTPUT, Tensor, type_size
from kvviz.ggml.graph.tensor_data import has_numbers, tensor_get
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import Program
from kvviz.trace.schema.log import Log
from kvviz.trace.writer import Writer

# The number may be followed by what ggml adds for views and copies.
_OWN = re.compile(r"^[^ ]*?(?:-|_l)(\d{1,5})(?: \(.*)?$")
_WEIGHT = re.compile(r"^(?:enc\.|dec\.)?blk\.(\d{1,5})\.")


def layers_of(nodes: Sequence[Tensor]) -> list[int | None]:
    """The layer of each node; None for those of no layer. The node's own name states its layer, else the weight or
    cache that it uses. A node without such a name belongs to the layer of its sources if that has not ended, otherwise
    to the one around it: ggml mixes the end of a layer with the start of the next."""
    places = {node: place for place, node in enumerate(nodes)}
    said = [_said(node) for node in nodes]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, layer in enumerate(said):
        if layer is not None:
            first.setdefault(layer, place)
            last[layer] = place
    found: list[int | None] = list(said)
    # Layers begin one after the other, so the latest is the innermost.
    begun: list[int] = []
    for place, layer in enumerate(said):
        if layer is not None and first[layer] == place:
            begun.append(layer)
        while begun and last[begun[-1]] <= place:
            begun.pop()
        if layer is None and begun:
            made = (found[places[source]] for source in nodes[place].src if source in places)
            open_ = (layer for layer in made if layer is not None and last[layer] > place)
            found[place] = max(open_, default=begun[-1])
    return found


def _said(node: Tensor) -> int | None:
    names = [node.name, *(source.name for source in node.sources if source.role)]
    for pattern in (_OWN, _WEIGHT):
        for name in names:
            match = pattern.match(name)
            if match:
                return int(match[1])
    return None


_BOUND = {"weight": "weight", "state": "donated"}
_ORIGIN = {"weight": "weights", "state": "donated"}
_PLANNED = "ggml's graph allocator decided where outputs lie"


def to_trace(
    graphs: Sequence[ComputeGraph],
    title: str,
    *,
    about: str = "the order of the node list",
    labels: Iterable[str] = (),
    plans: Mapping[ComputeGraph, MemoryPlan] | None = None,
) -> Trace:
    """A trace of graphs that were executed one after the other, without their values.

    Parameters
    ----------
    graphs : sequence of ComputeGraph
    about : str
        One sentence on who decided where outputs lie.
    labels : iterable of str
        The label of each run.
    plans : mapping of ComputeGraph to MemoryPlan, optional
        Where `kvviz.ggml.plan_memory` puts the tensors of each graph. The trace then has addresses, the allocator's
        decisions, and when it frees what.
    """
    writing = GraphWriter(title, about, plans=plans)
    texts = [*labels, *[""] * len(graphs)]
    for graph, text in zip(graphs, texts):
        writing.begin(graph, text)
        for node in graph.executed:
            writing.op(node)
    return writing.finish()


class GraphWriter:
    def __init__(
        self,
        title: str,
        about: str = "the order of the node list",
        values: int | str = 0,
        plans: Mapping[ComputeGraph, MemoryPlan] | None = None,
    ) -> None:
        self.writer = (
            Writer(title, "ggml", about, values=values)
            if plans is None
            else Writer(title, "ggml gallocr", f"{about}; {_PLANNED}", values=values, decides=True, rules=RULES)
        )
        self._plans = plans or {}
        self._plan: MemoryPlan | None = None
        self._decided: dict[Tensor, NodePlan] = {}
        self.values: dict[Tensor, int] = {}
        self.storages: dict[Tensor, int] = {}
        self._written: set[Tensor] = set()  # leafs that a node writes
        self._made: list[Tensor] = []  # nodes of this run
        self._leafs: set[Tensor] = set()
        self._places: dict[Tensor, int] = {}  # nodes of this graph in its order
        self._meant: dict[Tensor, int] = {}  # the same in the order of the original list
        self._layers: list[int | None] = []

    def begin(
        self,
        graph: ComputeGraph,
        text: str = "",
        given: Callable[[Tensor], np.ndarray | None] | None = None,
        declared: bool = False,
    ) -> None:
        """Begin a graph. The results of the previous graph are freed, and so are its inputs that this one does not use;
        weights and states stay. ``given`` returns the content of a leaf, for its summary. ``declared``: declare all
        nodes now, in list order, although they may run in another order."""
        touched = (effect for node in graph.nodes for effect in effects(node))
        self._written.update(effect.tensor.root for effect in touched if effect.writes)
        asked = {leaf.root for leaf in graph.leafs}
        for root in [root for root in self.storages if not self._stays(root, asked)]:
            self._free(self.storages.pop(root))
        kept = self.values.items()
        self.values = {one: value for one, value in kept if one.op == "NONE" and one.root in self.storages}
        self._made = []
        self._leafs = {leaf for leaf in graph.leafs if leaf.role or leaf.op == "NONE"}
        self._places = {node: place for place, node in enumerate(graph.nodes)}
        self._meant = {node: place for place, node in enumerate(graph.meant or ())}
        self._layers = layers_of(graph.nodes)
        self.writer.begin_run(text, keep=self.values.values())
        self._plan = self._plans.get(graph)
        # In another order than the allocator's, addresses say nothing.
        if self._plan is None and graph.meant is None and not declared:
            self._plan = observed_plan(graph)
        self._decided = {} if self._plan is None else {decided.node: decided for decided in self._plan.nodes}
        for leaf in graph.leafs:
            self.writer.give(self._value(leaf), None if given is None or leaf.role == "weight" else given(leaf))
        for node in graph.executed if declared else ():
            self._declare(node)

    def _declare(self, node: Tensor) -> None:
        """Declare a node that has not run yet, so that a growing trace has the whole program from the start. The
        writer recognises it by its output."""
        inputs = [self._value(source) for source in node.others]
        for effect in effects(node):
            self._value(effect.tensor)
        for value in inputs:
            self.writer.use(value)
        made, run = self._value(node), self.writer.run()
        run.made.add(made)
        read, (name,) = self.writer.named(inputs), self.writer.named([made])
        run.declared[name,] = run.node(node.kind, node.name or name, read, [name], scope=self._scope(node))

    def _scope(self, node: Tensor) -> tuple[str, ...]:
        layer = self._layers[self._places[node]]
        return () if layer is None else (f"layer.{layer}",)

    def op(self, node: Tensor, array: np.ndarray | None = None) -> int:
        """Write a node that was executed, or a view, which executes nothing; returns its step. ``array`` is summarised,
        not kept."""
        inputs = [self._value(source) for source in node.others]
        touched = effects(node)
        for effect in touched:
            self._value(effect.tensor)
        self._made.append(node)
        decided = self._decided.get(node)
        step = self.writer.op(
            node.kind,
            inputs,
            [self._value(node)],
            name=node.name,
            reads=[self.values[effect.tensor] for effect in touched if not effect.writes],
            writes=[self.values[effect.tensor] for effect in touched if effect.writes],
            regions={
                (self.values[effect.tensor], effect.writes): effect.region for effect in touched if not effect.whole
            },
            copied=_copied(node, touched),
            arrays=[array],
            refused=None if decided is None else _by_input(node, decided),
            position=self._meant.get(node),
            scope=self._scope(node),
            attributes={"id": node.id} if node.id else None,
        )
        if decided is not None:
            for tensor in decided.freed:
                self._free(self.storages.get(self._owner(tensor)))
            for tensor in decided.withheld:
                self.writer.free(self._storage(tensor), "an OUTPUT is never given back", False)
        return step

    def _free(self, storage: int | None) -> None:
        if storage is not None and self.writer.is_alive(storage):
            self.writer.free(storage)

    def finish(self, numbers: bool = False) -> Trace:
        """The trace; outputs are those of the last graph, as far as it ran. ``numbers``: with what they hold now."""
        out = results_of(self._made)
        trace = self.writer.finish([self.values[node] for node in out])
        self.end(trace, out if numbers else ())
        return trace

    def end(self, trace: Trace, out: Sequence[Tensor]) -> None:
        """Put what is known when a graph has ended into a trace: its caches, and what its outputs hold now."""
        names = self.writer.named([self.values[node] for node in out])
        trace.outputs = {name: tensor_get(node) for name, node in zip(names, out) if has_numbers(node)}
        trace.caches = stored_caches(trace)

    def _value(self, tensor: Tensor) -> int:
        storage = self._storage(tensor.root)
        if tensor not in self.values:
            offset, shape, strides, dtype, *_ = tensor.layout
            name = tensor.name or f"unnamed {tensor.op}"
            self.values[tensor] = self.writer.value(name, shape, dtype, storage, offset, strides, placed=tensor.placed)
            if tensor in self._leafs or (tensor.op == "NONE" and tensor.view_src is None):
                self.writer.bind(self.values[tensor], _BOUND.get(self._role(tensor), "borrowed"))
        return self.values[tensor]

    def _storage(self, root: Tensor) -> int:
        root = self._owner(root)
        if root not in self.storages:
            place = None if self._plan is None else self._plan.places.get(root)
            origin = _ORIGIN.get(self._role(root), "caller" if root.op == "NONE" else "run")
            self.storages[root] = self.writer.storage(
                root.capacity,
                origin=origin,
                arena=root.buffer if place is None else place.arena,
                address=root.address if place is None else place.offset,
            )
            if root.op == "NONE":
                self._value(root)  # the root of a view exists before the view, and has a name
        return self.storages[root]

    def _owner(self, tensor: Tensor) -> Tensor:
        return tensor.root if self._plan is None else self._plan.owner(tensor)

    def _stays(self, root: Tensor, asked: set[Tensor]) -> bool:
        return root.op == "NONE" and not self._is_planned(root) and (root in asked or self._role(root) in _BOUND)

    def _is_planned(self, leaf: Tensor) -> bool:
        return self._plan is not None and leaf in self._plan.places

    def _role(self, leaf: Tensor) -> str:
        if leaf.op != "NONE":
            return ""
        # The allocator reuses the memory of inputs after they were read.
        return "state" if self._is_planned(leaf) or (not leaf.role and leaf in self._written) else leaf.role


def results_of(nodes: Sequence[Tensor]) -> list[Tensor]:
    """Nodes that no other one uses, and those flagged as outputs."""
    used = {source for node in nodes for source in node.others}
    return [node for node in nodes if node not in used or node.flags & OUTPUT]


def _by_input(node: Tensor, decided: NodePlan) -> dict[int, int]:
    """Reasons by position among the sources that are inputs in the log: without gaps and without the node itself."""
    kept = [position for position, source in enumerate(node.src) if source is not None and source is not node]
    return {kept.index(position): mask for position, mask in decided.masks.items() if position in kept}


def _copied(node: Tensor, touched: Sequence[Effect]) -> int:
    """The written bytes that an op only moves."""
    if node.op not in ("CPY", "CONT", "DUP", "SET_ROWS", "GET_ROWS") or is_noop(node):
        return 0
    block, size = type_size(node.type)
    count = prod(node.ne)
    if node.op == "SET_ROWS":
        rows, source = touched[-1].rows, node.src[0]
        count = prod(source.ne) if rows is None and source is not None else len(set(rows or ())) * node.ne[0]
    return count // block * size


class LiveTrace:
    """Moves into one trace what a writer has written since the last call: in its present run and in those passed to
    `begin`, whose ops are all declared, and may run in another order. Storages and declarations are the writer's own;
    rows go from its runs into the log as they come. ``outputs``: those of the run."""

    def __init__(self, writer: Writer, outputs: tuple[str, ...]) -> None:
        self._writer, self._log = writer, Log()
        self._log.storages, self._log.declared = writer.log.storages, writer.log.declared
        self._known: dict[Any, Program] = {}
        self._died = 0  # storages that died with the last op, and are in the log
        self._open = writer.run().open(self._log, 0, writer.title, outputs, self._known)
        self.trace = Trace(self._log.frames[0].program.graph, writer.policy, self._log, writer.title)
        self.trace.runs = [self._open.record]

    def begin(self, outputs: tuple[str, ...]) -> None:
        """Take over the run that the writer has begun and declared."""
        self._let_go()
        runs, writer = self.trace.runs, self._writer
        self._open = writer.run().open(self._log, len(runs), writer.title, outputs, self._known)
        runs.append(self._open.record)

    def follow(self) -> None:
        self._let_go()
        before = len(self._log)
        self._writer.run().pour(self._log, self._open, self._writer.freed)
        if len(self._log) > before:
            self._died = len(self._writer.freed.get(len(self._log) - 1, ()))

    def summarise(self) -> None:
        self.trace.value_summaries = self._writer.arrays.summaries(len(self._log))

    def _let_go(self) -> None:
        died = self._writer.freed.get(len(self._log) - 1, ())[self._died :] if len(self._log) else ()
        if died:
            self._log.free(died)
            self._died += len(died)
