"""What takes part in one step, as boxes and links: its op, what made its inputs, what reads them later, its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.graph.blocks import blocks
from kvviz.graph.model import Node
from kvviz.report.palette import STATES
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.trace.units import buffer, dims, short, size

MOST_READERS, READS_LATER = 4, "reads it later"


@dataclass(slots=True)
class Box:
    """``state``: of `STATES`, empty for a value; ``order``: boxes are laid out from lower to higher."""

    title: str
    under: str
    state: str
    order: tuple[int, int]


class Around:
    """The ops and values around one step, as boxes and links with their words."""

    def __init__(self, trace: Trace, step: Step) -> None:
        self.trace, self.step, self.frame = trace, step, trace.frames[step.frame_id]
        self.graph, self.node = self.frame.graph, step.graph_node
        self.given = {place.name: place for place in self.frame.bindings}
        self.boxes: dict[tuple[str, Any], Box] = {}
        self.links: dict[tuple[tuple[str, Any], tuple[str, Any]], tuple[str, bool]] = {}
        self._read()
        self._written()

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
        made = self.graph.producers.get(name)
        return self.op(made) if made is not None else self.value(name)

    def _read(self) -> None:
        own, refused = self.op(self.node), {b.input for b in self.step.decision.blockers}
        for name in dict.fromkeys(self.node.inputs):
            if name and (name not in self.graph.weights or name in refused):
                copied = name in refused and self.step.copied
                words = f"{size(self.step.copied)} copied here" if copied else ""
                words = words or ("cannot be overwritten" if name in refused else "")
                if any(words == other for other, _ in self.links.values()):
                    words = ""  # once is enough, and two would overlap
                self.links[self.source(name), own] = (words, name in refused)
        by_name = {node.name: node for node in self.graph.nodes if node.name}
        for blocker in self.step.decision.blockers:
            later = by_name.get(blocker.culprit)
            if later is not None and later is not self.node and blocker.input:
                self.links[self.source(blocker.input), self.op(later)] = (READS_LATER, True)

    def _written(self) -> None:
        own, results = self.op(self.node), {value.name for value in self.graph.outputs}
        outputs = [name for name in self.node.outputs if name]
        readers = {reader.index: reader for name in outputs for reader in self.graph.consumers.get(name, ())}
        for reader in list(readers.values())[:MOST_READERS]:
            self.links.setdefault((own, self.op(reader)), ("", False))
        for name in outputs:
            if name in results:
                self.links[own, self.value(name, True)] = ("", False)

    def hidden(self) -> int:
        """Ops of the same block that play no part."""
        for block in blocks(self.graph, self.frame.order):
            if any(member is self.node for member in block.nodes):
                return sum(("op", member.index) not in self.boxes for member in block.nodes)
        return 0
