"""The order of least peak: proven for small graphs, otherwise the best one found, with a lower bound for all orders.

Three methods are used, each starting from the best result so far. An order is cut at its peak and reassembled. A greedy
order always runs the op that leaves the fewest bytes alive. The sets of ops that may have run are searched by their
peak, which proves an order if the search ends; there an op that leaves no more bytes alive than before runs at once:
delaying it never helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from kvviz.fixes.least_bytes import least_bytes
from kvviz.fixes.order_model import Larger, Move, OrderModel

# The maximum of moves that each search examines. In a large graph each move takes longer.
_GREEDY, _BY_PEAK = 200_000, 40_000
# How often an order is cut at its peak and reassembled.
_CUTS = 24
# In a graph of more ops, the search accepts an order this near to the bound, without the weights.
FEW, _NEAR = 40, 1 / 100


@dataclass(frozen=True, slots=True)
class BestOrder:
    """The result of a search: ``order`` (places of the ops in the model), its ``peak`` in bytes, and ``least``, a lower
    bound for all orders."""

    order: tuple[int, ...]
    peak: int
    least: int


def best_order(model: OrderModel, enough: int | None = None) -> BestOrder:
    """The order of least peak, or the best one that is found. ``enough``: a peak above this is useless; the search
    stops once every order is known to need more. If many ops run by unknown rules, only cuts give that bound."""
    recorded = tuple(range(len(model.nodes)))
    found = _cut(model, BestOrder(recorded, model.peak(recorded), model.start))
    near = 0 if len(model.nodes) <= FEW else _NEAR
    cost = 1 + len(model.nodes) // 500
    greedy = max(_GREEDY // cost, 4 * len(model.nodes))
    searches = ((_Search.greedily, greedy), (_Search.by_peak, _BY_PEAK // cost))
    for way, moves in searches if len(model.nodes) <= FEW or not model.loose else ():
        if found.peak - found.least <= near * (found.least - model.weights):
            break
        if enough is not None and found.least > enough:
            break
        search = _Search(model, found.peak, found.least)
        found = _better(model, found, way(search, moves), search.least)
    return found


def _better(model: OrderModel, found: BestOrder, order: Sequence[int] | None, least: int) -> BestOrder:
    """The better of the result so far and another order, after the other order is cut at its peak."""
    found = replace(found, least=max(found.least, min(least, found.peak)))
    if order is None:
        return found
    other = _cut(model, BestOrder(tuple(order), model.peak(order), found.least))
    return other if other.peak < found.peak else replace(found, least=other.least)


def _cut(model: OrderModel, found: BestOrder) -> BestOrder:
    """Remove unnecessary blocks from the peak, and continue at the next peak."""
    best, order, least, seen = found, found.order, found.least, set()
    for _ in range(max(_CUTS // (1 + len(model.nodes) // 500), 3)):
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


@dataclass(slots=True)
class _State:
    """A set of ops that have run, with the live blocks, and the effect of each op of the frontier."""

    done: int
    live: int
    peak: int
    larger: Larger
    moves: dict[int, Move]
    path: tuple[Any, int] | None

    @property
    def order(self) -> list[int]:
        found, path = [], self.path
        while path is not None:
            found.append(path[1])
            path = path[0]
        return found[::-1]


class _Search:
    """A search from set to set of ops that have run. ``below``: only lower peaks count."""

    def __init__(self, model: OrderModel, below: int, least: int) -> None:
        self.model, self.below, self.least = model, below, least
        self.moved = 0
        sizes = [block.size for block in model.blocks]
        # How much of a larger block an in-place op keeps depends on which ops ran before it.
        uneven = {g for over in model.over for pair in over if sizes[pair[0]] != sizes[pair[1]] for g in pair}
        self.waits = [bool(uneven.intersection(read)) for read in model.read]
        ready = [op for op, ahead in enumerate(model.before) if not ahead]
        self.first = _State(
            0, model.start, max(model.start, least), (), {op: self._move(0, (), op) for op in ready}, None
        )

    def greedily(self, most: int) -> list[int] | None:
        """The order that always takes the op that leaves the fewest bytes alive; None if it takes too long."""
        self.below = 1 << 80
        state = self.first
        ways = [(move.change, move.new, op) for op, move in state.moves.items()]
        heapify(ways)
        while ways and self.moved <= most:
            change, new, op = heappop(ways)
            move = state.moves.get(op)
            if move is not None and (move.change, move.new) == (change, new):
                for other in self._run(state, op):
                    heappush(ways, (state.moves[other].change, state.moves[other].new, other))
        return None if state.moves else state.order

    def by_peak(self, most: int) -> list[int] | None:
        """An order of the lowest peak, after at most ``most`` moves; None if no lower one was found. Afterwards
        ``least`` is the proven bound for all orders."""
        states, number = [(self.first.peak, 0, 0, self.first)], count(1)
        known: dict[tuple[int, Larger], int] = {}
        left: set[tuple[int, Larger]] = set()
        while states:
            peak, _, _, state = heappop(states)
            self.least = max(self.least, peak)
            if self.moved > most:
                return None
            self._settle(state)
            if state.done == self.model.all:
                return state.order
            here = state.done, state.larger
            if here in left:
                continue
            left.add(here)
            for op in state.moves:
                after = self._after(state, op)
                if after is None or known.get((after.done, after.larger), self.below) <= after.peak:
                    continue
                known[after.done, after.larger] = after.peak
                heappush(states, (after.peak, -after.done.bit_count(), next(number), after))
        self.least = self.below
        return None

    def _settle(self, state: _State) -> None:
        """Run all ops that leave no more alive and need no more than was needed already."""
        moves = state.moves
        while not state.larger:
            room = state.peak - state.live
            for op, move in moves.items():
                if move.change <= 0 and move.new <= room and not self.waits[op]:
                    self._run(state, op)
                    break
            else:
                return

    def _after(self, state: _State, op: int) -> _State | None:
        """The state after an op has run; None if that needs too much."""
        peak = max(state.peak, state.live + state.moves[op].new)
        if peak >= self.below:
            return None
        after = _State(state.done, state.live, peak, state.larger, dict(state.moves), state.path)
        self.moved += len(after.moves) // 16
        self._run(after, op)
        return after

    def _run(self, state: _State, op: int) -> set[int]:
        """Run an op of the frontier; returns the ops that join the frontier, or whose moves change."""
        model, moves = self.model, state.moves
        move = moves.pop(op)
        done = state.done = state.done | 1 << op
        if move.larger or state.larger:
            changed = set(moves)
        else:
            left = [model.blocks[g].readers & ~done for g in model.read[op]]
            changed = {readers.bit_length() - 1 for readers in left if readers and not readers & readers - 1}
            changed &= moves.keys()
        changed.update(other for other in model.behind[op] if not model.before[other] & ~done)
        state.live, state.larger, state.path = state.live + move.change, move.larger, (state.path, op)
        for other in changed:
            moves[other] = self._move(done, move.larger, other)
        return changed

    def _move(self, done: int, larger: Larger, op: int) -> Move:
        self.moved += 1
        return self.model.move(done, larger, op)
