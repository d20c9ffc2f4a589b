"""One minute of a story, told twice side by side: caches without reserved room, and with it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from kvviz.atomic_write import write_text
from kvviz.errors import KvvizError
from kvviz.lessons.story_frames import StoryFrame, same_story, story_frames
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
    path: str | Path | None = None,
    seconds: float = 60.0,
    cache: int = 0,
) -> str:
    """Two decodes of one story as an animated SVG that plays by itself, word by word, with running byte counters.

    Each run is one line of rows of one cache: what it copied, kept, added, and what is reserved. The picture needs no
    script, and works as an image in a page; if the reader prefers reduced motion, it shows the last frame.

    Parameters
    ----------
    without_room, with_room : Trace
        Of `kvviz.decode`, of the same prompt and with the same words.
    names : sequence of str
        Titles of the two halves.
    path : str or Path, optional
        File to write it to as well.
    seconds : float
        Duration of the animation; then it repeats.
    cache : int
        Which cache's rows are drawn; the counters are of all caches.

    Returns
    -------
    str
        The SVG, below 150 kB.

    Raises
    ------
    KvvizError
        If the traces tell different stories, are not decodes with growing caches, or are too long for one picture.
    """
    if len(names) != 2 or seconds <= 0:
        raise KvvizError("an animation needs two names=, one for each trace, and seconds= above 0")
    same_story((without_room, with_room))
    pair = tuple(story_frames(trace, cache) for trace in (without_room, with_room))
    n = len(pair[0])
    prompt = (without_room.words or [])[: len(without_room.prompt)]
    words, lines = _words([*prompt, *(frame.word for frame in pair[0])], len(prompt))
    top = 40 + lines * _LINE
    most = max(frame.capacity for half in pair for frame in half)
    pitch = max(3.0, min(13.0, 260 / n))
    bottom = top + 60 + n * pitch
    high = round(bottom + 84)
    of = with_room.caches[cache].name
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {high}" width="{_WIDE}" height="{high}" '
        f'role="img" aria-labelledby="t"><title id="t">{escape(_title(pair, names))}</title>',
        f"<style>{_style(n, seconds)}</style>",
        f'<rect class="ground" width="{_WIDE}" height="{high}" rx="8"/>',
        f'<text class="soft" x="{_EDGE}" y="22">One word, one run. Each line below: the rows of '
        f"{escape(of)} after one run. Bytes: all {len(with_room.caches)} caches.</text>",
        words,
        *(_half(half, names[i], _EDGE + i * (_PANEL + _GAP), top, pitch, most, pair) for i, half in enumerate(pair)),
        _legend(high - 16),
        "</svg>",
    ]
    text = "\n".join(parts) + "\n"
    if len(text.encode()) >= _LARGEST:
        raise KvvizError(f"{n} words make a picture of {size(len(text.encode()))}: animate a shorter story")
    if path is not None:
        write_text(path, text)
    return text


def _title(pair: Sequence[Sequence[StoryFrame]], names: Sequence[str]) -> str:
    told = "; ".join(f"{name}: {half[-1].copied_so_far:,} B of the past copied" for name, half in zip(names, pair))
    return f"The same {len(pair[0])} words, told twice. {told}."


def _style(n: int, seconds: float) -> str:
    """Without an animation all is there and every counter but the last one is hidden: that is the last frame."""
    rules = ["text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}.big{font-size:17px;font-weight:700}"]
    rules.append(".head{font-weight:700}.c{opacity:0}.c.last{opacity:1}")
    rules.append(_inks(LIGHT, dark=False))
    rules.append(f"@media(prefers-color-scheme:dark){{{_inks(DARK, dark=True)}}}")
    # It begins with the last two seconds, for paper and for stills, which show only how it begins.
    begin = min(2.0, _HOLD * seconds) - seconds
    moving = [f".w,.l,.c{{animation-duration:{seconds:g}s;animation-delay:{begin:g}s"]
    moving.append(";animation-iteration-count:infinite}")
    share = 100 * (1 - _HOLD) / n
    for k in range(n):
        come, leave = k * share, (k + 1) * share
        shown = f"{come:.2f}%" if k else "0%"
        hidden = f"0%,{come - 0.01:.2f}%{{opacity:0}}" if k else ""
        rules.append(f"@keyframes k{k}{{{hidden}{shown},100%{{opacity:1}}}}")
        gone = "" if k == n - 1 else f"{leave:.2f}%,100%{{opacity:0}}"
        end = "100%" if k == n - 1 else f"{leave - 0.01:.2f}%"
        rules.append(f"@keyframes n{k}{{{hidden}{shown},{end}{{opacity:1}}{gone}}}")
        moving.append(f".k{k}{{animation-name:k{k}}}.n{k}{{animation-name:n{k}}}")
    rules.append(f"@media(prefers-reduced-motion:no-preference){{{''.join(moving)}}}")
    return "".join(rules)


def _inks(theme: Theme, dark: bool) -> str:
    missed, done = STATES["missed"], OWNERS["donated"]
    copied = missed.dark if dark else missed.light
    kept = mix(done.dark if dark else done.light, theme.pane, 0.45)
    fills = {
        "ground": theme.pane,
        "copied": copied,
        "kept": kept,
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


def _half(
    frames: Sequence[StoryFrame],
    name: str,
    left: float,
    top: float,
    pitch: float,
    most: int,
    pair: Sequence[Sequence[StoryFrame]],
) -> str:
    one = _PANEL / most
    parts = [f'<text class="head" x="{left}" y="{top + 28}">{escape(name)}</text>']

    def box(look: str, start: int, stop: int, y: float) -> str:
        if stop <= start:
            return ""
        wide, tall = (stop - start) * one - 0.5, max(pitch - 1, 1)
        return f'<rect class="{look}" x="{left + start * one:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"/>'

    for k, frame in enumerate(frames):
        y = top + 40 + k * pitch
        past = "copied" if frame.moved else "kept"
        line = box("room", frame.valid, frame.capacity, y) + box(past, 0, frame.before, y)
        parts.append(f'<g class="l k{k}">{line}{box("added", frame.before, frame.valid, y)}</g>')
    foot = top + 40 + len(frames) * pitch
    scale = _PANEL / max(1, max(half[-1].copied_so_far for half in pair))
    for k, frame in enumerate(frames):
        last = " last" if k == len(frames) - 1 else ""
        bar = frame.copied_so_far * scale
        parts.append(
            f'<g class="c n{k}{last}"><text class="big" x="{left}" y="{foot + 26:.1f}">past copied: '
            f"{frame.copied_so_far:,} B</text>"
            f'<rect class="copied" x="{left}" y="{foot + 32:.1f}" width="{bar:.1f}" height="6"/>'
            f'<text class="soft" x="{left}" y="{foot + 56:.1f}">this run: {frame.copied:,} B copied, '
            f"{frame.added:,} B added</text></g>"
        )
    return "\n".join(parts)


def _legend(y: float) -> str:
    parts, x = [], float(_EDGE)
    told = (
        ("added", "added by this run"),
        ("copied", "copied by this run"),
        ("kept", "kept in place"),
        ("room", "reserved"),
    )
    for look, text in told:
        parts.append(f'<rect class="{look}" x="{x:.1f}" y="{y - 10:.1f}" width="22" height="11"/>')
        parts.append(f'<text class="soft" x="{x + 28:.1f}" y="{y:.1f}">{text}</text>')
        x += 28 + len(text) * _LETTER + 28
    return "".join(parts)
