"""A graph made ready to run: its nodes, their order, slots and kernels.

A plan is made once for (graph, outputs, policy) and used by every run of a decode loop. Slot 0 is "absent".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary, ref

from kvviz.engine.recorded_answers import Answers
from kvviz.errors import GraphError, UnknownValueError, UnsupportedOpsError
from kvviz.graph.model import Graph, Node
from kvviz.ops.kernels import Kernel, foreign_available, kernel_of
from kvviz.ops.registry import Grow, OpSpec, find
from kvviz.trace.schema.events import Grows, OpNode

Counts = Mapping[str, int]
"""Counts that depend on data, given for a dry run by node: elements picked, iterations, 1 or 0 for a branch."""

CONTROL = {"If", "Loop", "Scan"}
KEEP = 1 << 30  # use count of values that a frame never releases: weights, captures by reference
PIN = 1 << 20  # added to the use count of a value that lives to the end of its frame
ABSENT = 0
# Views that begin where their input begins; the offset of any other view is looked up.
SAME_START = {
    "Cast",
    "CastLike",
    "Dropout",
    "Expand",
    "Flatten",
    "Identity",
    "Reshape",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
}


class PlannedNode:
    """One node with everything that its execution needs, looked up once."""

    __slots__ = (
        "attributes",
        "call",
        "candidates",
        "captures",
        "consumes",
        "control",
        "cost",
        "depends",
        "fetch",
        "fits",
        "foreign",
        "grows",
        "inputs",
        "lone_input",
        "lone_view",
        "moves",
        "node",
        "notes",
        "outputs",
        "plain",
        "position",
        "reads",
        "record",
        "refusals",
        "shape",
        "slides",
        "spec",
        "spends",
        "strides",
        "views",
        "watches",
        "written",
    )

    def __init__(self, node: Node, position: int, slot: Callable[[str], int], recorded: bool = False) -> None:
        self.node = node
        self.notes: Any = None  # data that a policy prepared
        self.position = position
        self.inputs = tuple(slot(name) for name in node.inputs)
        # One call for all arguments; an itemgetter of a single slot would not return a tuple.
        self.fetch = itemgetter(*self.inputs) if len(self.inputs) > 1 else None
        self.lone_input = self.inputs[0] if len(self.inputs) == 1 else -1
        self.outputs = tuple(slot(name) for name in node.outputs)
        self.captures = tuple((name, slot(name)) for name in node.captures)
        counts = Counter(s for s in self.inputs if s)
        counts.update(s for _, s in self.captures)
        self.reads = dict(counts)
        self.consumes = tuple(counts.items())
        self.control = ""
        if node.function is not None and find(node.domain, node.op_type, node.opset) is None:
            self.control = "function"
        elif node.op_type in CONTROL and node.domain == "":
            self.control = node.op_type
        self.attributes = dict(node.attributes)
        self.spec: OpSpec | None = None
        self.foreign = False
        self.call: Callable[..., Any] = _no_kernel
        self.candidates: tuple[tuple[int, int], ...] = ()
        self.grows: tuple[Grow, ...] = ()
        self.fits: Callable[..., str] | None = None
        self.views: tuple[int, ...] = ()
        self.depends: tuple[int, ...] = ()
        if not self.control:
            self._find_kernel(recorded)
        self.note_record()
        self.cost = self.spec.cost if self.spec else None
        self.written = self.spec.written if self.spec else None
        self.moves = self.spec is not None and self.spec.moves
        # Two fast paths: nothing to decide, and a single output.
        self.watches = bool(self.candidates or self.grows)
        lone = len(self.outputs) == 1 and bool(self.outputs[0]) and not self.foreign and not self.control
        self.plain = lone and self.views in ((), (0,))
        self.lone_view = lone and self.views == (0,)
        self.slides = node.op_type not in SAME_START
        # Records of the last step of this node, reused if equal: this keeps a trace of many runs small.
        self.shape: tuple[int, ...] | None = None
        self.strides: tuple[int, ...] | None = None
        self.refusals: tuple[tuple[int, int], ...] = ()
        # Slots that a step reads once and may release; None if it reads one twice.
        self.spends: tuple[int, ...] | None = None

    def note_record(self, note: str = "") -> None:
        """Make the record of this node for the log."""
        self.record = OpNode(
            *(self.node, self.position, self.control, self.foreign, self.views),
            overwrites=tuple(position for position, _ in self.candidates),
            grows=tuple(Grows(grow.input, grow.output, grow.reads) for grow in self.grows),
            unread=tuple(at for at in self.spec.unread if at < len(self.inputs)) if self.spec else (),
            note=note,
        )

    def _find_kernel(self, recorded: bool) -> None:
        try:
            kernel = kernel_of(self.node)
        except UnsupportedOpsError:
            if not recorded:
                raise
            kernel = Kernel(_recorded_only, None, dict(self.node.attributes))
        self.call, self.spec, self.attributes = kernel
        self.foreign = kernel.spec is None
        if kernel.spec is None:
            return
        spec, given, outputs = kernel.spec, range(len(self.inputs)), len(self.node.outputs)
        self.views = spec.views
        self.fits = spec.fits
        self.candidates = tuple((i, self.inputs[i]) for i in spec.overwrites if i in given and self.inputs[i])
        self.grows = tuple(g for g in spec.grows if g.input in given and self.inputs[g.input] and g.output < outputs)


_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


def may_draw(node: Node) -> bool:
    """Whether an op may draw other random numbers each time; a Dropout only in training, which takes a third input."""
    drops = node.op_type == "Dropout" and len(node.inputs) > 2 and bool(node.inputs[2])
    return (drops or node.op_type in _RANDOM) and "seed" not in node.attributes


class Plan:
    """The nodes of one graph that the requested outputs need, ready to run in ``order``. ``slots``: value name to slot.
    ``uses``: reads of each slot in one activation, plus one for a requested output. ``dry``: if not None, its kernels
    make ghosts, and these are the counts that depend on data."""

    def __init__(self, graph: Graph, outputs: Sequence[str], nodes: Sequence[Node], dry: Counts | None = None) -> None:
        self.dry = dry
        self._graph = ref(graph)
        self._facts: tuple[tuple[OpNode, ...], tuple[str, ...]] | None = None
        self.slots: dict[str, int] = {"": ABSENT}
        self.names: list[str] = [""]
        self.order = tuple(PlannedNode(node, i, self._slot, isinstance(dry, Answers)) for i, node in enumerate(nodes))
        self.inputs = tuple(self._slot(value.name) for value in graph.inputs)
        self.outputs = tuple(self._slot(name) for name in outputs)
        self.is_output = frozenset(self.outputs)
        self.uses = [0] * len(self.names)
        for planned in self.order:
            for slot, count in planned.consumes:
                self.uses[slot] += count
        for slot in self.is_output:
            self.uses[slot] += 1
        producer = {slot: p.position for p in self.order for slot in p.outputs if slot}
        for planned in self.order:
            planned.depends = tuple(sorted({producer[s] for s, _ in planned.consumes if s in producer}))
        made = {*producer, *self.inputs, ABSENT}
        self.weights = tuple((n, s) for n, s in self.slots.items() if s and n in graph.weights)
        known = made | {s for _, s in self.weights}
        self.captured = tuple((n, s) for n, s in self.slots.items() if s not in known)
        self.notes: Any = None
        # Programs learned from its runs, by donated inputs: see `kvviz.engine.program.step_program`.
        self.programs: dict[frozenset[str], Any] = {}
        # The plans of bodies that its runs have entered, at any depth.
        self.bodies: WeakKeyDictionary[Graph, Plan] = WeakKeyDictionary()
        self._places: dict[int, int] = {}
        self._in_order: set[int] | None = None  # slots for which `is_loose` is False
        for _, slot in self.weights:
            self.uses[slot] += KEEP
        # A weight is never released, unless the caller may give a value instead.
        given = {self.slots.get(value.name) for value in graph.overridable}
        fixed = {slot for _, slot in self.weights if slot not in given}
        for planned in self.order:
            if not planned.control and all(count == 1 for _, count in planned.consumes):
                planned.spends = tuple(slot for slot, _ in planned.consumes if slot not in fixed)

    def planned(self, index: int, at: int) -> PlannedNode | None:
        """The planned node with this index, expected at the position ``at``; None if it does not run."""
        order = self.order
        if at < len(order) and order[at].node.index == index:
            return order[at]
        if not self._places:
            self._places = {planned.node.index: planned.position for planned in order}
        place = self._places.get(index)
        return None if place is None else order[place]

    def is_loose(self, slot: int) -> bool:
        """Whether nothing depends on the memory layout of a value: neither the caller nor a product, sum or Reshape
        reads it, nor an op that may pass its layout on to a value for which this is False."""
        if self._in_order is None:
            self._in_order = set(self.is_output)
            for planned in reversed(self.order):
                if planned.spec is None or not planned.spec.by_element:
                    self._in_order.update(planned.reads)
                elif not self._in_order.isdisjoint(planned.outputs):
                    passed = (*planned.views, *(i for i, _ in planned.candidates), *(g.input for g in planned.grows))
                    self._in_order.update(planned.inputs[i] for i in passed if i < len(planned.inputs))
        return slot not in self._in_order

    @property
    def graph(self) -> Graph:
        """The graph. It keeps its plans alive, not the other way round; a running session holds the graph."""
        graph = self._graph()
        assert graph is not None
        return graph

    def facts(self) -> tuple[tuple[OpNode, ...], tuple[str, ...]]:
        if self._facts is None:
            records = tuple([planned.record for planned in self.order])
            self._facts = records, tuple([self.names[slot] for slot in self.outputs])
        return self._facts

    def _slot(self, name: str) -> int:
        slot = self.slots.get(name)
        if slot is None:
            slot = self.slots[name] = len(self.names)
            self.names.append(name)
        return slot


def needed(graph: Graph, outputs: Sequence[str]) -> list[Node]:
    # A given value needs no node: see `kvviz.runtimes.rten.rten_policy`.
    wanted, stack = {value.name for value in graph.inputs}, list(outputs)
    nodes: set[int] = set()
    producers = graph.producers
    while stack:
        name = stack.pop()
        if name in wanted or not name:
            continue
        wanted.add(name)
        node = producers.get(name)
        if node is not None and node.index not in nodes:
            nodes.add(node.index)
            stack.extend((*node.inputs, *node.captures))
    return [node for node in graph.nodes if node.index in nodes]


def check_outputs(graph: Graph, outputs: Sequence[str]) -> None:
    """Raise `GraphError` for an output that is neither a node's output nor a weight nor an input."""
    for name in outputs:
        if name in graph.producers or name in graph.weights or any(value.name == name for value in graph.inputs):
            continue
        raise GraphError(
            f"the graph has no value named {name!r}; its outputs are {', '.join(o.name for o in graph.outputs)}"
        )


def unsupported(graph: Graph) -> list[str]:
    """All operators, at any depth, that neither kvviz nor the ONNX reference evaluator has a kernel for."""
    missing: Counter[str] = Counter()
    for _, node in graph.walk():
        ours = node.function is not None or (node.domain == "" and node.op_type in CONTROL)
        if ours or find(node.domain, node.op_type, node.opset) is not None:
            continue
        if not foreign_available(node.domain, node.op_type, node.opset):
            missing[f"{node.qualified_op} (opset {node.opset})"] += 1
    return [f"{name} ×{count}" for name, count in missing.items()]


def _recorded_only(*_: Any, **__: Any) -> Any:
    raise UnknownValueError("only a recording says what this op gives")


def _no_kernel(*_: Any) -> Any:
    raise GraphError("a control node has no kernel of its own")
