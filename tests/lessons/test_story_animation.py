"""The animation of two decodes: what it shows is what the traces say."""

import json
import re
import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import kvviz
from kvviz.lessons import story_frames

ROOT = Path(__file__).resolve().parents[2]
animate = runpy.run_path(str(ROOT / ".ci" / "story_animation.py"))["animate"]
STORYTELLER = ROOT / "assets" / "models" / "storyteller"
COMMITTED = ROOT / "assets" / "images" / "two_decodes.svg"
PROMPT = "once upon a time there was a brave owl named rosa ."
# Of the committed picture.
WORDS = 24
SVG = "{http://www.w3.org/2000/svg}"
# Three layers, keys and values, two heads of 16 floats.
ROW = 3 * 2 * 2 * 16 * 4


def decode(words: int = WORDS, **options: Any) -> kvviz.Trace:
    graph = kvviz.load(STORYTELLER / "concat" / "model.onnx")
    vocabulary = json.loads((STORYTELLER / "vocab.json").read_text())
    trace: kvviz.Trace = kvviz.decode(
        graph, PROMPT, max_new_tokens=words, tokenizer=vocabulary, progress=False, **options
    )
    return trace


@pytest.fixture(scope="module")
def pair() -> tuple[kvviz.Trace, kvviz.Trace]:
    return decode(), decode(kv_capacity=40)


def counters(svg: str) -> tuple[list[int], list[list[int]]]:
    """Bytes on the big counters, and copied and added of each run, in the order of both halves."""
    big = [int(text.replace(",", "")) for text in re.findall(r"past copied: ([\d,]+) B", svg)]
    runs = [
        [int(number.replace(",", "")) for number in found]
        for found in re.findall(r"this run: ([\d,]+) B copied, ([\d,]+) B added", svg)
    ]
    return big, runs


def test_every_words_bytes_are_those_of_the_traces_and_of_the_closed_form(
    pair: tuple[kvviz.Trace, kvviz.Trace],
) -> None:
    big, runs = counters(animate(*pair))
    prompt = len(pair[0].prompt)
    # without room a run copies all rows that were there; with room none
    copied = [0, *((prompt + k - 1) * ROW for k in range(1, WORDS))]
    assert runs[:WORDS] == [[copied[k], ROW * (1 if k else prompt)] for k in range(WORDS)]
    assert runs[WORDS:] == [[0, ROW * (1 if k else prompt)] for k in range(WORDS)]
    assert big == [*(sum(copied[: k + 1]) for k in range(WORDS)), *[0] * WORDS]
    assert copied == [sum(cache.runs[k].bytes_copied for cache in pair[0].caches) for k in range(WORDS)]
    # and so are those of the committed picture
    assert counters(COMMITTED.read_text("utf-8")) == (big, runs)
    assert COMMITTED.stat().st_size < 150_000


def test_it_is_one_small_file_without_script_or_anything_to_fetch_and_tells_the_story(
    pair: tuple[kvviz.Trace, kvviz.Trace],
) -> None:
    svg = animate(*pair)
    assert len(svg.encode()) < 150_000
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {"svg", "title", "style", "rect", "text", "g"}
    assert not re.search(r"href|url\(|@import|\bon\w+=", svg)
    # all that moves is behind the media query, and of each half's counters the last one is not hidden without it
    style, _, moving = svg.partition("@media(prefers-reduced-motion:no-preference)")
    assert "animation" not in style and "animation-duration" in moving.partition("</style>")[0]
    shown = re.findall(r'class="c n(\d+) last"', svg)
    assert shown == [str(WORDS - 1)] * 2
    assert ".c{opacity:0}.c.last{opacity:1}" in style
    # the words of the story come one run after another
    told = [text.text for text in root.iter(f"{SVG}text") if (text.get("class") or "").startswith("w k")]
    words = pair[0].words
    assert words is not None
    assert told == [word.strip() for word in words[len(pair[0].prompt) :]]


def test_a_move_between_runs_counts_as_copied() -> None:
    # given caches whose caller makes room after a run
    trace = decode(12, kv_capacity=16, growth="after")
    moved = [k for k, run in enumerate(trace.caches[0].runs) if run.bytes_moved_outside]
    frames = story_frames(trace)
    assert moved and moved == [k for k, frame in enumerate(frames) if frame.moved]
    for k in moved:
        assert frames[k].copied == sum(cache.runs[k].bytes_moved_outside for cache in trace.caches)
        # the room is there for the next run
        assert frames[k + 1].capacity > frames[k].capacity


def test_different_stories_and_other_protocols_are_refused(pair: tuple[kvviz.Trace, kvviz.Trace]) -> None:
    with pytest.raises(kvviz.KvvizError, match="tell different stories"):
        animate(pair[0], decode(3))
    with pytest.raises(kvviz.KvvizError, match="two names="):
        animate(*pair, ("one",))
    with pytest.raises(kvviz.KvvizError, match="cache=6: the trace has 6 caches"):
        animate(*pair, cache=6)
