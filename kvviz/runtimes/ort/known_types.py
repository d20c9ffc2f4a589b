"""What onnxruntime knows of a graph before it plans: types of all values, and whose body it is.

Bodies are planned one at a time, but their types follow from the whole model. So they are inferred together, when the
main graph is asked for first, and kept as long as the graphs live.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from weakref import WeakKeyDictionary

from kvviz.graph.model import Graph, GraphPath, Node, Value
from kvviz.graph.shape_inference import Rules, infer
from kvviz.ops import contrib_shapes
from kvviz.runtimes.ort.shape_values import propagate
from kvviz.runtimes.schedules.graph_paths import graphs_of

RULES = Rules(contrib_shapes.RULES, propagate)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of one graph.

    ``types``: of its own values and of those that it captures.
    ``inside``: operator whose body it is: ``"If"``, ``"Loop"``, ``"Scan"``, ``"function"``, or empty.
    ``written``: of a graph whose nodes were changed: those of the model, by index.
    """

    types: Mapping[str, Value]
    inside: str = ""
    written: Mapping[int, Node] = field(default_factory=dict)


_KNOWN: WeakKeyDictionary[Graph, Known] = WeakKeyDictionary()


def known(graph: Graph) -> Known:
    """What is known of a graph; of a body only if its main graph was asked for before, else as if it stood alone."""
    found = _KNOWN.get(graph)
    if found is None:
        _keep(graph, "", {}, infer(graph, RULES))
        found = _KNOWN[graph]
    return found


def know_blocks(graph: Graph, size: int) -> None:
    """Let the blocks of the channel-blocked layout be of so many channels: what a graph was written for has a size."""
    reorder = partial(contrib_shapes.reorder_input, block=size)
    rules = replace(RULES, extra={**RULES.extra, ("com.microsoft.nchwc", "ReorderInput"): reorder})
    _keep(graph, "", {}, infer(graph, rules))


def adopt(graph: Graph, original: Graph, copies: Mapping[str, str] = MappingProxyType({})) -> None:
    """Let what is known of a graph hold for one that was made from it by changing nodes.

    ``copies``: values that are new in it, with those that they are copies of. Without any, the original's nodes are
    kept as those that are written.
    """
    known_types = own_types(original)
    new = {name: replace(known_types[source], name=name) for name, source in copies.items() if source in known_types}
    facts = known(original)
    if copies:
        outer = facts.types.maps[1:] if isinstance(facts.types, ChainMap) else []
        _KNOWN[graph] = Known(ChainMap({**known_types, **new}, *outer), facts.inside)
    else:
        _KNOWN[graph] = replace(facts, written=original.by_index)


def own_types(graph: Graph) -> Mapping[str, Value]:
    """Types of the values of a graph that is known, without those that it captures."""
    types = known(graph).types
    return types.maps[0] if isinstance(types, ChainMap) else types


def keep(
    graph: Graph, types: Mapping[GraphPath, dict[str, Value]], written: Mapping[GraphPath, Mapping[int, Node]]
) -> None:
    """Let these be the types of a main graph and of its bodies, and these the nodes that were changed."""
    inner = {one.path: one for one in graphs_of(graph)}
    _keep(graph, "", {}, {inner[path]: of for path, of in types.items() if path in inner})
    for path, nodes in written.items():
        _KNOWN[inner[path]] = replace(_KNOWN[inner[path]], written=nodes)


def _keep(graph: Graph, inside: str, outer: Mapping[str, Value], inferred: Mapping[Graph, Mapping[str, Value]]) -> None:
    own = dict(inferred.get(graph, {}))
    types: Mapping[str, Value] = ChainMap(own, dict(outer)) if outer else own
    _KNOWN[graph] = Known(types, inside)
    for node in graph.nodes:
        for body in node.subgraphs.values():
            _keep(body, node.op_type, types, inferred)
        if node.function is not None:
            _keep(node.function, "function", {}, inferred)
