"""The gain of paged caches under a realistic load: requests as long as real ones, in a fixed number of rows.

Lengths: 19,366 requests of the conversation service in the *Azure LLM inference trace 2023* (CC BY; Patel and others,
*Splitwise: Efficient Generative LLM Inference Using Phase Splitting*, ISCA 2024), by quantiles. Rows without tokens are
divided as by Kwon and others (*Efficient Memory Management for Large Language Model Serving with PagedAttention*,
2023): reserved for later, internal and external fragmentation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kvviz.errors import KvvizError

# Every twentieth of the requests, from the shortest to the longest: tokens of the prompt, and of the answer.
_PROMPTS = [2, 181, 207, 372, 387, 396, 403, 414, 703, 984, 1020]
_PROMPTS += [1045, 1071, 1097, 1130, 1189, 1315, 1876, 2734, 4083, 14050]
_ANSWERS = (7, 41, 54, 67, 77, 85, 91, 96, 103, 113, 129, 151, 177, 217, 384, 395, 400, 411, 424, 451, 1000)

WAYS = {
    "longest": "one buffer, as long as a sequence may become",
    "power of 2": "one buffer: the prompt, and for the answer the next power of 2",
    "exact": "one buffer of the right length, if it were known",
    "blocks": "blocks of 16 rows, as they are needed",
}
PARTS = ("tokens", "reserved for later", "never used", "in gaps", "free")


@dataclass(slots=True)
class Served:
    """One request. ``start``: of its buffer; ``held``: rows with a token; ``taken``: rows that no other request can
    use."""

    prompt: int
    final: int
    start: int = 0
    held: int = 0
    taken: int = 0


@dataclass(frozen=True, slots=True)
class LoadRun:
    """A load served in one of the `WAYS`. ``history``: after each step, how the rows are divided into `PARTS`, and how
    many requests run. ``evicted``: requests that had to release their rows, and compute them again."""

    way: str
    rows: int
    history: list[tuple[tuple[int, ...], int]] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)  # rows of each

    def shares(self) -> dict[str, float]:
        parts = np.array([parts for parts, _ in self.history], float)
        return dict(zip(PARTS, (parts.mean(0) / self.rows).tolist()))

    @property
    def at_once(self) -> float:
        return float(np.mean([running for _, running in self.history]))


def request_load(count: int = 400, longest: int = 4096, seed: int = 0) -> list[tuple[int, int]]:
    """Lengths of prompt and answer, drawn from the trace; ``longest``: the most rows of a sequence."""
    chance = np.random.default_rng(seed).random((2, count))
    places = np.linspace(0, 1, len(_PROMPTS))
    answers = np.minimum(np.interp(chance[1], places, _ANSWERS).astype(int), longest // 2)
    prompts = np.minimum(np.interp(chance[0], places, _PROMPTS).astype(int), longest - answers)
    return list(zip(prompts.tolist(), answers.tolist()))


def serve_load(
    load: Sequence[tuple[int, int]], way: str, rows: int = 16384, longest: int = 4096, block: int = 16
) -> LoadRun:
    """Serve requests that all wait from the start, first come first served, until the last one is admitted. In each
    step every running request gets one row. If no block is free for it, the latest request is evicted. Raises
    `KvvizError`: if the way is unknown, or a request can never be served."""
    if way not in WAYS:
        raise KvvizError(f"way={way!r}: one of {', '.join(WAYS)}")
    done, running = LoadRun(way, rows), list[Served]()
    waiting = deque(Served(prompt, prompt + answer) for prompt, answer in load)
    while waiting:
        gap, need = 0, 0
        while waiting:
            need = _need(waiting[0], way, longest, block)
            if need > rows:
                raise KvvizError(f"a request needs {need} rows, and there are {rows}")
            start = _place(running, need, rows, way)
            if start is None:
                break
            one = waiting.popleft()
            one.start, one.taken, one.held = start, need, one.prompt
            running.append(one)
        for one in list(running):
            if one not in running:
                continue
            if one.held == one.taken:  # only with blocks
                while sum(other.taken for other in running) + block > rows:
                    last = running.pop()
                    done.evicted.append(last.held)
                    last.prompt = last.held  # its answer so far is computed again, too
                    waiting.appendleft(last)
                    if last is one:
                        break
                if one not in running:
                    continue
                one.taken += block
            one.held += 1
        if waiting:
            free = rows - sum(one.taken for one in running)
            gap = free if way != "blocks" and free >= need else 0
            held = sum(one.held for one in running)
            later = sum(min(one.taken, one.final) - one.held for one in running)
            never = sum(max(one.taken - one.final, 0) for one in running)
            done.history.append(((held, later, never, gap, free - gap), len(running)))
        running = [one for one in running if one.held < one.final]
    return done


def _need(one: Served, way: str, longest: int, block: int) -> int:
    if way == "blocks":
        return -(-(one.prompt + 1) // block) * block
    answer = one.final - one.prompt
    power = 1 << (answer - 1).bit_length()
    return {"longest": longest, "power of 2": min(one.prompt + power, longest), "exact": one.final}[way]


def _place(running: Sequence[Served], need: int, rows: int, way: str) -> int | None:
    """The start of so many free rows: contiguous, except for blocks, which may lie anywhere."""
    if way == "blocks":
        return 0 if sum(one.taken for one in running) + need <= rows else None
    at = 0
    for one in sorted(running, key=lambda one: one.start):
        if one.start - at >= need:
            return at
        at = one.start + one.taken
    return at if rows - at >= need else None
