"""A story in steps, run by run: its words as rows, attention weights, and the places of new rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from kvviz.engine.sessions.value_pass import attention_by_run
from kvviz.errors import KvvizError
from kvviz.lessons.serving.forward_pass import Recomputed
from kvviz.lessons.stepping import Cell, Frame, Group, Stepping
from kvviz.trace.recording import Trace
from kvviz.trace.units import count

_NEW = "computed and written by this run"
_SEEN = 0.01  # share of the weight from which on a bar is drawn


@dataclass(frozen=True, slots=True)
class StoryFrame:
    """One run of a decode. Rows are those of the drawn cache, bytes those of all caches."""

    word: str  # that the run generated
    capacity: int  # rows in its buffer, reserved ones included
    valid: int  # rows that hold a token
    before: int  # rows that held one before the run
    moved: bool  # earlier rows were copied in this run, or after it to make room
    copied: int  # bytes of the past, in this run
    added: int  # bytes of the new rows
    copied_so_far: int  # bytes of the past, up to this run and with it


def story_frames(trace: Trace, cache: int = 0) -> tuple[StoryFrame, ...]:
    """The frames of a decode with growing caches and with the words of its tokens.

    ``cache``: which cache's rows are drawn; bytes are of all caches.

    Raises `KvvizError`: if the trace is no decode, has no words, or a cache of it does not grow.
    """
    words = trace.words or []
    if not trace.caches or not trace.prompt or len(words) <= len(trace.prompt):
        raise KvvizError("a story is drawn from a decode with caches and with the words of its tokens (tokenizer=)")
    if other := next((one for one in trace.caches if one.protocol != "growing"), None):
        raise KvvizError(f"the story's bytes are those of growing caches; {other.name} is {other.protocol}")
    if not 0 <= cache < len(trace.caches):
        raise KvvizError(f"cache={cache}: the trace has {len(trace.caches)} caches, counted from 0")
    frames: list[StoryFrame] = []
    total = before = 0
    for k, (word, here) in enumerate(zip(words[len(trace.prompt) :], trace.caches[cache].runs)):
        runs = [one.runs[k] for one in trace.caches]
        copied = sum(run.bytes_copied + run.bytes_moved_outside for run in runs)
        added = sum(run.bytes_written - run.bytes_copied for run in runs)
        moved = bool(here.bytes_copied + here.bytes_moved_outside)
        total += copied
        frames.append(StoryFrame(word, here.capacity, here.valid, before, moved, copied, added, total))
        before = here.valid
    return tuple(frames)


def step_story(
    trace: Trace, without: Recomputed | None = None, layer: int = 0, head: int = 1, weights: bool = True
) -> Stepping:
    """A decoded story in steps: in each run, the row that is written, those that are read, and attention weights.

    ``trace``: a decode with growing caches and the words of its tokens.
    ``without``: the same story without a cache, see `recompute`, to show which rows are computed again.
    ``layer``, ``head``: whose attention from the newest word is drawn.
    ``weights``: draw it; the runs are repeated for it, which takes about as long as the decode.

    Raises `KvvizError`: if the trace is no such decode, has no such head, or ``without`` is another story.
    """
    words, frames = trace.words or [], story_frames(trace, _keys(trace, layer))
    if without is not None and without.words != words:
        raise KvvizError("without= is another story: decode the same prompt, as many new tokens, by both")
    fresh = [frame.valid - frame.before for frame in frames]
    computed = fresh if without is None else without.rows
    weighed = _weights(trace, layer, head) if weights else [np.zeros(frame.valid) for frame in frames]
    steps = []
    for k, (frame, found, total) in enumerate(zip(frames, weighed, accumulate(computed))):
        newest = words[frame.valid - 1]
        old = "read" if without is None else "again"
        cells = [Cell("new" if at >= frame.before else old, float(found[at])) for at in range(frame.valid)]
        cells += [Cell("next"), *[Cell()] * (len(words) - frame.valid - 1)]
        before = "" if not frame.before else f", and reads {frame.before}" if without is None else ""
        again = f", {frame.before} of them again" if without is not None and frame.before else ""
        top = int(found.argmax())
        looks = f" “{newest}” gives most weight to “{words[top]}” ({found[top]:.0%})." if found[top] > _SEEN else ""
        caption = f"Run {k} computes {count(computed[k], 'row')}{again}{before}.{looks} Next word: “{frame.word}”."
        figures = [f"run {k}", f"rows computed in this run: {computed[k]:,}", f"so far: {total:,}"]
        steps.append(Frame(caption, [[Cell(text=text) for text in figures], cells]))
    legend = {"new": _NEW, "read": "read from the cache"}
    if without is not None:
        legend = {"new": "computed for the first time", "again": "computed again"}
    title = "With a cache" if without is None else "Without a cache"
    groups = [Group("", "figures", ["", "", ""]), Group("", "words", words)]
    return Stepping(f"{title}, run by run", groups, steps, {**legend, "next": "chosen by this run"}, still=-1)


def step_decodes(
    without_room: Trace,
    with_room: Trace,
    names: Sequence[str] = ("no room reserved", "room reserved"),
    cache: int = 0,
) -> Stepping:
    """One story decoded twice, in steps: rows of one cache that a run copies, keeps and adds, and bytes of all caches.

    ``names``: titles of the two halves.
    ``cache``: whose rows are drawn.

    Raises `KvvizError`: if the traces are not decodes of the same words with growing caches.
    """
    if without_room.tokens != with_room.tokens or without_room.prompt != with_room.prompt:
        raise KvvizError("the two traces tell different stories: decode the same prompt, as many new tokens, by both")
    halves = [story_frames(trace, cache) for trace in (without_room, with_room)]
    most = max(1, *(half[-1].copied_so_far for half in halves))
    groups, steps = [], []
    for name, half in zip(names, halves):
        groups.append(Group(name, "rows", [str(at) for at in range(max(frame.capacity for frame in half))]))
        groups.append(Group("", "figures", ["", ""]))
        groups.append(Group("", "bar", [""]))
    for k, pair in enumerate(zip(*halves)):
        cells: list[list[Cell]] = []
        for frame, width in zip(pair, (len(group.texts) for group in groups[::3])):
            old = "copied" if frame.moved else "read"
            rows = [Cell(old)] * frame.before + [Cell("new")] * (frame.valid - frame.before)
            rows += [Cell("room")] * (frame.capacity - frame.valid)
            figures = (
                f"run {k} copies {frame.copied:,} B, adds {frame.added:,} B",
                f"copied so far: {frame.copied_so_far:,} B",
            )
            cells += [rows + [Cell()] * (width - len(rows)), [Cell(text=text) for text in figures]]
            cells.append([Cell("copied", frame.copied_so_far / most)])
        said = "; ".join(f"{name}: {frame.copied:,} B of old rows copied" for name, frame in zip(names, pair))
        steps.append(Frame(f"Run {k} chooses “{pair[0].word}”. {said[0].upper()}{said[1:]}.", cells))
    legend = {"new": _NEW, "copied": "copied to a new array", "read": "stays where it is", "room": "reserved"}
    return Stepping("Where the new row goes", groups, steps, legend)


def _keys(trace: Trace, layer: int) -> int:
    keys = [i for i, cache in enumerate(trace.caches) if cache.name.endswith("key")]
    if not 0 <= layer < len(keys):
        raise KvvizError(f"layer={layer}: the trace has key caches of {len(keys)} layers, counted from 0")
    return keys[layer]


def _weights(trace: Trace, layer: int, head: int) -> list[np.ndarray]:
    found = attention_by_run(trace, _keys(trace, layer))
    if len(found) < len(trace.runs):
        raise KvvizError("the graph does not show what its attention weighs: weights=False draws the rows alone")
    if not 0 <= head < len(found[0]):
        raise KvvizError(f"head={head}: a layer has {len(found[0])} heads, counted from 0")
    return [found[run][head] for run in range(len(trace.runs))]
