"""The policy ``rten``, and ``rten(quirks=False)``: the same runtime with every quirk corrected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache

from kvviz.engine.plan import check_outputs, needed
from kvviz.engine.policy import Policy
from kvviz.errors import InputError, KvvizError
from kvviz.graph.model import MAX_NODES, Graph, Node, Value
from kvviz.graph.shape_inference import infer
from kvviz.runtimes.rten.dispatch_rule import RULES, Rules
from kvviz.runtimes.rten.output_identity import RtenPool, homes
from kvviz.runtimes.rten.rten_planner import QUIRKS, dependencies, in_place_inputs, is_commutative, look_ahead, walk
from kvviz.runtimes.rten.rten_planner import rten as rten_order


def beginning_at(graph: Graph, given: Collection[str], donate: Collection[str], outputs: Sequence[str] | None) -> Graph:
    """The graph of a run that gets some inner values; the graph itself if there are none.

    ``given``: names of all values that the run gets. ``donate``: those that it may overwrite. ``outputs``: wanted
    values; the graph's outputs by default.

    Raises `InputError`: if a given value is made again, and its readers cannot be distinguished by a name. Raises
    `GraphError`: for an output that the graph does not have.
    """
    declared = {value.name for value in (*graph.inputs, *graph.overridable)}
    inner = [name for name in graph.producers if name in given and name not in declared]
    if not inner:
        return graph
    names = tuple(value.name for value in graph.outputs) if outputs is None else tuple(outputs)
    key = ("begins at", frozenset(given), frozenset(donate).intersection(inner), names)
    if key not in graph.derived:
        check_outputs(graph, names)
        graph.derived[key] = _cut(graph, inner, given, donate, names)
    return graph.derived[key]


def _cut(
    graph: Graph, inner: Sequence[str], given: Collection[str], donate: Collection[str], outputs: Sequence[str]
) -> Graph:
    known = infer(graph)[graph]
    fed = tuple(graph.value_info.get(name) or replace(known.get(name, Value(name)), shape=None) for name in inner)
    begun = replace(graph, inputs=(*graph.inputs, *fed))
    nodes = tuple(needed(begun, outputs))
    spelled = None
    if any(name in inner for node in nodes for name in node.outputs):
        order = _with_repetitions(walk(begun, nodes, outputs), given)
        work = _Spelling(order, inner, donate, outputs)
        nodes = tuple(map(work.next, order))
        spelled = frozenset(work.read_twice)
    read = {name for node in nodes for name in (*node.inputs, *node.captures)} | set(outputs)
    inputs = tuple(value for value in graph.inputs if value.name in read or value.name in given)
    return replace(begun, inputs=(*inputs, *fed), nodes=nodes, spelled=spelled)


def _with_repetitions(walked: Sequence[Node], given: Collection[str]) -> list[Node]:
    """rten's order: an op enters the frontier whenever one of its inputs is made, even again."""
    made = {name for node in walked for name in node.outputs if name} - set(given)
    frontier = [node for node in walked if made.isdisjoint(dependencies(node))]
    order = []
    while frontier:
        node = next((node for node in frontier if not in_place_inputs(node)), frontier[0])
        frontier.remove(node)
        order.append(node)
        made -= set(node.outputs)
        for name in node.outputs:
            for reader in walked:
                reads = dependencies(reader) if name else ()
                if name in reads and reader not in frontier and made.isdisjoint(reads):
                    frontier.append(reader)
    return order


