"""The picture of one hidden pair: two ops, the bytes of the root that both touch, and the missing edge.

The picture is a table of shapes and a table of texts. The page receives both and draws the same picture.
Invariant: every text is escaped and shortened to fit; colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from kvviz.errors import KvvizError
from kvviz.report.palette import DARK, LIGHT
from kvviz.trace.index.hazards import Hazard
from kvviz.trace.model_or_trace import TraceLike, as_trace
from kvviz.trace.recording import Trace
from kvviz.trace.schema.declared import Access
from kvviz.trace.schema.regions import LEVELS, Level, bounds, spans, stored_bytes
from kvviz.trace.units import dims, short, size

WIDTH, HEIGHT = 800, 452
HEAD = 94  # bottom of the headline and the sentence
FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
_LEFT, _RIGHT = 24, WIDTH - 24
BAR_WIDTH = _RIGHT - _LEFT
_BOX, _TOP, _TALL = 280, 104, 72
_BAR, _TRACKS = 14, (232, 282, 332)
# Byte ranges closer to each other than this fraction of a bar are drawn as one.
_APART = 1 / 1400
_NARROWEST = 1.5

PAIR_TEXTS = (
    *("kind", "headline", "line1", "line2", "label", "op1", "name1", "does1", "op2", "name2", "does2"),
    *("view1", "span1", "view2", "span2", "shared", "span3", "root", "says_root", "says_range", "says_exact"),
)
PAIR_PATHS = ("path1", "path2", "path3")

_COLOURS = {
    "ground": (LIGHT.pane, DARK.pane),
    "ink": (LIGHT.ink, DARK.ink),
    "soft": (LIGHT.soft, DARK.soft),
    "line": (LIGHT.line, DARK.line),
    "red": ("#c0143c", "#ff7a90"),
    "one": ("#1f5fbf", "#7fb0ff"),
    "two": ("#9a7d00", "#d8cc3a"),
}
_FRAMES = {"card": "line", "early": "one", "late": "two", "edge": "red"}


def _style(theme: int) -> str:
    fills = "".join(f".p-{name}{{fill:{colours[theme]}}}" for name, colours in _COLOURS.items())
    return fills + "".join(f".p-{name}{{fill:none;stroke:{_COLOURS[of][theme]}}}" for name, of in _FRAMES.items())


PAIR_STYLES = (_style(0), _style(1))

_Shape = tuple[str, dict[str, Any], str, str]


def _text(
    x: float, y: float, field: str, look: str = "ink", px: float = 13, bold: bool = False, end: str = ""
) -> _Shape:
    attributes: dict[str, Any] = {"x": x, "y": y, "class": f"p-{look}", "font-size": px}
    if bold:
        attributes["font-weight"] = 600
    if end:
        attributes["text-anchor"] = end
    return "text", attributes, field, ""


def _rect(x: float, y: float, w: float, h: float, look: str, **more: Any) -> _Shape:
    return "rect", {"x": x, "y": y, "width": w, "height": h, "class": f"p-{look}", **more}, "", ""


def _shapes() -> tuple[_Shape, ...]:
    middle, edge = WIDTH / 2, _TOP + _TALL / 2
    start, tip = _LEFT + _BOX, _RIGHT - _BOX
    line = {"class": "p-edge", "stroke-width": 2.5}
    shapes = [
        _rect(0, 0, WIDTH, HEIGHT, "ground"),
        _text(_LEFT, 36, "headline", px=18, bold=True),
        _text(_LEFT, 62, "line1"),
        _text(_LEFT, 81, "line2"),
    ]
    for n, x in ((1, _LEFT), (2, tip)):
        shapes += [
            _rect(x, _TOP, _BOX, _TALL, "early" if n == 1 else "late", rx=6, **{"stroke-width": 2}),
            _text(x + 12, _TOP + 23, f"op{n}", px=15, bold=True),
            _text(x + 12, _TOP + 42, f"name{n}"),
            _text(x + 12, _TOP + 61, f"does{n}", "soft", 12),
        ]
    shapes += [
        ("path", {"d": f"M{start} {edge}H{tip - 9}", **line, "stroke-dasharray": "7 5"}, "", "hidden"),
        ("path", {"d": f"M{start} {edge}H{tip - 9}", **line}, "", "broken"),
        ("path", {"d": f"M{middle - 9} {edge - 9}l18 18m0 -18l-18 18", **line}, "", "broken"),
        ("path", {"d": f"M{start} {edge}H{tip - 9}", **line, "stroke-dasharray": "1 6"}, "", "false"),
        ("path", {"d": f"M{tip} {edge}l-11 -6v12z", "class": "p-red"}, "", ""),
        _text(middle, edge - 14, "label", "red", 14, True, "middle"),
        _text(middle, edge + 26, "kind", "soft", 12, end="middle"),
    ]
    views = ("view1", "view2", "shared")
    for n, (y, field, path, look) in enumerate(zip(_TRACKS, views, PAIR_PATHS, ("one", "two", "red")), start=1):
        shapes += [
            _text(_LEFT, y - 8, field, px=12.5),
            _text(_RIGHT, y - 8, f"span{n}", "soft", 12, end="end"),
            _rect(_LEFT, y, BAR_WIDTH, _BAR, "card"),
            ("path", {"class": f"p-{look}", "transform": f"translate({_LEFT} {y})"}, path, ""),
        ]
    shapes.append(_text(_LEFT, _TRACKS[2] + 32, "root", "soft", 12))
    says = (("root", "whole root"), ("range", "first to last byte"), ("exact", "exact bytes"))
    for n, (level, about) in enumerate(says):
        left = _LEFT + n * (_RIGHT - _LEFT) // 3
        shapes += [_text(left, HEIGHT - 42, f"={about}", "soft", 12), _text(left, HEIGHT - 22, f"says_{level}", px=13)]
    return tuple(shapes)


SHAPES = _shapes()
"""Tag, attributes, the name of its text or path (a fixed text starts with ``=``), and the state that shows it."""


def hidden_pair_svg(trace: TraceLike, hazard: Hazard) -> str:
    """The picture of one hazard as an SVG document, ready to paste into an issue.

    Parameters
    ----------
    trace : Trace, or ggml.ComputeGraph
    hazard : Hazard
        One that `kvviz.hazards` found in it.

    Raises
    ------
    KvvizError
        If the hazard belongs to another trace.
    """
    trace = as_trace(trace, "hidden_pair_svg")
    if not (0 <= hazard.first < hazard.second < len(trace.log) and hazard.storage < len(trace.log.storages)):
        raise KvvizError(f"steps {hazard.first} and {hazard.second} of the hazard are not steps of this trace")
    texts = {**pair_texts(trace, hazard), **dict(zip(PAIR_PATHS, pair_paths(hazard, capacity_of(trace, hazard))))}
    state = pair_state(hazard)
    light, dark = PAIR_STYLES
    body = "".join(_drawn(shape, texts) for shape in SHAPES if shape[3] in ("", state))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="{FONT}" role="img"><title>{escape(texts["headline"])}</title>'
        f"<style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>{body}</svg>"
    )


def _drawn(shape: _Shape, texts: Mapping[str, str]) -> str:
    tag, attributes, field, _ = shape
    content = field[1:] if field.startswith("=") else texts.get(field, "")
    if tag == "path" and field:
        attributes, content = {**attributes, "d": content}, ""
    written = "".join(f" {name}={quoteattr(str(value))}" for name, value in attributes.items())
    return f"<{tag}{written}>{escape(content)}</{tag}>"


def pair_state(hazard: Hazard) -> str:
    """``"broken"``, ``"hidden"`` or, for a pair that shares no byte, ``"false"``."""
    return "false" if not hazard.exact else "broken" if hazard.broken else "hidden"


_ONLY = "Nothing but the order of the list keeps"
_HEADLINES = {
    ("RAW", False): f"{_ONLY} this read behind that write",
    ("WAR", False): f"{_ONLY} this write behind that read",
    ("WAW", False): f"{_ONLY} this write behind that one",
    ("RAW", True): "This read comes before the write that it needs",
    ("WAR", True): "This read comes after its bytes were overwritten",
    ("WAW", True): "These two writes are in the wrong order: the wrong bytes stay",
}
# By kind, and whether the recorded order is broken.


def headline(hazard: Hazard) -> str:
    if hazard.ordered:
        return "A path of the graph keeps these two in order"
    if not hazard.exact:
        coarse = "ranges" if hazard.range else "whole roots"
        return f"No byte is shared: only a look at {coarse} takes these two for a conflict"
    if hazard.confidence == "unknown":
        return "These two may touch the same bytes, and nothing but the order of the list keeps them in order"
    return _HEADLINES[hazard.kind, hazard.broken]


def _at_level(hazard: Hazard, level: Level, shared: int) -> str:
    if not shared:
        return "no conflict"
    if LEVELS.index(level) > LEVELS.index(hazard.known):
        return f"not known: at most {size(hazard.exact)}"
    return f"conflict: {size(shared)}" if hazard.exact else f"conflict: {size(shared)}, which is wrong"


def pair_texts(trace: Trace, hazard: Hazard) -> dict[str, str]:
    lines = wrap(short(hazard.sentence, 200), 106) or [""]
    if len(lines) > 2:
        lines = [lines[0], short(" ".join(lines[1:]), 106)]
    state = {"broken": "broken: in the wrong order", "hidden": "hidden: no edge joins them", "false": "no dependency"}
    shared = size(hazard.exact) if hazard.known == "exact" else f"at most {size(hazard.exact)}"
    texts = {
        "kind": state[pair_state(hazard)],
        "headline": headline(hazard),
        "line1": lines[0],
        "line2": lines[1] if len(lines) > 1 else "",
        "label": f"{hazard.kind} · {shared}",
        "shared": f"shared: {shared}" if hazard.exact else "shared: no byte",
        "span3": "",
        "root": f"each bar: all {size(capacity_of(trace, hazard))} of {short(hazard.root, 60)}",
    }
    both = _both(hazard)
    if both:
        texts["shared"] += f" in {len(both):,} pieces" if len(both) > 1 else ""
        texts["span3"] = f"bytes {both[0][0]:,} to {both[-1][1]:,}"
    sides = ((hazard.first, hazard.early), (hazard.second, hazard.late))
    for n, (step, access) in enumerate(sides, start=1):
        low, high = bounds(access.region)
        node = trace.log[step].op.node
        texts[f"op{n}"] = short(node.op_type, 28)
        texts[f"name{n}"] = short(node.name if node.name != node.op_type else access.value, 38)
        texts[f"does{n}"] = f"step {step:,} {'writes' if access.writes else 'reads'}"
        texts[f"view{n}"] = view_text(access)
        texts[f"span{n}"] = f"bytes {low:,} to {high:,}"
    levels = zip(LEVELS, (hazard.whole, hazard.range, hazard.exact))
    return {**texts, **{f"says_{level}": _at_level(hazard, level, count) for level, count in levels}}


def view_text(access: Access) -> str:
    region = access.region
    what = f"{'writes' if access.writes else 'reads'} {short(access.value, 30)}"
    if region.known != "exact":
        return f"{what}: at most {size(stored_bytes(region))}, it is not known which"
    rows = "" if region.rows is None else f" at {len(region.rows):,} places"
    form = f"{region.dtype} {dims(region.shape)}{rows}, strides {dims(region.strides)} B"
    return f"{what}: offset {region.offset:,} · {short(form, 50)}"


def capacity_of(trace: Trace, hazard: Hazard) -> int:
    return int(trace.log.storages[hazard.storage].capacity)


def pair_paths(hazard: Hazard, capacity: int) -> tuple[str, str, str]:
    """The bytes of each side, and the shared bytes, as SVG paths over the bar of the root."""
    one, two = hazard.early.region, hazard.late.region
    return (
        _path(spans(one) or (bounds(one),), capacity),
        _path(spans(two) or (bounds(two),), capacity),
        _path(_both(hazard), capacity),
    )


def _both(hazard: Hazard) -> Sequence[tuple[int, int]]:
    one, two = hazard.early.region, hazard.late.region
    if not hazard.exact or hazard.known != "exact":
        return ()
    both = spans(one, two)
    return ((max(bounds(one)[0], bounds(two)[0]), min(bounds(one)[1], bounds(two)[1])),) if both is None else both


def _path(runs: Sequence[tuple[int, int]], capacity: int) -> str:
    merged: list[list[int]] = []
    for low, high in runs:
        if merged and low - merged[-1][1] < capacity * _APART:
            merged[-1][1] = high
        else:
            merged.append([low, high])
    scale = (_RIGHT - _LEFT) / max(capacity, 1)
    parts = []
    for low, high in merged:
        wide = max(_NARROWEST, (high - low) * scale)
        x = min(low * scale, _RIGHT - _LEFT - wide)
        parts.append(f"M{x:.1f} 0h{wide:.1f}v{_BAR}h-{wide:.1f}z")
    return "".join(parts)
