"""What each word of a decode does to the caches, as figures: what an animation shows, and what it is tested by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace


@dataclass(frozen=True, slots=True)
class StoryFrame:
    """One run of a decode.

    Attributes
    ----------
    word : str
        The word that the run generated.
    capacity, valid, before : int
        Rows of the drawn cache that there is room for, that hold a token, and that held one before the run.
    moved : bool
        Earlier rows of the drawn cache were copied in this run, or after it to make room.
    copied, added : int
        Bytes of the past that were copied, and bytes of the new rows, of all caches in this run.
    copied_so_far, added_so_far : int
        The same up to this run, with it.
    """

    word: str
    capacity: int
    valid: int
    before: int
    moved: bool
    copied: int
    added: int
    copied_so_far: int
    added_so_far: int


def story_frames(trace: Trace, cache: int = 0) -> tuple[StoryFrame, ...]:
    """The frames of a decode with growing caches.

    Parameters
    ----------
    trace : Trace
        Of `kvviz.decode`, with the words of its tokens.
    cache : int
        Which cache's rows are drawn; bytes are of all caches.

    Raises
    ------
    KvvizError
        If the trace is no decode, has no words, or a cache of it does not grow.
    """
    words = trace.words or []
    if not trace.caches or not trace.prompt or len(words) <= len(trace.prompt):
        raise KvvizError("a story is drawn from a decode with caches and with the words of its tokens (tokenizer=)")
    other = next((one for one in trace.caches if one.protocol != "growing"), None)
    if other is not None:
        raise KvvizError(f"the story's bytes are those of growing caches; {other.name} is {other.protocol}")
    if not 0 <= cache < len(trace.caches):
        raise KvvizError(f"cache={cache}: the trace has {len(trace.caches)} caches, counted from 0")
    told = words[len(trace.prompt) :]
    drawn = trace.caches[cache].runs
    frames: list[StoryFrame] = []
    past = new = 0
    for k, (word, here) in enumerate(zip(told, drawn)):
        runs = [one.runs[k] for one in trace.caches]
        copied = sum(run.bytes_copied + run.bytes_moved_outside for run in runs)
        added = sum(run.bytes_written - run.bytes_copied for run in runs)
        past, new = past + copied, new + added
        moved = bool(here.bytes_copied + here.bytes_moved_outside)
        before = drawn[k - 1].valid if k else 0
        frames.append(StoryFrame(word, here.capacity, here.valid, before, moved, copied, added, past, new))
    return tuple(frames)


def same_story(traces: Sequence[Trace]) -> None:
    """Raise where traces do not tell the same words."""
    first = traces[0]
    for other in traces[1:]:
        if other.tokens != first.tokens or len(other.prompt) != len(first.prompt):
            raise KvvizError(
                "the two traces tell different stories: decode the same prompt, with as many new tokens, by both"
            )
