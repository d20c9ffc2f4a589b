"""A block as DOT text, for Graphviz.

Invariant: the text holds only ``n0``, ``n1`` … and numbers; no name of a model ever reaches the DOT parser.
Splines are poly-lines: ``ortho`` aborts and ``curved`` takes minutes on graphs of a few hundred nodes.
"""

from __future__ import annotations

import graphviz

from kvviz.view.sketch import Sketch

INCH = 72.0
NODE_GAP, RANK_GAP = 14, 24


def dot_source(sketch: Sketch) -> str:
    """DOT text of a sketch: fixed box sizes, no labels, edges without arrow heads; equal for equal sketches."""
    block = graphviz.Digraph("block")
    gaps = {"nodesep": _inches(NODE_GAP), "ranksep": _inches(RANK_GAP)}
    block.attr("graph", nslimit="1", rankdir="TB", splines="polyline", **gaps)
    block.attr("node", fixedsize="true", label="", shape="box")
    block.attr("edge", arrowhead="none")
    for i, (width, height) in enumerate(sketch.sizes):
        block.node(f"n{i}", height=_inches(height), width=_inches(width))
    for source, target in sketch.links:
        block.edge(f"n{source}", f"n{target}")
    return str(block.source)


def _inches(px: float) -> str:
    return f"{px / INCH:.4f}"
