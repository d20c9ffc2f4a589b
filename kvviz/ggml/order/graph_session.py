"""Graphs that run on NumPy node by node: in the order of the list, or in any order that their declared edges allow.

Source: ``ggml_graph_compute_thread`` of ggml (``ggml-cpu/ggml-cpu.c``, version 0.25.3): the list is executed from its
first node to its last, and its edges are not examined. Views do nothing, nodes without the COMPUTE flag are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kvviz.errors import KvvizError, ReplayError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.ggml_kernels import KERNELS
from kvviz.ggml.graph.graph_trace import GraphWriter, LiveTrace, results_of
from kvviz.ggml.graph.memory_plan import MemoryPlan, place_data
from kvviz.ggml.graph.op_effects import is_noop
from kvviz.ggml.graph.tensor import Tensor, described
from kvviz.ggml.graph.tensor_data import allocate, has_numbers, note_values, read, tensor_get
from kvviz.ggml.graph.tensor_data import stored as bytes_of
from kvviz.graph.model import Node
from kvviz.graph.topological_order import frontier
from kvviz.interrupts import deliver, held_back
from kvviz.trace.recording import Trace
from kvviz.trace.records import Live


class Executor:
    """Runs graphs and writes down what they do. What several graphs share, such as a cache, stays between them.

    Examples
    --------
    >>> from kvviz.ggml.graph.context import Context
    >>> ctx = Context()
    >>> x = ctx.new_tensor("f32", 1, name="x", data=3)
    >>> graph = ctx.new_graph().expand(ctx.add_inplace(x, x))
    >>> executor = Executor("twice")
    >>> executor.run(graph, "first"), executor.run(graph, "second")
    (1, 1)
    >>> executor.finish().outputs["x (view)"]
    array([12.], dtype=float32)
    """

    def __init__(
        self,
        title: str,
        *,
        values: int | str = "1 MB",
        plans: Mapping[ComputeGraph, MemoryPlan] | None = None,
        about: str = "NumPy, in the order of the node list",
    ) -> None:
        self.title = title
        self.writing = GraphWriter(title, about, values, plans)
        self._plans = plans or {}
        self._ahead: list[Tensor] = []  # nodes of this graph that have not run, the next one last

    def begin(self, graph: ComputeGraph, text: str = "", order: Sequence[Tensor] | None = None) -> None:
        """Begin a graph, without running a node of it.

        ``order``: its executed nodes in the order in which they run. All are then declared beforehand.
        """
        if not graph.nodes:
            raise KvvizError(f"graph {graph.title!r} has no nodes; expand it with the tensors to compute")
        if graph in self._plans:
            place_data(self._plans[graph])
        self.writing.begin(graph, text, self._seen, order is not None)
        self._ahead = list(graph.executed if order is None else order)[::-1]

    @property
    def next_node(self) -> Tensor | None:
        """The next node; None when all have run."""
        return self._ahead[-1] if self._ahead else None

    def step(self, node: Tensor | None = None, listed: bool = False) -> Tensor | None:
        """Run one of the nodes ahead, by default the next one, and log it; None when all have run.

        ``listed``: only log it, as for a recording, which has no data.
        """
        if not self._ahead:
            return None
        node = self._ahead[-1] if node is None else node
        if not listed and not is_noop(node):
            self._execute(node)
        if node is self._ahead[-1]:
            self._ahead.pop()
        else:
            self._ahead.remove(node)
        self.writing.op(node, self._seen(node))
        return node

    def run(self, graph: ComputeGraph, text: str = "", upto: int | None = None) -> int:
        """Run a graph, or its first ``upto`` nodes; returns their number."""
        self.begin(graph, text)
        count = 0
        while (upto is None or count < upto) and self.step() is not None:
            count += 1
        return count

    def finish(self) -> Trace:
        """The recording of all that has run; nothing more can be run with this executor."""
        self._ahead = []
        return self.writing.finish(numbers=True)

    def _seen(self, tensor: Tensor) -> np.ndarray | None:
        if not self.writing.writer.keeps_values or not has_numbers(tensor):
            return None
        return read(tensor).reshape(tensor.region.shape)

    def _execute(self, node: Tensor) -> None:
        kernel = KERNELS.get(node.op)
        if kernel is None:
            raise KvvizError(f"there is no kernel for {node.op} ({described(node)})")
        for source in node.others:
            if source.root.data is None:
                raise KvvizError(
                    f"{node.op} {described(node)} reads {described(source)}, which was not computed before"
                )
        allocate(node.root)
        with np.errstate(all="ignore"):
            kernel(node)
        note_values(node)


def roots_of(graph: ComputeGraph) -> set[Tensor]:
    return {tensor.root for tensor in (*graph.leafs, *graph.nodes)}


def saved_state(graphs: Iterable[ComputeGraph]) -> dict[Tensor, np.ndarray]:
    """What the leafs of graphs hold now: the state to `restore_state` before another order is tried."""
    return {leaf: data.copy() for leaf, data in held_by(graphs).items()}


def held_by(graphs: Iterable[ComputeGraph]) -> dict[Tensor, np.ndarray]:
    """The memory of the leafs of graphs."""
    leafs = {root for graph in graphs for root in roots_of(graph)}
    return {leaf: leaf.data for leaf in leafs if leaf.op == "NONE" and leaf.data is not None}


def restore_state(state: Mapping[Tensor, np.ndarray]) -> None:
    """Restore the contents of leafs."""
    for leaf, data in state.items():
        assert leaf.data is not None
        leaf.data[...] = data
        note_values(leaf)


GraphRun = tuple[ComputeGraph, str, Sequence[Tensor]]
"""A graph, the title of its run, and its executed nodes in the order in which they run."""


class GraphSession(Executor):
    """Graphs one after the other; what they share, such as a cache, stays between them.

    It has memory of its own: what the tensors hold outside is as before after every step. ``trace`` grows with every
    step. ``execution`` is the graph that runs; None between two, and at the end. ``previews``: whether `look_ahead`
    also says what each node would allocate.
    """

    def __init__(
        self,
        runs: Sequence[GraphRun],
        title: str,
        held: Mapping[Tensor, np.ndarray] | None,
        about: str = "",
        values: int | str = 0,
    ) -> None:
        self.previews = False
        self.listed = held is None
        self.execution: ComputeGraph | None = None
        self._runs = list(runs)
        self._begun = 0
        how: dict[str, Any] = {"values": values} if held is not None else {"values": 0, "about": about}
        super().__init__(title, **how)
        self._memory: dict[Tensor, tuple[np.ndarray | None, np.ndarray | None]] = {}
        for leaf, data in (held or {}).items():
            self._memory[leaf] = (data if leaf.role == "weight" else data.copy()), None
        self._owners = [] if held is None else list({root for graph, *_ in runs for root in roots_of(graph)})
        self._places: dict[Tensor, int] = {}
        self._nodes: list[Tensor] = []
        self._writing: LiveTrace | None = None
        self.next_run()
        assert self._writing is not None
        self.trace: Trace = self._writing.trace

    def next_run(self) -> bool:
        if self._begun == len(self._runs):
            return False
        graph, text, order = self._runs[self._begun]
        with self._own_memory():
            self.begin(graph, text, order)
        self._begun += 1
        self._nodes = graph.executed
        self._places = {node: place for place, node in enumerate(self._nodes)}
        writer, values = self.writing.writer, self.writing.values
        outputs = tuple(writer.named([values[node] for node in results_of(self._nodes)]))
        if self._writing is None:
            self._writing = LiveTrace(writer, outputs)
        else:
            self._writing.begin(outputs)
        self.execution = graph
        return True

    def advance(self, choice: Node | None = None) -> bool:
        """Run one more node (``choice``: which of the frontier), beginning the next graph where one is due; False at
        the end. Raises `KvvizError`: if that node is not in the frontier, or cannot be run."""
        with held_back():
            if self.execution is None and not self.next_run():
                self.trace.live = None
                return False
            node = None if choice is None else self._nodes[choice.index]
            ready = self._ready() if node is not None else []
            if node is not None and node not in ready:
                names = ", ".join(one.name for one in ready[:8])
                raise KvvizError(f"node {node.name!r} cannot run next; the frontier is {names}")
            self._advance(node)
            return True

    def finish_run(self) -> None:
        while self.execution is not None:
            self.advance()
            deliver()

    def run_to_end(self) -> Trace:
        """Run everything that is left. A keyboard interrupt leaves a valid trace of what ran."""
        self.trace.interrupted = False
        try:
            while self.advance():
                deliver()
        except KeyboardInterrupt:
            self.trace.interrupted = True
        self.trace.live = None
        return self.trace

    def look_ahead(self) -> Live | None:
        """Find out which nodes may run next by the declared edges, the default one first."""
        if self.execution is None and not self.next_run():
            self.trace.live = None
            return None
        frame = len(self.trace.log.frames) - 1
        program = self.trace.log.frames[frame].program.graph.nodes
        ready = self._ready()
        costs = tuple((0 if node.view_src is not None else node.nbytes, 0) for node in ready) if self.previews else ()
        self.trace.live = Live(frame, tuple(program[self._places[node]] for node in ready), costs)
        return self.trace.live

    @property
    def run_is_over(self) -> bool:
        """Whether the next step would belong to another graph."""
        return self.execution is None

    def look(self) -> None:
        """Put kept values into the trace, also of a run that goes on."""
        assert self._writing is not None
        self._writing.summarise()

    def follow(self, trace: Trace, upto: int) -> None:
        """Run the steps before ``upto`` of a recording of these graphs, in its order; nothing has run before."""
        for row in trace.log[:upto]:
            if self.execution is None:
                self.next_run()
            # A recorded order is one in which every node was ready.
            with held_back():
                self._advance(self._nodes[row.op.node.index])

    def take(self, trace: Trace, frame: int, node: Node) -> None:
        """Run an op that was ready in a recording at this point; see `kvviz.debugger.state.find_choice`."""
        self.look_ahead()
        self.advance(node)

    def value(self, name: str, stored: bool = False) -> Any:
        """What a value of the present graph holds now; ``stored``: its bytes.

        Raises `ReplayError`: if there is none of that name, or it was not computed.
        """
        values = self.writing.values
        labels = dict(zip(self.writing.writer.named(values.values()), values))
        if name not in labels:
            raise ReplayError(f"value {name!r} does not exist in {self.trace.title!r}")
        with self._own_memory():
            if not has_numbers(labels[name]):
                raise ReplayError(f"value {name!r} was not computed, or its type cannot be read")
            return bytes_of(labels[name]).tobytes() if stored else tensor_get(labels[name])

    # -- inside -----------------------------------------------------------------------------------------------------

    def _advance(self, node: Tensor | None) -> None:
        assert self._writing is not None
        with self._own_memory():
            self.step(node, self.listed)
        self._writing.follow()
        if self.next_node is None:
            with self._own_memory():
                self.writing.end(self.trace, results_of(self._nodes))
            self._writing.summarise()
            self.execution = None

    def _ready(self) -> list[Tensor]:
        """The frontier by the declared edges, in the order in which the nodes would run by themselves."""
        places, ahead = self._places, set(self._ahead)
        needs = ([places[source] for source in node.others if source in places] for node in self._nodes)
        ready = set(frontier(needs, [node not in ahead for node in self._nodes]))
        return [node for node in reversed(self._ahead) if places[node] in ready]

    @contextmanager
    def _own_memory(self) -> Iterator[None]:
        """Let the tensors hold this session's data."""
        outside = [(owner, owner.data, owner.values) for owner in self._owners]
        for owner in self._owners:
            owner.data, values = self._memory.get(owner, (None, None))
            if values is not None:
                owner.values = values
            else:
                note_values(owner)
        try:
            yield
        finally:
            for owner, data, values in outside:
                self._memory[owner] = owner.data, owner.values
                owner.data, owner.values = data, values
