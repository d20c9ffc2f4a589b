"""How the cells of a KV cache are drawn: the hue shows the sequence, hatches and borders show the state.

Colour alone carries no meaning: every state has a hatch or a border of its own, and a word below the position.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvviz.ggml.kv_cache import CELL_STATES, DIRTY, FREE, LIVE, SHIFTED, CellMap
from kvviz.report.palette import DARK, LIGHT, OWNERS, STATES, Theme, mix
from kvviz.view.charts.chart_axes import hue_of

_HUES = (OWNERS["pool"], STATES["missed"], OWNERS["run"], OWNERS["donated"], STATES["foreign"], OWNERS["caller"])

HATCHES = {FREE: "", LIVE: "", SHIFTED: "\\\\\\\\", DIRTY: "////"}
"""By state, for matplotlib."""

DASHED = frozenset({SHIFTED})
"""States in which the cell and its row disagree."""

MARKS = {SHIFTED: "back", DIRTY: "hatch"}
"""The same, by the names that the page uses."""

NAMES = tuple(name for name, _ in CELL_STATES)


class Face(NamedTuple):
    """How one cell is drawn: a fill for each sequence, ink and text."""

    fills: tuple[str, ...]
    edge: str
    ink: str
    label: str
    below: str


def hue(seq: int, theme: Theme) -> str:
    """The hue of a sequence. Hues repeat after six; every cell also names its sequences."""
    return hue_of(_HUES[seq % len(_HUES)], theme)


def page_looks() -> dict[str, Any]:
    """What the page needs to draw cells: sequence hues for both themes, and each state's mark, border and meaning."""
    return {
        "hues": [[hue(seq, theme) for seq in range(len(_HUES))] for theme in (LIGHT, DARK)],
        "states": [
            {"name": name, "about": about, "mark": MARKS.get(state, ""), "dashed": state in DASHED}
            for state, (name, about) in enumerate(CELL_STATES)
        ],
    }


def face(cells: CellMap, cell: int, theme: Theme) -> Face:
    state, turned, seqs = int(cells.states[cell]), int(cells.turned[cell]), sorted(cells.seqs[cell])
    if state == FREE:
        return Face((theme.pane,), theme.line, theme.soft, "", "")
    if state == DIRTY:
        return Face((mix(theme.soft, theme.pane, 0.12),), theme.soft, theme.soft, "", f"key {turned}")
    fills = tuple(mix(hue(seq, theme), theme.pane, 0.42) for seq in seqs)
    below = f"key {turned}" if state == SHIFTED else "s" + ",".join(map(str, seqs))
    return Face(fills, hue(seqs[0], theme), theme.ink, str(int(cells.pos[cell])), below)
