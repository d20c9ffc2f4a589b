"""The order of least peak: proven on small graphs, elsewhere the best that was found, with a bound that no order beats.

Three ways, each of which begins with what the ones before it found: an order is cut at its peak and put together anew; the
sets of ops that may have run are searched by their peak, which proves an order if it comes to an end; a beam keeps the
best few of these sets. In all of them an op that leaves no more alive than before runs at once: no order gains by
waiting with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from typing import Any

from kvviz.fixes.least_bytes import least_bytes
from kvviz.fixes.order_model import Larger, Move, OrderModel, bits

# Moves that the search looks at, and that the beam looks at; in a graph of many ops each takes longer.
SEARCHED, BEAMED = 60_000, 120_000
_WIDTHS = (2, 16)
# So often an order is cut at its peak and put together anew.
_CUTS = 24
# In a graph of more ops, blocks smaller than this part of the peak count nothing while searching.
_FEW, _SMALL = 40, 1 / 2000


@dataclass(frozen=True, slots=True)
class BestOrder:
    """What was found.

    ``order``: places of the ops in the model.
    ``peak``: its bytes.
    ``least``: no order needs less.
    """

    order: tuple[int, ...]
    peak: int
    least: int


def best_order(model: OrderModel, starts: Iterable[Sequence[int]] = (), searched: int = SEARCHED) -> BestOrder:
    """The order of least peak, or the best one that is found.

    ``starts``: orders to begin with, beside the recorded one.
    """
    found = BestOrder(tuple(range(len(model.nodes))), model.peak(range(len(model.nodes))), model.start)
    found = _cut(model, found)
    for order in starts:
        if found.peak > found.least and (peak := model.peak(order)) < found.peak:
            found = _cut(model, BestOrder(tuple(order), peak, found.least))
    if found.peak == found.least:
        return found
    cost = 1 + len(model.nodes) // 2000
    rough = _rough(model, found.peak)
    search = _Search(rough, found.peak, found.least)
    order = search.by_peak(searched // cost)
    found = _better(model, found, order, search.least)
    for width in _WIDTHS:
        if found.peak > found.least:
            search = _Search(rough, found.peak, found.least)
            found = _better(model, found, search.by_beam(width, BEAMED // cost), found.least)
    return found


def _better(model: OrderModel, found: BestOrder, order: Sequence[int] | None, least: int) -> BestOrder:
    """The better one of what was found and of another order, which is cut at its peak, too."""
    found = replace(found, least=max(found.least, min(least, found.peak)))
    if order is None:
        return found
    other = _cut(model, BestOrder(tuple(order), model.peak(order), found.least))
    return other if other.peak < found.peak else replace(found, least=other.least)


def _cut(model: OrderModel, found: BestOrder) -> BestOrder:
    """Let at the peak nothing be alive that some order does without, and go on with where the peak is then."""
    best, order, least, seen = found, found.order, found.least, set()
    for _ in range(_CUTS):
        needs = model.needs(order)
        peak = max(needs, default=model.start)
        if peak < best.peak:
            best = replace(best, order=order, peak=peak)
        op = order[needs.index(peak)] if order else -1
        if op < 0 or op in seen:
            break
        seen.add(op)
        bound, done = least_bytes(model, op)
        least = max(least, bound)
        if bound >= peak:
            break
        first = [other for other in order if done >> other & 1]
        order = (*first, op, *(other for other in order if other != op and not done >> other & 1))
    return replace(best, least=min(least, best.peak))


def _rough(model: OrderModel, peak: int) -> OrderModel:
    """The same without what is too small to matter, where ops are many: no order needs more of that than of the whole."""
    if len(model.nodes) <= _FEW:
        return model
    least = (peak - model.weights) * _SMALL
    blocks = [block if block.size >= least else replace(block, size=0) for block in model.blocks]
    left = sum(a.size - b.size for a, b in zip(model.blocks, blocks) if a.maker < 0)
    return replace(model, blocks=blocks, start=model.start - left)


@dataclass(slots=True)
class _State:
    """Some ops have run: which, what is alive, and what each op of the frontier would do."""

    done: int
    live: int
    peak: int
    larger: Larger
    moves: dict[int, Move]
    path: tuple[Any, int] | None

    @property
    def order(self) -> list[int]:
        """The ops that have run, in order."""
        found, path = [], self.path
        while path is not None:
            found.append(path[1])
            path = path[0]
        return found[::-1]


class _Search:
    """A search from set to set of ops that have run. ``below``: only lower peaks count. ``least``: no order needs less."""

    def __init__(self, model: OrderModel, below: int, least: int) -> None:
        self.model, self.below, self.least = model, below, least
        self.moved = 0
        sizes = [block.size for block in model.blocks]
        # What an op in place keeps of a larger block depends on who ran before it.
        uneven = {g for over in model.over for pair in over if sizes[pair[0]] != sizes[pair[1]] for g in pair}
        self.waits = [bool(uneven.intersection(read)) for read in model.read]
        ready = [op for op, ahead in enumerate(model.before) if not ahead]
        self.first = _State(0, model.start, max(model.start, least), (), {op: self._move(0, (), op) for op in ready}, None)

    def by_peak(self, most: int) -> list[int] | None:
        """An order of the lowest peak, looking at so many moves at most; None if no lower one was found.

        Afterwards ``least`` is what every order needs, as far as was searched.
        """
        states, number = [(self.first.peak, 0, 0, self.first)], count(1)
        known: dict[tuple[int, Larger], int] = {}
        while states:
            peak, _, _, state = heappop(states)
            self.least = max(self.least, peak)
            if self.moved > most:
                return None
            self._settle(state)
            if state.done == self.model.all:
                return state.order
            if known.get((state.done, state.larger), self.below) < peak:
                continue
            for op in state.moves:
                after = self._after(state, op)
                if after is None or known.get((after.done, after.larger), self.below) <= after.peak:
                    continue
                known[after.done, after.larger] = after.peak
                heappush(states, (after.peak, -after.done.bit_count(), next(number), after))
        self.least = self.below
        return None

    def by_beam(self, width: int, most: int) -> list[int] | None:
        """The best order of those that a beam finds; None if none has a lower peak or it would take too long."""
        levels: dict[int, dict[tuple[int, Larger], _State]] = {0: {(0, ()): self.first}}
        total = len(self.model.nodes)
        for level in range(total):
            kept = sorted(levels.pop(level, {}).values(), key=lambda state: (state.peak, state.live))[:width]
            for state in kept:
                for op in state.moves:
                    after = self._after(state, op)
                    if after is None:
                        continue
                    self._settle(after)
                    there = levels.setdefault(after.done.bit_count(), {})
                    other = there.get((after.done, after.larger))
                    if other is None or after.peak < other.peak:
                        there[after.done, after.larger] = after
            if self.moved > most:
                return None
        ends = levels.get(total, {}).values()
        return min(ends, key=lambda state: state.peak).order if ends else None

    def _settle(self, state: _State) -> None:
        """Run at once what leaves no more alive and needs no more than was needed already."""
        while not state.larger:
            op = next((op for op, move in state.moves.items() if self._is_free(state, op, move)), None)
            if op is None:
                return
            after = self._after(state, op)
            assert after is not None
            state.done, state.live, state.larger, state.moves = after.done, after.live, after.larger, after.moves
            state.path = after.path

    def _is_free(self, state: _State, op: int, move: Move) -> bool:
        return move.change <= 0 and state.live + move.new <= state.peak and not self.waits[op]

    def _after(self, state: _State, op: int) -> _State | None:
        """The state once an op has run; None where that needs too much."""
        model, move = self.model, state.moves[op]
        peak = max(state.peak, state.live + move.new)
        if peak >= self.below:
            return None
        done, larger = state.done | 1 << op, move.larger
        moves = dict(state.moves)
        del moves[op]
        if larger or state.larger:
            changed = set(moves)
        else:
            left = [model.blocks[g].readers & ~done for g in model.read[op]]
            changed = {readers.bit_length() - 1 for readers in left if readers and not readers & readers - 1}
            changed &= moves.keys()
        changed.update(other for other in model.behind[op] if not model.before[other] & ~done)
        for other in changed:
            moves[other] = self._move(done, larger, other)
        return _State(done, state.live + move.change, peak, larger, moves, (state.path, op))

    def _move(self, done: int, larger: Larger, op: int) -> Move:
        self.moved += 1
        return self.model.move(done, larger, op)
