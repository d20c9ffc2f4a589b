"""Nodes on their way from protobuf to ``Graph``: who makes which name, what comes from outside, who runs when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvviz.errors import GraphError
from kvviz.graph.model import Graph, Value
from kvviz.graph.names import quoted, text
from kvviz.graph.topological_order import find_cycle, topological


@dataclass(slots=True)
class Draft:
    """A node: everything but its final name, scope and place."""

    proto: Any
    index: int
    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    subgraphs: dict[str, Graph] = field(default_factory=dict)
    captures: tuple[str, ...] = ()
    function: Graph | None = None

    @property
    def label(self) -> str:
        return f"node {quoted(self.name or self.first_output)} ({quoted(self.op_type)[1:-1]})"

    @property
    def first_output(self) -> str:
        """The first output that is there, or the empty string."""
        return next((name for name in self.outputs if name), "")


def draft(proto: Any, index: int) -> Draft:
    inputs, outputs = tuple(map(text, proto.input)), tuple(map(text, proto.output))
    return Draft(proto, index, text(proto.name), text(proto.op_type), inputs, outputs)


def own_names(where: str, inputs: Iterable[Value], weights: Iterable[str], drafts: Iterable[Draft]) -> frozenset[str]:
    """All names that a graph defines; an error where two things make the same one."""
    makers: dict[str, Draft | str] = dict.fromkeys(weights, "a weight of that name")
    makers |= {value.name: "an input of that name" for value in inputs}
    for node in drafts:
        for name in filter(None, node.outputs):
            if name in makers:
                other = makers[name]
                raise GraphError(
                    f"{quoted(name)} is made twice in {where}: {node.label} makes it, "
                    f"and so does {other if isinstance(other, str) else other.label}"
                )
            makers[name] = node
    return frozenset(makers)


def free_names(
    where: str, drafts: Iterable[Draft], outputs: Iterable[Value], own: frozenset[str], outer: frozenset[str]
) -> tuple[str, ...]:
    """Names that a graph takes from outside, in order of first use; an error for those that nothing makes."""
    free: dict[str, None] = {}
    reads = [(name, node) for node in drafts for name in (*node.inputs, *node.captures)]
    for name, reader in [*reads, *((value.name, None) for value in outputs)]:
        if name and name not in own:
            if name not in outer:
                who = reader.label if reader else "the output list"
                raise GraphError(
                    f"{who} reads {quoted(name)} in {where}, but no input, weight or node there makes that value"
                )
            free[name] = None
    return tuple(free)


def in_running_order(where: str, drafts: Sequence[Draft]) -> list[Draft]:
    """The nodes sorted topologically, otherwise as they were; an error names the nodes of a cycle."""
    reads = [(*node.inputs, *node.captures) for node in drafts]
    makes = [node.outputs for node in drafts]
    order = topological(reads, makes)
    if order is not None:
        return [drafts[i] for i in order]
    circle = find_cycle(reads, makes)
    names = " → ".join(drafts[i].label for i in (*circle[:8], circle[0]))
    more = f" ({len(circle) - 8} more nodes lie between)" if len(circle) > 8 else ""
    raise GraphError(f"nodes wait for each other in {where}: {names}{more}; break the cycle")


def unique_names(drafts: Sequence[Draft]) -> list[str]:
    """The model's node names where they are unique, else the first outputs, else with a number behind."""
    taken: set[str] = set()
    names: list[str] = []
    for node in drafts:
        names.append("" if node.name in taken else node.name)
        taken.add(node.name)
    for i, node in enumerate(drafts):
        if not names[i]:
            base = node.first_output or node.op_type or "node"
            name, count = base, 1
            while not name or name in taken:
                count += 1
                name = f"{base}#{count}"
            names[i] = name
            taken.add(name)
    return names


def metadata(proto: Any) -> Mapping[str, str]:
    return {text(entry.key): text(entry.value) for entry in proto.metadata_props}
