"""What the cells of a KV cache look like: hues by sequence, and what each state adds, for every drawing of them.

No state rests on its hue: each has a hatch or a border of its own, and a word under the position.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvviz.ggml.cell_map import AHEAD, ASTRAY, CELL_STATES, DIRTY, FREE, LIVE, SHIFTED, CellMap
from kvviz.report.palette import DARK, LIGHT, OWNERS, STATES, Theme, mix
from kvviz.view.chart_axes import hue_of

_HUES = (OWNERS["pool"], STATES["missed"], OWNERS["run"], OWNERS["donated"], STATES["foreign"], OWNERS["caller"])

HATCHES = {FREE: "", LIVE: "", SHIFTED: "\\\\\\\\", ASTRAY: "xxxx", DIRTY: "////", AHEAD: "...."}
"""By state, for matplotlib."""

DASHED = frozenset({SHIFTED, ASTRAY, AHEAD})
"""States in which cell and row do not agree."""

MARKS = {SHIFTED: "back", ASTRAY: "cross", DIRTY: "hatch", AHEAD: "dots"}
"""The same by the names that the page has for them."""

NAMES = tuple(name for name, _ in CELL_STATES)


class Face(NamedTuple):
    """A cell as it is drawn: one fill for each sequence, ink and text."""

    fills: tuple[str, ...]
    edge: str
    ink: str
    label: str
    below: str


def hue(seq: int, theme: Theme) -> str:
    """The hue of a sequence; they come again after six, and every cell names its sequences."""
    return hue_of(_HUES[seq % len(_HUES)], theme)


def page_looks() -> dict[str, Any]:
    """What the page draws cells with: hues of sequences on both grounds, and of each state mark, border and meaning."""
    return {
        "hues": [[hue(seq, theme) for seq in range(len(_HUES))] for theme in (LIGHT, DARK)],
        "states": [
            {"name": name, "about": about, "mark": MARKS.get(state, ""), "dashed": state in DASHED}
            for state, (name, about) in enumerate(CELL_STATES)
        ],
    }


def face(cells: CellMap, stream: int, cell: int, theme: Theme) -> Face:
    """How a cell looks."""
    state, pos = int(cells.states[stream, cell]), int(cells.pos[stream, cell])
    turned, seqs = int(cells.turned[stream, cell]), sorted(cells.seqs[stream][cell])
    if state == FREE:
        return Face((theme.pane,), theme.line, theme.soft, "", "")
    if state == DIRTY:
        return Face((mix(theme.soft, theme.pane, 0.12),), theme.soft, theme.soft, "", f"key {turned}")
    share = 0.12 if state == AHEAD else 0.42
    fills = tuple(mix(hue(seq, theme), theme.pane, share) for seq in seqs)
    edge = hue(seqs[0], theme)
    below = {AHEAD: "old key" if turned >= 0 else "no key", SHIFTED: f"key {turned}", ASTRAY: f"key {turned}"}
    return Face(fills, edge, theme.ink, str(pos), below.get(state, "s" + ",".join(map(str, seqs))))


def said(states: Any) -> list[int]:
    """The states that occur, in the order of a legend; empty cells need no word."""
    return [state for state in (LIVE, DIRTY, SHIFTED, AHEAD, ASTRAY) if state in states]
