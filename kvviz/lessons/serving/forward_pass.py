"""One forward pass of a decoder with explicit caches, and changes of them between two passes.

Rows include the rotation of their position, so a row that stays keeps its place in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvviz.decode.prompt import as_batch, text_of, tokenizer_for
from kvviz.decode.public_runs import run
from kvviz.errors import KvvizError
from kvviz.graph.cache_pairs import CachePair, cache_pairs, control_inputs, logits_output
from kvviz.graph.model import Graph
from kvviz.memory import reserve
from kvviz.trace.model_or_trace import as_graph
from kvviz.trace.recording import Trace

Rows = dict[str, np.ndarray]
"""Cached keys and values by input name, each (batch, KV heads, rows, head size)."""

Change = Callable[[Rows, list[int]], tuple[Rows, list[int]]]
"""A function of the rows and their positions after a pass; returns those for the next pass."""

AXIS = 2


@dataclass(frozen=True, slots=True)
class Pass:
    logits: np.ndarray  # (batch, new tokens, vocabulary)
    rows: Rows  # the caches with the new rows after the old ones
    trace: Trace | None  # if it was recorded

    @property
    def next_tokens(self) -> list[int]:
        return [int(token) for token in self.logits[:, -1].argmax(-1)]


def pairs_of(graph: Graph) -> tuple[CachePair, ...]:
    """The caches of a graph that takes them with any number of rows; raises `KvvizError` for other caches."""
    pairs = tuple(cache_pairs(graph))
    if not pairs or any(pair.protocol != "growing" or pair.axis != AXIS for pair in pairs):
        raise KvvizError(f"{graph.name} has no caches that grow row by row; use the form with Concat")
    return pairs


def empty_rows(graph: Graph, batch: int = 1, room: int = 0) -> Rows:
    """Caches without a row; ``room``: rows to reserve, so that rows are appended in place."""
    graph = as_graph(graph, "kvviz.lessons.serving.empty_rows")
    shapes = {value.name: value.shape for value in graph.inputs}
    made: Rows = {}
    for pair in pairs_of(graph):
        _, heads, _, size = shapes[pair.input] or ()
        bare = np.zeros((batch, int(heads or 0), 0, int(size or 0)), np.float32)
        made[pair.input] = reserve(bare, AXIS, room) if room else bare
    return made


def forward(
    graph: Graph,
    tokens: Sequence[Sequence[int]],
    past: Rows | None = None,
    *,
    positions: Sequence[Sequence[int]] | None = None,
    mask: Sequence[Sequence[int]] | None = None,
    donate: bool = False,
    record: bool = False,
    session: Any = None,
) -> Pass:
    """Run a decoder with growing caches over new tokens of each sequence, the same number for each.

    ``past``: cached rows; none by default.
    ``positions``: of the new tokens, by default right after the cached rows.
    ``mask``: 1 for each row, cached ones first, that may be attended to; by default all.
    ``donate``: the pass may overwrite ``past``: rows are appended in place if there is room.
    ``session``: an onnxruntime.InferenceSession of the same model, to run it there; it takes no donations.
    """
    graph = as_graph(graph, "kvviz.lessons.serving.forward")
    ids = _numbers("tokens", tokens)
    batch, new = ids.shape
    pairs = pairs_of(graph)
    rows = empty_rows(graph, batch) if past is None else past
    if lost := [pair.input for pair in pairs if pair.input not in rows]:
        raise KvvizError(f"past= has no rows of {', '.join(lost[:3])}; begin with serving.empty_rows(graph)")
    held = rows[pairs[0].input].shape[AXIS]
    following, everything = [range(held, held + new)] * batch, np.ones((batch, held + new))
    made = {
        "tokens": ids,
        "position_ids": _numbers("positions", following if positions is None else positions, (batch, new)),
        "attention_mask": _numbers("mask", everything if mask is None else mask, (batch, held + new)),
    }
    feeds = {name: made[role] for role, name in control_inputs(graph).items() if role in made} | rows
    if session is not None:
        trace, outputs = None, dict(zip((one.name for one in session.get_outputs()), session.run(None, feeds)))
    else:
        trace = run(graph, feeds, donate=[pair.input for pair in pairs] if donate else [], record=record)
        outputs = trace.outputs
    after = {pair.input: outputs[pair.output] for pair in pairs}
    return Pass(outputs[logits_output(graph) or "logits"], after, trace if record else None)


def _numbers(name: str, given: Any, shape: tuple[int, int] | None = None) -> np.ndarray:
    try:
        made = np.asarray(given, np.int64)
    except ValueError:  # lists of several lengths
        made = np.zeros(0, np.int64)
    if made.ndim != 2 or not made.size or made.shape != (shape or made.shape):
        wanted = f" of {shape[1]}" if shape else ""
        raise KvvizError(f"give {name}= as lists of equal length{wanted}, one for each sequence; not {given!r:.60}")
    return made


@dataclass(frozen=True, slots=True)
class Decoded:
    tokens: list[int]  # new ones
    kept: list[list[int]]  # positions whose rows each decode step found in the cache


def tell(
    graph: Graph, prompt: Sequence[int], new_tokens: int, change: Change | None = None, fed: Sequence[int] = ()
) -> Decoded:
    """Decode greedily, and change the caches after each pass; rows keep the positions at which they were computed.
    ``fed``: tokens of a text that replace the chosen ones, so that each choice is about this text. Raises `KvvizError`:
    if no new token is requested."""
    graph = as_graph(graph, "kvviz.lessons.serving.tell")
    if new_tokens < 1:
        raise KvvizError(f"new_tokens is {new_tokens}; ask for one at least")
    done = forward(graph, [list(prompt)])
    positions, rows = list(range(len(prompt))), done.rows
    tokens, kept = done.next_tokens, []
    while len(tokens) < new_tokens:
        if change is not None:
            rows, positions = change(rows, positions)
        kept.append(positions)
        at = len(prompt) + len(tokens) - 1
        due = fed[len(tokens) - 1] if fed else tokens[-1]
        done = forward(graph, [[due]], rows, positions=[[at]])
        rows, positions = done.rows, [*positions, at]
        tokens += done.next_tokens
    return Decoded(tokens, kept)


def take(rows: Mapping[str, np.ndarray], places: Sequence[int]) -> Rows:
    return {name: np.take(array, np.asarray(places, np.int64), axis=AXIS) for name, array in rows.items()}


def sinks(size: int, first: int = 4) -> Change:
    """A change for `tell`: keep the first rows and the last ones, ``size`` of them with the newest token's.

    With ``first=0`` it is a sliding window. (In Xiao and others, *Efficient Streaming Language Models with Attention
    Sinks*, 2024, positions are renumbered within the cache; that needs rows that are rotated when they are read.)

    Raises `KvvizError`: if no row is left for the window.
    """
    if not 0 <= first < size:
        raise KvvizError(f"{first} of {size} rows are pinned; at least one must be left for the newest token")

    def change(rows: Rows, positions: list[int]) -> tuple[Rows, list[int]]:
        excess = len(positions) + 1 - size  # the next pass adds a row, and attends to it too
        if excess <= 0:
            return rows, positions
        places = [*range(first), *range(first + excess, len(positions))]
        return take(rows, places), [positions[place] for place in places]

    return change


def in_bits(bits: int) -> Change:
    """A change for `tell`: round every row to so many bits per number. A head's row has one scale, its largest
    magnitude divided by the ``2**(bits-1) - 1`` steps on either side of 0. The next pass gets ``round(x / scale) *
    scale``. Raises `KvvizError`: if there are no such numbers."""
    if not isinstance(bits, int) or bits < 2:
        raise KvvizError(f"a number needs a whole number of bits, 2 or more: {bits}")
    steps = 2 ** (bits - 1) - 1

    def change(rows: Rows, positions: list[int]) -> tuple[Rows, list[int]]:
        # Rows that were rounded before stay unchanged: their largest magnitude is one of the steps.
        made: Rows = {}
        for name, array in rows.items():
            scale = np.abs(array).max(-1, keepdims=True) / steps
            scale[scale == 0] = 1
            made[name] = (np.round(array / scale).clip(-steps, steps) * scale).astype(array.dtype)
        return made, positions

    return change


Draft = Callable[[list[int], int], list[int]]
"""A function of the tokens so far and the maximum number of guesses; returns the guesses."""


def roll_back(rows: Rows, length: int) -> Rows:
    """The first rows of the caches, as views: only the count decreases, and the next pass overwrites later rows. Raises
    `KvvizError`: if there are fewer rows."""
    held = min((array.shape[AXIS] for array in rows.values()), default=0)
    if not 0 <= length <= held:
        raise KvvizError(f"the caches have {held} rows; they cannot go back to {length}")
    return {name: array[:, :, :length] for name, array in rows.items()}


def repeat_draft(tokens: list[int], most: int) -> list[int]:
    """Guess that the text continues as it did after the same token before: prompt lookup."""
    before = next((i for i in range(len(tokens) - 2, -1, -1) if tokens[i] == tokens[-1]), None)
    return [] if before is None else tokens[before + 1 : before + 1 + most]


@dataclass(frozen=True, slots=True)
class Speculation:
    tokens: list[int]
    passes: int  # with the prefill; without guesses it would be one for each token
    guessed: int  # tokens
    accepted: int
    rolled_back: int  # rows of wrong guesses, in each cache
    bytes_copied: int  # by the ops that write the caches


def speculate(
    graph: Graph, prompt: Sequence[int], new_tokens: int, draft: Draft = repeat_draft, width: int = 4
) -> Speculation:
    """Decode greedily with guesses of a draft, at most ``width`` of which are checked in one pass; raises `KvvizError`
    if no new token is requested."""
    graph = as_graph(graph, "kvviz.lessons.serving.speculate")
    if new_tokens < 1:
        raise KvvizError(f"new_tokens is {new_tokens}; ask for one at least")
    rows, said, due = empty_rows(graph, room=len(prompt) + new_tokens + width), list(prompt), list(prompt)
    guesses: list[int] = []
    passes = guessed = accepted = copied = 0
    while len(said) < len(prompt) + new_tokens:
        done = forward(graph, [[*due, *guesses]], rows, donate=True, record=True)
        assert done.trace is not None
        copied += sum(cache.runs[0].bytes_copied for cache in done.trace.caches)
        after = done.logits[0, len(due) - 1 :].argmax(-1).tolist()
        # A guess is right if the model says the same, and all guesses before it are right.
        right = next((i for i, guess in enumerate(guesses) if guess != after[i]), len(guesses))
        passes, guessed, accepted = passes + 1, guessed + len(guesses), accepted + right
        rows = roll_back(done.rows, len(said) + right)
        said += after[: right + 1]
        due = said[-1:]
        most = min(width, len(prompt) + new_tokens - len(said) - 1)
        guesses = list(draft(said, most))[:most] if most > 0 else []
    tokens = said[len(prompt) : len(prompt) + new_tokens]
    return Speculation(tokens, passes, guessed, accepted, guessed - accepted, copied)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The tokens generated without a cache, and the cost."""

    tokens: list[int] = field(default_factory=list)  # new ones
    words: list[str] = field(default_factory=list)  # prompt and new tokens as text
    logits: list[np.ndarray] = field(default_factory=list)  # last row of each run, (1, vocabulary)
    rows: list[int] = field(default_factory=list)  # key rows that each run computed for one head of one layer


