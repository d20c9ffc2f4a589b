"""The participants of one step, as boxes and links: its op, the makers of its inputs, later readers, its outputs.

The page draws the same ops if it has no room for more, see ``assets/widget/src/participants.ts``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.explain.summary import distinct
from kvviz.graph.model import Node
from kvviz.query.step_facts import Scene
from kvviz.report.palette import STATES
from kvviz.trace.index.hazards import hidden_pairs
from kvviz.trace.reasons import placed_before
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.trace.schema.events import VIEW, Bind, Output
from kvviz.trace.units import buffer, dims, short, size
from kvviz.view.drawing.hazard_picture import pair_state

MOST_READERS, READS_LATER = 5, "reads it later"


@dataclass(slots=True)
class Box:
    """``state``: of `STATES`, empty for a value; ``order``: boxes are laid out from lower to higher."""

    title: str
    under: str
    state: str
    order: tuple[int, int]


class Around:
    def __init__(self, trace: Trace, step: Step) -> None:
        self.trace, self.step, self.frame = trace, step, trace.frames[step.frame_id]
        self.graph, self.node = self.frame.graph, step.graph_node
        self.given = {place.name: place for place in self.frame.bindings}
        self.boxes: dict[tuple[str, Any], Box] = {}
        self.links: dict[tuple[tuple[str, Any], tuple[str, Any]], tuple[str, bool]] = {}
        self.owners: set[tuple[str, Any]] = set()  # of buffers, drawn beside views of them
        self._read()
        self._written()
        self._hidden_pairs()

    def op(self, node: Node) -> tuple[str, Any]:
        key = ("op", node.index)
        if key not in self.boxes:
            at = self.trace.step_of(self.frame.id, node.index)
            own = node is self.node
            under, state = "not run yet", "waiting"
            if at is not None:
                step = self.trace.steps[at]
                state = "running" if own else step.outcome if step.outcome in STATES else "done"
                under = " ".join(f"{dims(out.shape)} {buffer(out.storage, out.generation)}" for out in step.outs[:1])
                if own and step.copied:
                    under = f"copied {size(step.copied)} to {buffer(step.outs[0].storage, step.outs[0].generation)}"
            self.boxes[key] = Box(node.op_type, under, state, (1, node.index if at is None else at))
        return key

    def value(self, name: str, output: bool = False) -> tuple[str, Any]:
        key = ("out" if output else "in", name)
        if key not in self.boxes:
            place = None if output else self.given.get(name)
            under = (
                f"{place.how} {buffer(place.storage, place.generation)}" if place else "output" if output else "input"
            )
            self.boxes[key] = Box(short(name, 26), under, "", (2 if output else 0, len(self.boxes)))
        return key

    def source(self, name: str) -> tuple[str, Any]:
        """The maker of a value; if that is a view, the owner of the buffer is drawn, too."""
        made, at = self.graph.producers.get(name), name
        if made is None or self.trace.step_of(self.frame.id, made.index) is None:
            return self.value(name)
        own = self.op(made)
        while (below := self._viewed(at)) is not None:
            at = below
        if at != name and own not in self.owners:
            owner = self.source(at)
            self.owners.add(owner)
            self.links.setdefault((owner, own), ("same buffer", False))
        return own

    def _viewed(self, name: str) -> str | None:
        made, place = self.graph.producers.get(name), self._place(name)
        if made is None or place is None or place.how != VIEW:
            return None
        step = self.trace.step_of(self.frame.id, made.index)
        read = ((below, self._place(below, step - 1)) for below in made.inputs if below and step is not None)
        return next((below for below, its in read if its is not None and its.storage == place.storage), None)

    def _place(self, name: str, step: int | None = None) -> Output | Bind | None:
        frame: Any = self.frame
        while frame is not None:
            at = placed_before(self.trace, frame.id, name, len(self.trace.log) if step is None else step)
            if at is not None:
                return at
            frame = None if frame.parent is None else self.trace.frames[frame.parent]
        return None

    def _readers(self, name: str) -> list[Node]:
        readers = {id(node) for node in self.graph.consumers.get(name, ())}
        return [node for node in self.frame.order if id(node) in readers]

    def _read(self) -> None:
        step, blockers = self.step, distinct(self.step.decision.blockers)
        own, refused = self.op(self.node), {b.input for b in blockers}
        for name in dict.fromkeys((*self.node.inputs, *self.node.captures)):
            place = self._place(name, step.index - 1) if name else None
            weight = place is not None and self.trace.storages[place.storage].origin == "weights"
            if name and (not weight or name in refused):
                copied = name in refused and step.copied
                words = f"{size(step.copied)} copied here" if copied else ""
                words = words or ("cannot be overwritten" if name in refused else "")
                if any(words == other for other, _ in self.links.values()):
                    words = ""  # once is enough, and two would overlap
                self.links[self.source(name), own] = (words, name in refused)
        by_name = {node.name: node for node in self.graph.nodes if node.name}
        for blocker in blockers:
            if not blocker.input or not blocker.culprit or blocker.culprit == blocker.input:
                continue
            later, value = by_name.get(blocker.culprit), blocker.input
            if blocker.culprit in self.graph.consumers or blocker.culprit in self.graph.producers:
                value = blocker.culprit
                ran = ((node, self.trace.step_of(self.frame.id, node.index)) for node in self._readers(value))
                later = next((n for n, at in ran if n is not self.node and (at is None or at > step.index)), None)
            elif later is None:
                continue
            if later is not None and later is not self.node:
                self.links[self.source(value), self.op(later)] = (READS_LATER, True)
            else:
                self.source(value)

    def _written(self) -> None:
        own, results = self.op(self.node), {value.name for value in self.graph.outputs}
        written = [out.name for out in self.step.outs if out.name]
        reading = {reader.index: reader for name in written for reader in self._readers(name)}
        for reader in list(reading.values())[:MOST_READERS]:
            self.links.setdefault((own, self.op(reader)), ("", False))
        for name in written:
            if name in results:
                self.links[own, self.value(name, True)] = ("", False)

    def _hidden_pairs(self) -> None:
        """The ops whose order with this one no edge ensures, if the producer declared what its ops touch."""
        trace, step = self.trace, self.step.index
        if trace.live is not None or not trace.log.declared.accesses:
            return
        found = [pair for pair in hidden_pairs(trace, self.step.run) if step in (pair.first, pair.second)]
        found = [pair for pair in found if pair_state(pair) != "false"]
        found.sort(key=lambda pair: (not pair.exact, not pair.broken, not pair.range))
        for pair in found[:MOST_READERS]:
            for other in (trace.steps[pair.first], trace.steps[pair.second]):
                if other.frame_id == self.frame.id:
                    self.op(other.graph_node)

    def hidden(self) -> int:
        """The number of ops of the same block that play no part."""
        block = Scene(self.trace).block(self.frame.id, self.node)
        return sum(("op", node.index) not in self.boxes for node in block.nodes) if block else 0
