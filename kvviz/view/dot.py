"""A block as DOT text, for Graphviz.

Invariant: the text holds only ``n0``, ``n1`` … and numbers; no name of a model ever reaches the DOT parser.
Splines are poly-lines: ``ortho`` aborts and ``curved`` takes minutes on graphs of a few hundred nodes.
"""

from __future__ import annotations

from kvviz.view.sketch import Sketch

INCH = 72.0
NODE_GAP, RANK_GAP = 14, 24


def dot_source(sketch: Sketch) -> str:
    """DOT text of a sketch: fixed box sizes, no labels, edges without arrow heads; equal for equal sketches."""
    gaps = f"nodesep={_inches(NODE_GAP)} ranksep={_inches(RANK_GAP)}"
    return "\n".join(
        [
            "digraph block {",
            f"\tgraph [nslimit=1 {gaps} rankdir=TB splines=polyline]",
            '\tnode [fixedsize=true label="" shape=box]',
            "\tedge [arrowhead=none]",
            *(f"\tn{i} [height={_inches(h)} width={_inches(w)}]" for i, (w, h) in enumerate(sketch.sizes)),
            *(f"\tn{source} -> n{target}" for source, target in sketch.links),
            "}\n",
        ]
    )


def _inches(px: float) -> str:
    return f"{px / INCH:.4f}"