def recompute(graph: Graph, prompt: str | Sequence[int], max_new_tokens: int = 16, tokenizer: Any = None) -> Recomputed:
    """Decode greedily as `kvviz.decode` does, but feed the whole sequence to every run, with empty caches.

    Raises `KvvizError`: if the graph has no caches that grow, or several prompts were given.
    """
    graph = as_graph(graph, "kvviz.lessons.recompute")
    own, _ = tokenizer_for(graph, prompt, tokenizer, ())
    tokens, _ = as_batch(prompt, own)
    if len(tokens) != 1:
        raise KvvizError(f"give one prompt, not {len(tokens)}")
    sequence = [int(token) for token in tokens[0]]
    made = Recomputed(words=text_of(own, sequence))
    for _ in range(max_new_tokens):
        done = forward(graph, [sequence], record=True)
        assert done.trace is not None
        made.rows.append(done.trace.caches[0].runs[0].rows_written)
        made.logits.append(done.logits[:, -1].copy())
        made.tokens.extend(done.next_tokens)
        sequence = [*sequence, *done.next_tokens]
        made.words.extend(text_of(own, done.next_tokens))
    return made


def changed_rows(graph: Graph, tokens: Sequence[int], other: Sequence[int]) -> np.ndarray:
    """How much the key rows of tokens differ from those computed from other tokens in their place.

    ``other`` is at least as long; its further tokens are not compared. Returns the largest absolute difference in each
    row over all heads, (layers, tokens).
    """
    graph = as_graph(graph, "kvviz.lessons.changed_rows")
    count = len(tokens)
    if len(other) < count:
        raise KvvizError(f"the other tokens are {len(other)}; give at least as many as there are rows, {count}")
    mine, theirs = (forward(graph, [list(one)]).rows for one in (tokens, other))
    keys = [name for name in mine if name.endswith("key")]
    return np.array([abs(mine[name] - theirs[name][:, :, :count]).max((0, 1, 3)) for name in keys])
