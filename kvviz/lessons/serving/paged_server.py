"""Continuous batching over a paged cache: prompts come and go, and each takes blocks of rows only as it grows.

A block holds the same rows of all caches. A sequence has a list of blocks, anywhere in the pool; blocks may be shared,
and are copied before a write (Kwon and others, *Efficient Memory Management for Large Language Model Serving with
PagedAttention*, 2023).

Their gain is counted under a realistic load, in a fixed number of rows: 19,366 requests of the conversation service in
the *Azure LLM inference trace 2023* (CC BY; Patel and others, *Splitwise: Efficient Generative LLM Inference Using
Phase Splitting*, ISCA 2024), by quantiles of their lengths. Rows without tokens are divided as by Kwon and others:
reserved for later, internal and external fragmentation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kvviz.decode.plausible_values import check_vocabulary
from kvviz.device.kv_updates import BlockTable
from kvviz.errors import KvvizError
from kvviz.graph.cache_pairs import control_inputs
from kvviz.graph.model import Graph
from kvviz.lessons.serving.forward_pass import Rows, empty_rows, forward
from kvviz.trace.model_or_trace import as_graph


@dataclass(slots=True)
class Request:
    """A served sequence. ``number``: its row in the block table. ``rows``: how many are cached."""

    number: int
    prompt: list[int]
    most: int
    tokens: list[int] = field(default_factory=list)
    rows: int = 0

    @property
    def longest(self) -> int:
        """The most rows that it needs: none is computed for the last token."""
        return len(self.prompt) + self.most - 1


@dataclass(frozen=True, slots=True)
class Moment:
    running: tuple[int, ...]  # numbers of requests
    slack: int  # rows of their blocks that hold nothing
    contiguous_slack: int  # the same, if each had one block for the longest that it may become


class PagedServer:
    """Serve requests with a fixed pool of blocks, for a decoder with growing caches. ``table``: the blocks of each
    request; ``table.copies`` are those that were copied before a write. ``pool``: by cache: (blocks, KV heads, rows of
    a block, head size). ``history``: one moment per step."""

    def __init__(self, graph: Graph, blocks: int, block_size: int) -> None:
        self.graph = graph = as_graph(graph, "kvviz.lessons.serving.PagedServer")
        self.table = BlockTable([], blocks, block_size)
        self.pool: Rows = {
            name: np.zeros((blocks, bare.shape[1], block_size, bare.shape[3]), bare.dtype)
            for name, bare in empty_rows(graph).items()
        }
        self.requests: list[Request] = []
        self.history: list[Moment] = []
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []

    def submit(self, prompt: Sequence[int], most: int) -> Request:
        """Put a request in the queue; raises `KvvizError` if it could never be served."""
        request = Request(len(self.requests), [int(token) for token in prompt], most)
        check_vocabulary(self.graph, control_inputs(self.graph)["tokens"], np.array(request.prompt, np.int64))
        if not request.prompt or most < 1 or self._needs(request) > self.table.blocks:
            raise KvvizError(
                f"a request of {len(request.prompt)} + {most} tokens needs {max(request.longest, 0)} rows, "
                f"but the pool has {self.table.blocks * self.table.block_size}"
            )
        self.table.rows.append([])
        self.requests.append(request)
        self._waiting.append(request)
        return request

    def fork(self, request: Request, most: int) -> Request:
        """Continue a running request as another one: it shares all blocks, and copies nothing. Raises `KvvizError`: if
        the request is not running, or the pool could run out of blocks before both are done."""
        if request not in self._running:
            raise KvvizError(f"request {request.number} is not running, so it cannot be continued")
        if most <= len(request.tokens):
            raise KvvizError(f"request {request.number} has {len(request.tokens)} tokens; ask for more than that")
        other = Request(len(self.requests), list(request.prompt), most, list(request.tokens), request.rows)
        # Shared blocks exist already; one that is not full is copied when either writes to it.
        more = self._needs(other) - len(self.table.rows[request.number]) + (request.rows % self.table.block_size > 0)
        left = len(self.table.free) - self._promised()
        if more > left:
            raise KvvizError(
                f"a fork of request {request.number} to {most} tokens may need {more} blocks, and {max(left, 0)} are "
                "free and not promised"
            )
        self.table.fork(request.number)
        self.requests.append(other)
        self._running.append(other)
        return other

    def step(self) -> bool:
        """Admit requests that have room, run one pass for all running ones, and remove finished ones; False: nothing is
        left."""
        while self._waiting and self._needs(self._waiting[0]) + self._promised() <= len(self.table.free):
            self._running.append(self._waiting.popleft())
            self._prefill(self._running[-1])
        if not self._running:
            return False
        self._decode(self._running)
        self.history.append(self._moment())
        for request in list(self._running):
            if len(request.tokens) >= request.most:
                self.table.rows[request.number] = []
                self._running.remove(request)
        return True

    def _needs(self, request: Request) -> int:
        return -(-request.longest // self.table.block_size)

    def _promised(self) -> int:
        """Blocks that running requests may still need; shared ones may have to be copied."""
        own = sum(self._needs(request) - len(self.table.rows[request.number]) for request in self._running)
        return own + sum(len(users) - 1 for users in self.table.shared.values())

    def _prefill(self, request: Request) -> None:
        """Read the prompt except its last token, which goes with the batch."""
        if early := request.prompt[:-1]:
            rows = forward(self.graph, [early]).rows
            for at in range(len(early)):
                self._put(request, {name: array[0, :, at] for name, array in rows.items()})

    def _put(self, request: Request, rows: Rows) -> None:
        blocks, at, place = self.table.rows[request.number], request.rows, request.rows % self.table.block_size
        if at // self.table.block_size == len(blocks):
            blocks.append(self.table.free[0])
        moved = self.table.own(request.number, at)
        for name, pool in self.pool.items():
            if moved is not None:
                pool[moved[1]] = pool[moved[0]]
            pool[self.table.block_of(request.number, at), :, place] = rows[name]
        request.rows += 1

    def _decode(self, batch: list[Request]) -> None:
        longest = max(request.rows for request in batch)
        pads = [longest - request.rows for request in batch]
        past: Rows = {}
        for name, pool in self.pool.items():
            past[name] = np.zeros((len(batch), pool.shape[1], longest, pool.shape[3]), pool.dtype)
            for rows, request, pad in zip(past[name], batch, pads):
                for at in range(request.rows):
                    block = self.table.block_of(request.number, at)
                    rows[:, pad + at] = pool[block, :, at % self.table.block_size]
        mask = [[0] * pad + [1] * (longest - pad + 1) for pad in pads]
        due = [[(request.prompt + request.tokens)[request.rows]] for request in batch]
        done = forward(self.graph, due, past, positions=[[request.rows] for request in batch], mask=mask)
        for i, (request, token) in enumerate(zip(batch, done.next_tokens)):
            self._put(request, {name: rows[i, :, -1] for name, rows in done.rows.items()})
            request.tokens.append(token)

    def _moment(self) -> Moment:
        size = self.table.block_size
        filled: dict[int, int] = {}  # rows by block: a shared one counts once
        for request in self._running:
            for place, block in enumerate(self.table.rows[request.number]):
                filled[block] = max(filled.get(block, 0), min(size, request.rows - place * size))
        numbers = tuple(request.number for request in self._running)
        reserved = sum(request.longest - request.rows for request in self._running)
        return Moment(numbers, len(filled) * size - sum(filled.values()), reserved)


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
