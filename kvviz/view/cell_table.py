"""The cells of a KV cache over its calls as an HTML table: how a notebook displays the cache.

All styles are inline, so that untrusted notebooks show them too. Text and background follow the theme.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from kvviz.ggml.kv_cache import CELL_STATES, DIRTY, FREE, LIVE, SHIFTED, Change, KVCache
from kvviz.report.palette import LIGHT
from kvviz.view.cell_looks import DASHED, hue, shown_states
from kvviz.view.cell_plot import drawn_cells, drawn_text

_CALLS = 40  # the last ones that are shown
_ONE_BY_ONE = 24  # cells that are drawn one by one; above that, consecutive cells are joined

_INK, _SOFT = "var(--jp-ui-font-color1,#1b2430)", "var(--jp-ui-font-color2,#5b6675)"
_LINE, _PANE = "var(--jp-border-color2,#d5dae1)", "var(--jp-layout-color1,#fff)"
_TABLE = f"border-collapse:separate;border-spacing:1px;font:12px/1.25 var(--jp-ui-font-family,system-ui);color:{_INK}"
_ANGLES = {SHIFTED: "45deg", DIRTY: "135deg"}


class _Run(NamedTuple):
    """Adjacent cells that are drawn as one."""

    start: int
    stop: int
    state: int
    pos: int
    turned: int
    seqs: frozenset[int]
    fresh: bool


def html(cache: KVCache) -> str:
    history = cache.history[-_CALLS:]
    drawn = drawn_cells(history)
    joined = len(drawn) > _ONE_BY_ONE
    rows = [_row(change, drawn, joined) for change in history]
    left_out = len(cache.history) - len(history)
    caption = f"<b>{escape(cache.name)}</b>: {cache.size:,} cells"
    caption += f", {drawn_text(drawn, cache.size)}" if len(drawn) < cache.size else ""
    caption += f"; the last {len(history)} calls, {left_out:,} before them" if left_out else ""
    head = "" if joined else _numbers(drawn)
    table = f'<table style="{_TABLE}">{head}{"".join(rows)}</table>'
    return f'<div style="overflow-x:auto;background:{_PANE};color:{_INK}"><p>{caption}</p>{table}{_key(history)}</div>'


def _row(change: Change, drawn: range, joined: bool) -> str:
    parts = [f'<th style="{_side("right")};font-weight:normal">{escape(change.call or "new")}</th>']
    parts += [_cell(run, change.cells.head, joined) for run in _runs(change, drawn, joined)]
    words = f"{_side('left')};color:{_SOFT};white-space:normal;min-width:260px"
    parts.append(f'<td style="{words}">{escape(change.text)}</td>')
    return f"<tr>{''.join(parts)}</tr>"


def _runs(change: Change, drawn: range, joined: bool) -> Iterator[_Run]:
    """The cells; where there are many, consecutive ones are joined."""
    cells = change.cells
    open_run: _Run | None = None
    for cell in drawn:
        one = _Run(
            cell,
            cell + 1,
            int(cells.states[cell]),
            int(cells.pos[cell]),
            int(cells.turned[cell]),
            cells.seqs[cell],
            cell in change.written,
        )
        if open_run is not None and joined and _goes_on(open_run, one):
            open_run = open_run._replace(stop=one.stop)
            continue
        if open_run is not None:
            yield open_run
        open_run = one
    if open_run is not None:
        yield open_run


def _goes_on(run: _Run, one: _Run) -> bool:
    length = one.start - run.start
    alike = (run.state, run.seqs, run.fresh) == (one.state, one.seqs, one.fresh)
    if run.state in (FREE, DIRTY):
        return alike
    return alike and run.pos + length == one.pos and run.turned - run.pos == one.turned - one.pos


def _cell(run: _Run, head: int, joined: bool) -> str:
    length = run.stop - run.start
    look = (
        f"padding:1px 3px;min-width:{10 if joined else 26}px;text-align:center;white-space:nowrap;"
        f"{_fill(run, sorted(run.seqs))}border-bottom:3px solid {_INK if run.fresh else 'transparent'};"
    )
    title = _title(run)
    if run.start <= head < run.stop:
        title += f"; the next search begins at cell {head}"
        look += "border-left:3px solid var(--jp-brand-color1,#1f5fbf);"
    span = f' colspan="{length}"' if joined and length > 1 else ""
    below = _below(run)
    text = _span(run.pos, length) if run.pos >= 0 else "&nbsp;"
    text += f'<br><span style="font-size:9px">{below}</span>' if below else ""
    if run.state in _ANGLES:
        # Stripes would cross the letters.
        tint = hue(min(run.seqs), LIGHT) + "44" if run.seqs else "transparent"
        ground = f"background:linear-gradient({tint},{tint}),{_PANE}"
        text = f'<span style="display:inline-block;margin:0 4px;padding:0 1px;{ground}">{text}</span>'
    return f'<td{span} style="{look}" title="{escape(title)}">{text}</td>'


def _title(run: _Run) -> str:
    """One sentence with everything known about some cells."""
    name, meaning = CELL_STATES[run.state]
    length = run.stop - run.start
    text = f"cell {run.start}" if length == 1 else f"cells {run.start} to {run.stop - 1}"
    text += f": {name}" + (f", position {_span(run.pos, length)}" if run.pos >= 0 else "")
    text += f" of sequence {', '.join(map(str, sorted(run.seqs)))}" if run.seqs else ""
    return f"{text}; {meaning}" + (", written by this call" if run.fresh else "")


def _below(run: _Run) -> str:
    """The sequences of cells, or what is wrong with their keys."""
    length = run.stop - run.start
    if run.state == DIRTY and length > 1:
        return "old keys"
    if run.state in (DIRTY, SHIFTED):
        return f"key {_span(run.turned, length)}"
    return "s" + ",".join(map(str, sorted(run.seqs))) if run.seqs else ""


def _fill(run: _Run, seqs: list[int]) -> str:
    """CSS background and border: a band for each sequence, stripes by state."""
    tints = [hue(seq, LIGHT) + "66" for seq in seqs]
    layers = []
    if run.state in _ANGLES:
        ink = _SOFT if run.state == DIRTY else _INK
        layers.append(f"repeating-linear-gradient({_ANGLES[run.state]},{ink} 0 1px,transparent 1px 6px)")
    if tints:
        stops = ",".join(
            f"{tint} {100 * i // len(tints)}% {100 * (i + 1) // len(tints)}%" for i, tint in enumerate(tints)
        )
        layers.append(f"linear-gradient({stops})")
    edge = hue(seqs[0], LIGHT) if seqs else _LINE
    ground = f"background:{','.join(layers)};" if layers else "background:none;"
    return f"{ground}border:1px {'dashed' if run.state in DASHED else 'solid'} {edge};"


def _span(first: int, length: int) -> str:
    return str(first) if length == 1 else f"{first}–{first + length - 1}"


def _side(align: str) -> str:
    return f"text-align:{align};padding:1px 8px;white-space:nowrap;border:0;background:none"


def _numbers(drawn: range) -> str:
    look = f"text-align:center;font-weight:normal;font-size:10px;color:{_SOFT};border:0;background:none"
    cells = "".join(f'<th style="{look}">{cell}</th>' for cell in drawn)
    gap = f'<th style="{look}"></th>'
    return f"<tr>{gap}{cells}{gap}</tr>"


def _key(history: Sequence[Change]) -> str:
    """A legend of the states that occur."""
    found = shown_states({int(state) for change in history for state in change.cells.states})
    parts = [f"<b>{CELL_STATES[state][0]}</b>: {CELL_STATES[state][1]}" for state in found if state != LIVE]
    parts.append("thick below: this call wrote the key; thick at the left: the next search begins here")
    return f'<p style="color:{_SOFT};font-size:11px">{" · ".join(parts)}</p>'