class _Spelling:
    """Renames the values of an order with repetitions, node by node, so that each name is made once."""

    def __init__(
        self, order: Sequence[Node], inner: Sequence[str], donate: Collection[str], outputs: Sequence[str]
    ) -> None:
        self.lent, self.outputs = set(inner) - set(donate), outputs
        self.times = Counter(node.index for node in order)
        self.left = Counter(name for node in order for name in dependencies(node)) + Counter(outputs)
        self.made = Counter(dict.fromkeys(inner, 1))  # how often each value was given or made
        self.total = self.made + Counter(name for node in order for name in node.outputs if name)
        self.given = set(inner)
        self.ran: Counter[int] = Counter()
        self.read_twice: set[str] = set()

    def next(self, node: Node) -> Node:
        """The next node, with the current names of its values."""
        reads = dependencies(node)
        inputs = tuple(self._called(node, position) if name else "" for position, name in enumerate(node.inputs))
        renamed = [name for name in node.captures if self.made[name] and self._name(name) != name]
        if renamed:
            raise InputError(
                f"{renamed[0]!r} is made again although it or what it is made of was given, and a body of node "
                f"{node.name!r} reads it; give all outputs of the node that makes it, or none"
            )
        self.left.subtract(reads)
        for name in reads:
            if name in self.given and self.made[name] == 1 < self.total[name] and self.left[name]:
                self.read_twice.add(name)
        self.made.update(name for name in node.outputs if name)
        outputs = tuple(self._name(name) for name in node.outputs)
        wrong = next((name for name in node.outputs if name in self.given and name in self.outputs), None)
        if wrong is not None and wrong not in self.lent:
            raise InputError(
                f"{wrong!r} is donated and wanted as an output, but node {node.name!r} makes it again; do not donate it"
            )
        self.ran[node.index] += 1
        rest = self.times[node.index] - self.ran[node.index]
        # The last one has the node's own name and index.
        name = f"{node.name}#{self.ran[node.index]}" if rest else node.name
        return replace(node, name=name, index=node.index + rest * MAX_NODES, inputs=inputs, outputs=outputs)

    def _name(self, name: str) -> str:
        """The current name among several values of one name: the given or the last one keeps it."""
        if not name or self.total[name] == 1 or self.made[name] == (1 if name in self.given else self.total[name]):
            return name
        return f"{name}#{self.made[name]}"

    def _called(self, node: Node, position: int) -> str:
        """The current name of an input. If a value was lent, only the node that takes over the new one reads it: the
        others still get the caller's."""
        name = node.inputs[position]
        if not self.made[name] or name not in self.lent or self.made[name] == 1:
            return self._name(name) if self.made[name] else name
        if self.left[name] != 1 or not (is_commutative(node) or position in in_place_inputs(node)):
            return name
        if in_place_inputs(node) != (position,) or is_commutative(node):
            raise InputError(
                f"{name!r} is given and made again, and which of the two rten reads in node {node.name!r} depends on "
                f"sizes; donate {name!r}, or give all outputs of the node that makes it"
            )
        return self._name(name)


BY_REFERENCE = "by_reference"
VERSION = "c7f7bad9 (after v0.25.0)"
_ABOUT = (
    "rten's planner and dispatch rule: an op runs in place if every in-place input is owned and read for the last "
    "time; there are no views, freed buffers go to a pool"
)


def variant(quirks: bool | Iterable[str] = True, captures: str = "by_value") -> Policy:
    """rten as it is, or with some of its quirks corrected, or as it was before captures moved into bodies.

    ``quirks``: true for all of them, False for none, or the names of those to keep: see `QUIRKS`. ``captures``:
    ``"by_value"``: a body takes over values that only it needs, as since v0.14.1 (rten's issue 399, pull request 407:
    ``CaptureEnv`` has had values of its own since then). ``"by_reference"``: it borrows all captures.

    Raises `KvvizError`: for an unknown quirk or way to capture.
    """
    if isinstance(quirks, bool):
        quirks = QUIRKS if quirks else ()
    elif isinstance(quirks, str) or not isinstance(quirks, Iterable):
        raise KvvizError(f"quirks of rten are True, False or a list of names, not {quirks!r}")
    kept = frozenset(quirks)
    unknown = kept - set(QUIRKS)
    if unknown:
        raise KvvizError(f"rten has no quirk {sorted(unknown)[0]!r}; its quirks are {', '.join(QUIRKS)}")
    if captures not in ("by_value", BY_REFERENCE):
        raise KvvizError(f"rten captures 'by_value' or 'by_reference', not {captures!r}")
    return _made(kept, captures == BY_REFERENCE)


@cache
def _made(kept: frozenset[str], lends: bool) -> Policy:
    rules = Rules(kept, lends)
    return Policy(
        _name(kept) + (", captures by reference" if lends else ""),
        _ABOUT,
        VERSION,
        in_place=rules.in_place,
        schedule=rten_order if "greedy_order" in kept else look_ahead,
        captures=rules.captures,
        pool=RtenPool,
        prepare=rules.prepare,
        homes=homes,
        one_plan="cached_plan" in kept,
        feeds_inner=beginning_at,
        growth="after",
        rules=RULES,
        variants=variant,
    )


def _name(kept: frozenset[str]) -> str:
    dropped = [name for name in QUIRKS if name not in kept]
    if not dropped:
        return "rten"
    return "rten without " + ("quirks" if len(dropped) == len(QUIRKS) else ", ".join(dropped))


rten = variant()
