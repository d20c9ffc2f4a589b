"""One minute of a story, decoded twice side by side: caches without reserved room, and with it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kvviz.errors import KvvizError
from kvviz.lessons.story_steps import StoryFrame, story_frames
from kvviz.report.palette import DARK, LIGHT, OWNERS, STATES, Theme, mix
from kvviz.trace.recording import Trace
from kvviz.trace.units import size

_WIDE, _PANEL, _GAP, _EDGE = 880, 416, 16, 16
_LETTER, _LINE = 7.8, 19  # px of a letter of 13 px, and of a line of words
_HOLD = 0.08  # share of the time for the last frame
_LARGEST = 150_000  # bytes


def animate(
    without_room: Trace,
    with_room: Trace,
    names: Sequence[str] = ("no room reserved", "room reserved"),
    *,
    seconds: float = 60.0,
    cache: int = 0,
) -> str:
    """Two decodes of one story as an animated SVG that plays by itself, word by word, with running byte counters.

    Each run is one line of rows of one cache: what it copied, kept, added, and what is reserved. The picture needs no
    script, and works as an image in a page; if the reader prefers reduced motion, it shows the last frame.

    ``names``: titles of the two halves.
    ``seconds``: duration of the animation; then it repeats.
    ``cache``: which cache's rows are drawn; the counters are of all caches.

    Raises `KvvizError`: if the traces are not decodes of the same words from the same prompt with growing caches, or
    are too long for a picture below 150 kB.
    """
    if len(names) != 2 or seconds <= 0:
        raise KvvizError("an animation needs two names=, one for each trace, and seconds= above 0")
    if without_room.tokens != with_room.tokens or len(without_room.prompt) != len(with_room.prompt):
        raise KvvizError("the two traces tell different stories: decode the same prompt, as many new tokens, by both")
    halves = [story_frames(trace, cache) for trace in (without_room, with_room)]
    n, first = len(with_room.tokens), len(with_room.prompt)
    words, lines = _words(with_room.words or [], first)
    top = 40 + lines * _LINE
    pitch = max(3.0, min(13.0, 260 / n))
    high = round(top + 144 + n * pitch)
    frames = [frame for half in halves for frame in half]
    row = _PANEL / max(frame.capacity for frame in frames)
    share = _PANEL / max(1, max(frame.copied_so_far for frame in frames))
    totals = "; ".join(f"{name}: {half[-1].copied_so_far:,} B of the past copied" for name, half in zip(names, halves))
    caches = with_room.caches
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {high}" width="{_WIDE}" height="{high}" '
        f'role="img" aria-labelledby="t"><title id="t">{escape(f"The same {n} words, told twice. {totals}.")}</title>',
        f"<style>{_style(n, seconds)}</style>",
        f'<rect class="ground" width="{_WIDE}" height="{high}" rx="8"/>',
        f'<text class="soft" x="{_EDGE}" y="22">One word, one run. Each line below: the rows of '
        f"{escape(caches[cache].name)} after one run. Bytes: all {len(caches)} caches.</text>",
        words,
    ]
    for i, (name, half) in enumerate(zip(names, halves)):
        left = _EDGE + i * (_PANEL + _GAP)
        parts.append(f'<text class="head" x="{left}" y="{top + 28}">{escape(name)}</text>')
        for k, frame in enumerate(half):
            parts += [_rows(frame, k, left, top + 40 + k * pitch, row, max(pitch - 1, 1))]
            parts += [_counters(frame, k, left, top + 40 + n * pitch, frame.copied_so_far * share, k == n - 1)]
    parts += [_legend(high - 16), "</svg>"]
    text = "\n".join(parts) + "\n"
    if len(text.encode()) >= _LARGEST:
        raise KvvizError(f"{n} words make a picture of {size(len(text.encode()))}: animate a shorter story")
    return text


def _style(n: int, seconds: float) -> str:
    """Without an animation all is there and every counter but the last one is hidden: that is the last frame."""
    rules = ["text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}.big{font-size:17px;font-weight:700}"]
    rules.append(".head{font-weight:700}.c{opacity:0}.c.last{opacity:1}")
    rules.append(f"{_inks(LIGHT)}@media(prefers-color-scheme:dark){{{_inks(DARK)}}}")
    # It begins with the last two seconds, for paper and for stills, which show only how it begins.
    begin = min(2.0, _HOLD * seconds) - seconds
    moving = [
        f".w,.l,.c{{animation-duration:{seconds:g}s;animation-delay:{begin:g}s;animation-iteration-count:infinite}}"
    ]
    share = 100 * (1 - _HOLD) / n
    for k in range(n):
        come, leave = k * share, (k + 1) * share
        hidden = f"0%,{come - 0.01:.2f}%{{opacity:0}}{come:.2f}%" if k else "0%"
        rules.append(f"@keyframes k{k}{{{hidden},100%{{opacity:1}}}}")
        gone = f"{leave - 0.01:.2f}%{{opacity:1}}{leave:.2f}%,100%{{opacity:0}}" if k < n - 1 else "100%{opacity:1}"
        rules.append(f"@keyframes n{k}{{{hidden},{gone}}}")
        moving.append(f".k{k}{{animation-name:k{k}}}.n{k}{{animation-name:n{k}}}")
    rules.append(f"@media(prefers-reduced-motion:no-preference){{{''.join(moving)}}}")
    return "".join(rules)


def _inks(theme: Theme) -> str:
    missed, done = STATES["missed"], OWNERS["donated"]
    fills = {
        "ground": theme.pane,
        "copied": missed.dark if theme is DARK else missed.light,
        "kept": mix(done.dark if theme is DARK else done.light, theme.pane, 0.45),
        "added": theme.accent,
        "room": mix(theme.soft, theme.pane, 0.18),
        "soft": theme.soft,
    }
    rules = "".join(f".{name}{{fill:{colour}}}" for name, colour in fills.items())
    return f"text{{fill:{theme.ink}}}text.soft{{fill:{theme.soft}}}{rules}.room{{stroke:{theme.line}}}"


def _words(words: Sequence[str], prompt: int) -> tuple[str, int]:
    """The story, wrapped to the picture's width; how many lines it has."""
    parts: list[str] = []
    x, line = 0.0, 0
    for i, word in enumerate(words):
        shown = word.strip() or "·"
        wide = len(shown) * _LETTER
        if x and x + wide > _WIDE - 2 * _EDGE:
            x, line = 0.0, line + 1
        look = 'class="soft"' if i < prompt else f'class="w k{i - prompt}"'
        y = 48 + line * _LINE
        parts.append(f'<text {look} x="{_EDGE + x:.1f}" y="{y}" textLength="{wide:.1f}">{escape(shown)}</text>')
        x += wide + _LETTER
    return "".join(parts), line + 1


