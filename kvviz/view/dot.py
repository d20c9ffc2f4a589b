"""A block as DOT text, for Graphviz.

Invariant: the text holds only ``n0``, ``n1`` … and numbers; no name of a model ever reaches the DOT parser.
Splines are poly-lines: ``ortho`` aborts and ``curved`` takes minutes on graphs of a few hundred nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvviz.view.sketch import Sketch

if TYPE_CHECKING:
    import graphviz

INCH = 72.0
NODE_GAP, RANK_GAP = 14, 24


def digraph(sketch: Sketch) -> graphviz.Digraph:
    """A ``graphviz.Digraph`` of a sketch: fixed box sizes, no labels, edges without arrow heads.

    Raises `ImportError`: where the package is missing or broken: only drawings need it, so it is imported for them.
    """
    import graphviz

    graph = graphviz.Digraph(
        "block",
        graph_attr={
            "splines": "polyline",
            "nslimit": "1",
            "rankdir": "TB",
            "nodesep": _inches(NODE_GAP),
            "ranksep": _inches(RANK_GAP),
        },
        node_attr={"shape": "box", "fixedsize": "true", "label": ""},
        edge_attr={"arrowhead": "none"},
    )
    for i, (width, height) in enumerate(sketch.sizes):
        graph.node(f"n{i}", width=_inches(width), height=_inches(height))
    for source, target in sketch.links:
        graph.edge(f"n{source}", f"n{target}")
    return graph


def dot_source(sketch: Sketch) -> str:
    """DOT text of a sketch; the same text for the same sketch."""
    return digraph(sketch).source


def _inches(px: float) -> str:
    return f"{px / INCH:.4f}"
