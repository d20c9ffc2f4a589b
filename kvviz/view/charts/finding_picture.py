"""The picture of one finding, as SVG, PNG and Markdown: what it costs, the ops that take part in one of its steps,
memory with all of its steps marked, and the change that was tried.

One matplotlib figure, 800 px wide, is the source of both forms. Its words are the finding's own.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kvviz.atomic_write import replacing, write_text
from kvviz.errors import InputError
from kvviz.report.explain import explain
from kvviz.report.faces.markdown_text import about, again
from kvviz.report.finding import Finding
from kvviz.report.palette import DARK, LIGHT, STATES, Theme, mix
from kvviz.trace.model_or_trace import TraceLike, as_trace
from kvviz.trace.recording import Trace
from kvviz.trace.units import count, run_label, short, size
from kvviz.view.charts.chart_axes import live_bytes, text_width, thinned, wrapped
from kvviz.view.charts.plots import weights_below
from kvviz.view.drawing.around_step import READS_LATER, Around, Box
from kvviz.view.drawing.layered import layered
from kvviz.view.drawing.sketch import Sketch

PICTURE_FORMS = (".svg", ".png", ".md")
WIDTH, DPI = 800, 100
_EDGE, _LINE, _CURVE, _TALL = 20, 19, 96, 38
_MOST_MARKS = 200
_APART = (80, 20)  # px between boxes, with room for the words beside links, and where boxes would not fit


@dataclass(frozen=True, slots=True)
class FindingPicture:
    """The picture of a finding; a notebook displays it.

    Attributes
    ----------
    svg, markdown : str
    png : bytes
        800 px wide, drawn at twice that size.
    """

    svg: str
    png: bytes = field(repr=False)
    markdown: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the form that the ending of the path names: ``.svg``, ``.png`` or ``.md``.

        Raises `InputError`: for another ending.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in PICTURE_FORMS:
            raise InputError(f"{os.fspath(path)}: a picture is saved as .svg, .png or .md")
        if suffix == ".png":
            with replacing(path) as file:
                file.write(self.png)
        else:
            write_text(path, self.svg if suffix == ".svg" else self.markdown)

    def _repr_svg_(self) -> str:
        return self.svg


def picture(trace: TraceLike, finding: int | Finding = 1, *, dark: bool = False) -> FindingPicture:
    """Draw one finding about a trace.

    Parameters
    ----------
    trace : Trace or path
    finding : int or Finding, default 1
        Its rank in `kvviz.findings`, from 1, or the finding.
    dark : bool
        Draw for a dark page.

    Returns
    -------
    FindingPicture

    Raises
    ------
    InputError
        If there is no finding of that rank.

    Examples
    --------
    >>> kvviz.picture(trace, finding=2).save("copied.svg")                                  # doctest: +SKIP
    """
    trace = as_trace(trace, "kvviz.picture")
    found = explain(trace).findings
    if isinstance(finding, int):
        if not 1 <= finding <= len(found):
            raise InputError(f"finding={finding}: there are {count(len(found), 'finding')}, numbered from 1")
        finding = found[finding - 1]
    from matplotlib import rc_context

    # Text stays text, so that it can be searched. Equal ids every time let pictures be compared.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "kvviz", "font.family": "sans-serif"}):
        figure = _figure(trace, finding, DARK if dark else LIGHT)
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None}, facecolor=figure.get_facecolor())
        figure.savefig(png, format="png", dpi=2 * DPI, facecolor=figure.get_facecolor())
    return FindingPicture(svg.getvalue(), png.getvalue(), _markdown(trace, finding))


def _markdown(trace: Trace, finding: Finding) -> str:
    """The finding in words, for a thread; `about` and `again` as in every Markdown of this library."""
    facts = about(trace)
    lines = [f"**{finding.line}**", ""]
    if where := " · ".join(part for part in (finding.where, finding.scope) if part):
        lines += [where, ""]
    if finding.example:
        lines += [f"> {finding.example}", ""]
    if cure := _cure(finding):
        lines += [cure, ""]
    if finding.query:
        lines += [f"Steps: `{finding.query}`", ""]
    code = "\n".join(again(trace, finding.step))
    of = f"`{facts['file'] or trace.title}`, policy {facts['policy']}, kvviz {facts['version']}"
    return "\n".join([*lines, "```python", code, "```", "", of, ""])


def _cure(finding: Finding) -> str:
    if finding.calm and not finding.change:
        return "Nothing is to be done."
    if not finding.change:
        # Only for these kinds a change was tried.
        return "No single change removes it." if finding.kind in ("miss", "copied") else ""
    effect = "" if not finding.peak else f" · peak {'−' if finding.peak > 0 else '+'}{size(abs(finding.peak))}"
    return f"Tried: {finding.change}{effect}"


def _figure(trace: Trace, finding: Finding, theme: Theme) -> Any:
    from matplotlib.figure import Figure

    room = WIDTH - 2 * _EDGE
    title = _lines(finding.title, room - 110, 12, "bold")
    where = " · ".join(part for part in (finding.where, finding.scope) if part)
    head = [(line, 9, theme.soft) for line in _lines(where, room, 9)]
    head += [(line, 9, theme.ink) for line in _lines(finding.example, room, 9)]
    foot = _lines(_cure(finding), room, 9.5)
    around = None if finding.step is None else Around(trace, trace.steps[finding.step])
    corners, lines, boxes, tall = _placed(around, room) if around else ([], [], [], 0.0)
    curve = _CURVE + 30 if len(trace.steps) else 0
    top = _EDGE + 22 * len(title) + _LINE * len(head) + 10
    height = top + tall + (30 if around else 0) + curve + _LINE * len(foot) + _EDGE + 24
    figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, facecolor=theme.pane)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    ax.set_xlim(0, WIDTH)
    ax.set_ylim(height, 0)

    def write(x: float, y: float, text: str, points: float, colour: str, **how: Any) -> None:
        ax.text(x, y, text.replace("$", r"\$"), fontsize=points, color=colour, va="baseline", **how)

    y = _EDGE + 12.0
    bad = theme.soft if finding.calm else _hue("missed", theme)
    if finding.bytes:
        write(WIDTH - _EDGE, y, size(finding.bytes), 12, bad, ha="right", fontweight="bold")
    for line in title:
        write(_EDGE, y, line, 12, theme.ink, fontweight="bold")
        y += 22
    for line, points, colour in head:
        write(_EDGE, y, line, points, colour)
        y += _LINE
    if around is not None:
        _draw(ax, write, around, corners, lines, boxes, (_EDGE, top + 4), theme)
        step = around.step
        note = f"step {step.index:,} of {len(trace.steps):,} · {run_label(trace, step.run)}"
        hidden = around.hidden()
        note += f" · {count(hidden, 'op')} of this block hidden" if hidden else ""
        write(_EDGE, top + tall + 22, note, 8.5, theme.soft)
    if curve:
        below = height - _EDGE - _LINE * len(foot) - 22
        _memory(figure, trace, finding, (below - _CURVE, below, height), theme, write)
    for number, line in enumerate(foot):
        colour = _hue("in_place", theme) if finding.change else theme.soft
        write(_EDGE, height - _EDGE - _LINE * (len(foot) - 1 - number), line, 9.5, colour, fontweight="bold")
    return figure


def _hue(state: str, theme: Theme) -> str:
    return STATES[state].dark if theme is DARK else STATES[state].light


def _wide(text: str, points: float, weight: str = "normal") -> float:
    return text_width(text, points, weight) * DPI / 72


def _lines(text: str, room: float, points: float, weight: str = "normal") -> list[str]:
    return wrapped(text, room * 72 / DPI, points, weight)


def _placed(around: Around, room: float) -> tuple[list[tuple[float, float, float]], list[Any], list[Box], float]:
    """Corners and widths of the boxes, links as poly-lines, the boxes, and the total height in px."""
    keys = sorted(around.boxes, key=lambda key: around.boxes[key].order)
    at = {key: i for i, key in enumerate(keys)}
    boxes = [around.boxes[key] for key in keys]
    wide = [max(_wide(box.title, 10, "bold") + 40, _wide(box.under, 8.5) + 22, 84.0) for box in boxes]
    pairs = [(at[a], at[b], words) for (a, b), words in around.links.items() if at[a] < at[b]]
    for apart in _APART:
        sizes = tuple((round(w + apart), _TALL) for w in wide)
        corners, lines = layered(Sketch(sizes, tuple((a, b) for a, b, _ in pairs), ()))
        if (right := max(x + w + apart for (x, _), w in zip(corners, wide))) <= room:
            break
    # The rows of the layout are spread so that words fit between them.
    tops = {y: i * (_TALL + 44.0) for i, y in enumerate(sorted({y for _, y in corners}))}
    old = sorted(tops)

    def moved(y: float) -> float:
        row = max((top for top in old if top <= y + 0.01), default=old[0])
        inside = y - row
        return tops[row] + (inside if inside <= _TALL else _TALL + (inside - _TALL) * 44 / 24)

    corners = [(x + apart / 2, y) for x, y in corners]
    scale = min(1.0, room / right)
    left = (room - right * scale) / 2
    corners = [(left + x * scale, tops[y]) for x, y in corners]
    drawn = [([(left + x * scale, moved(y)) for x, y in line], words) for line, (_, _, words) in zip(lines, pairs)]
    for box, w in zip(boxes, wide):
        if scale < 1:
            box.title = short(box.title, max(int(w * scale / 11), 6))
            box.under = short(box.under, max(int(w * scale / 8), 8))
    sized = [(x, y, w * scale) for (x, y), w in zip(corners, wide)]
    return sized, drawn, boxes, max(tops.values()) + _TALL


def _draw(ax: Any, write: Any, around: Around, sized: Any, lines: Any, boxes: Any, origin: Any, theme: Theme) -> None:
    from matplotlib.patches import FancyBboxPatch

    left, top = origin
    for points, (_, bad) in lines:
        xs, ys = zip(*((left + x, top + y) for x, y in points))
        colour = _hue("missed", theme) if bad else mix(theme.soft, theme.pane, 0.7)
        ax.plot(xs, ys, color=colour, linewidth=1.8 if bad else 1.1, solid_capstyle="round", zorder=1)
    for (x, y, w), box in zip(sized, boxes):
        running = box.state == "running"
        hue = _hue(box.state, theme) if box.state not in ("", "waiting") else mix(theme.soft, theme.pane, 0.6)
        fill = hue if running else mix(hue, theme.pane, 0.16)
        dash = {"dashed": "--", "dotted": ":"}.get(STATES[box.state].border if box.state else "dashed", "-")
        shape = FancyBboxPatch((left + x + 3, top + y + 3), w - 6, _TALL - 6, boxstyle="round,pad=3,rounding_size=5")
        shape.set(facecolor=fill, edgecolor=theme.ink if running else hue, linewidth=1.4, linestyle=dash, zorder=2)
        ax.add_patch(shape)
        ink = theme.pane if running else theme.ink
        write(left + x + 9, top + y + 16, box.title, 10, ink, fontweight="bold", zorder=3)
        write(left + x + 9, top + y + 31, box.under, 8.5, ink if running else theme.soft, zorder=3)
        if box.state and STATES[box.state].letter:
            write(left + x + w - 9, top + y + 16, STATES[box.state].letter, 10, ink, ha="right", zorder=3)
    for points, (words, bad) in lines:
        if words:
            (x0, y0), (x1, y1) = points[-2:]
            colour = _hue("missed", theme) if bad else theme.soft
            # Left of the line, where its letters do not touch it; later readers stand at the right.
            aside, side = (7, "left") if words == READS_LATER or abs(x1 - x0) <= 4 else (-7, "right")
            beside = (y1 - (28 if (x1 > x0) == (aside < 0) else 14) - y0) / (y1 - y0)
            write(left + x0 + (x1 - x0) * beside + aside, top + y1 - 16, words, 8.5, colour, ha=side, zorder=4)


def _memory(figure: Any, trace: Trace, finding: Finding, box: Any, theme: Theme, write: Any) -> None:
    """Live bytes above the weights, with the finding's steps as marks below the curve."""
    upper, lower, height = box
    live = live_bytes(trace)
    floor = weights_below(trace, live)
    ax = figure.add_axes((_EDGE / WIDTH, 1 - lower / height, 1 - 2 * _EDGE / WIDTH, (lower - upper) / height))
    ax.set_axis_off()
    steps, _, high = thinned(live - floor, WIDTH)
    ax.fill_between(steps, 0, high, step="post", color=theme.accent, alpha=0.16, linewidth=0)
    ax.step(steps, high, where="post", color=theme.accent, linewidth=1.3)
    peak = max(float(high.max()), 1.0)
    ax.set_xlim(0, max(len(live), 1))
    ax.set_ylim(-0.16 * peak, 1.06 * peak)
    for run in trace.runs if len(trace.runs) <= 60 else ():
        if run.last > run.first > 0:
            ax.axvline(run.first, color=theme.line, linewidth=0.8, zorder=0)
    at = np.asarray(finding.at)
    at = at[np.linspace(0, len(at) - 1, min(len(at), _MOST_MARKS)).astype(int)] if len(at) else at
    mark = theme.soft if finding.calm else _hue("missed", theme)
    ax.plot(at, np.full(len(at), -0.09 * peak), linestyle="none", marker="s", markersize=2.6, color=mark)
    if finding.step is not None:
        ax.axvline(finding.step, color=theme.ink, linewidth=1.2)
    above = f" above {size(floor)} of weights, which are not drawn" if floor else ""
    marked = f" · marked: {count(finding.steps, 'step')} of this finding" if finding.steps else ""
    says = f"Memory: peak {size(int(live.max()) - floor)}{above}{marked}"
    write(_EDGE, upper - 8, says, 8.5, theme.soft)