def _rows(frame: StoryFrame, k: int, left: float, y: float, row: float, high: float) -> str:
    """The rows of a cache after one run, as boxes side by side."""
    kinds = (
        ("room", frame.valid, frame.capacity),
        ("copied" if frame.moved else "kept", 0, frame.before),
        ("added", frame.before, frame.valid),
    )
    boxes = "".join(
        f'<rect class="{look}" x="{left + start * row:.1f}" y="{y:.1f}" width="{(stop - start) * row - 0.5:.1f}" '
        f'height="{high:.1f}"/>'
        for look, start, stop in kinds
        if stop > start
    )
    return f'<g class="l k{k}">{boxes}</g>'


def _counters(frame: StoryFrame, k: int, left: float, foot: float, bar: float, last: bool) -> str:
    """What was copied up to a run, with a bar, and what this run copied and added."""
    return (
        f'<g class="c n{k}{" last" * last}"><text class="big" x="{left}" y="{foot + 26:.1f}">past copied: '
        f"{frame.copied_so_far:,} B</text>"
        f'<rect class="copied" x="{left}" y="{foot + 32:.1f}" width="{bar:.1f}" height="6"/>'
        f'<text class="soft" x="{left}" y="{foot + 56:.1f}">this run: {frame.copied:,} B copied, '
        f"{frame.added:,} B added</text></g>"
    )


def _legend(y: float) -> str:
    parts, x = [], float(_EDGE)
    looks = {"added": "added by this run", "copied": "copied by this run", "kept": "kept in place", "room": "reserved"}
    for look, text in looks.items():
        parts.append(f'<rect class="{look}" x="{x:.1f}" y="{y - 10:.1f}" width="22" height="11"/>')
        parts.append(f'<text class="soft" x="{x + 28:.1f}" y="{y:.1f}">{text}</text>')
        x += 28 + len(text) * _LETTER + 28
    return "".join(parts)
