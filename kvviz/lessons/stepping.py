"""A picture in steps: groups of cells whose states change from frame to frame, forward and back.

One script and one style sheet (``assets/widget/lessons/lesson.ts``) move all of them. Without a script, a reader sees
one frame as it is and the text of every frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from kvviz.errors import KvvizError
from kvviz.view.page_modules import bundled

# A state has a hue, a border and a mark: none of them carries the meaning alone.
MARKS: Mapping[str, str] = {
    "new": "+",
    "read": "=",
    "again": "↻",
    "copied": "⇉",
    "shared": "∥",
    "next": "?",
    "room": "·",
    "held": "",
    "now": "▸",
    "lost": "×",
    "": "",
}
_LOOKS = ("words", "rows", "table", "code", "figures", "bar")


class Cell(NamedTuple):
    """One cell in one frame. ``state``: a key of `MARKS`. ``weight``: 0 to 1. ``text``: in place of the group's."""

    state: str = ""
    weight: float = 0.0
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Cells that lie together.

    ``look``: ``"words"``, ``"rows"`` (texts are not shown), a ``"table"``, lines of ``"code"``, ``"figures"``, or
      the parts of a ``"bar"``.
    ``texts``: one for each cell.
    ``part``: number of cells in a block, which has a number; 0: no blocks.
    """

    title: str
    look: str
    texts: Sequence[str]
    part: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """One step: its caption, and the cells of every group."""

    caption: str
    cells: Sequence[Sequence[Cell]]


class Stepping:
    """A picture in steps. The last line of a cell displays it, in JupyterLab, Notebook and an exported page.

    Parameters
    ----------
    title : str
    groups : sequence of Group
    frames : sequence of Frame
    legend : mapping of str to str
        The meaning of each state.
    still : int
        The frame that is shown without scripts.
    seconds : float
        Duration of each frame while it plays.

    Raises
    ------
    KvvizError
        If a frame does not fit the groups, or a state or look is unknown.
    """

    def __init__(
        self,
        title: str,
        groups: Sequence[Group],
        frames: Sequence[Frame],
        legend: Mapping[str, str],
        still: int = -1,
        seconds: float = 1.0,
    ) -> None:
        self.title, self.groups, self.frames, self.legend = title, tuple(groups), tuple(frames), dict(legend)
        if not self.frames or not -len(self.frames) <= still < len(self.frames):
            raise KvvizError(f"still={still}: the picture has {len(self.frames)} frames")
        if wrong := next((group.look for group in self.groups if group.look not in _LOOKS), None):
            raise KvvizError(f"look={wrong!r}: a group has one of {', '.join(_LOOKS)}")
        sizes = [len(group.texts) for group in self.groups]
        for number, frame in enumerate(self.frames):
            if [len(cells) for cells in frame.cells] != sizes:
                raise KvvizError(f"frame {number} does not have the {sizes} cells of the groups")
            if unknown := {cell.state for cells in frame.cells for cell in cells} - MARKS.keys():
                raise KvvizError(f"frame {number}: a state is one of {', '.join(MARKS)}; not {sorted(unknown)[0]!r}")
        self.still, self.seconds = still % len(self.frames), seconds

    def html(self) -> str:
        """The picture without style and script, which a page has once."""
        shown = self.frames[self.still]
        body = "".join(map(_group, self.groups, shown.cells))
        keys = " ".join(
            f'<span class="kv-key"><i data-key="{s}">{MARKS[s]}</i> {t}</span>' for s, t in self.legend.items()
        )
        listed = "".join(f"<li>{escape(frame.caption)}</li>" for frame in self.frames)
        data = json.dumps({"pause": round(1000 * self.seconds), "marks": MARKS, "frames": list(self._changes())})
        return (
            f'<figure class="kv-lesson kv-stepping" data-kv="stepping" aria-label="{escape(self.title)}">'
            f'<figcaption><b>{escape(self.title)}</b></figcaption><p class="kv-caption">{escape(shown.caption)}</p>'
            f'{body}<p class="kv-keys">{keys}</p>'
            f'<details class="kv-told"><summary>All steps as text</summary><ol>{listed}</ol></details>'
            f'<script type="application/json">{data.replace("<", chr(92) + "u003c")}</script></figure>'
        )

    def _repr_html_(self) -> str:
        style, script = bundled("lesson.css").decode(), bundled("lesson.js").decode()
        return f'<div><style>{style}</style>{self.html()}<script type="module">{script}</script></div>'

    def __repr__(self) -> str:
        return f"<Stepping: {self.title}, {len(self.frames)} frames>"

    def _changes(self) -> Iterator[dict[str, list[object]]]:
        """What changes from each frame to the next, by number of the cell: state, weight in percent, text."""
        texts = [text for group in self.groups for text in group.texts]
        before: list[list[object]] = [[]] * len(texts)
        for frame in self.frames:
            cells = [cell for cells in frame.cells for cell in cells]
            now: list[list[object]] = []
            for text, (state, weight, own) in zip(texts, cells):
                now.append([state, round(100 * weight), *([] if own is None or own == text else [own])])
            yield {str(i): new for i, (new, old) in enumerate(zip(now, before)) if new != old}
            before = now


def _group(group: Group, cells: Sequence[Cell]) -> str:
    tag = "pre" if group.look == "code" else "div"
    parts = []
    for text, cell in zip(group.texts, cells):
        look = f'class="kv-cell" data-s="{cell.state}" data-text="{escape(text)}" style="--w:{cell.weight:.2f}"'
        shown = escape(text if cell.text is None else cell.text)
        parts.append(f"<span {look}><b>{shown}</b><i>{MARKS[cell.state]}</i></span>")
    glue = "\n" if group.look == "code" else " "
    if group.part:
        blocks = [parts[at : at + group.part] for at in range(0, len(parts), group.part)]
        parts = [f'<span class="kv-part"><small>{i}</small> {glue.join(one)}</span>' for i, one in enumerate(blocks)]
    title = f'<p class="kv-group">{escape(group.title)}</p>' if group.title else ""
    return f'{title}<{tag} class="kv-{group.look}">{glue.join(parts)}</{tag}>'
