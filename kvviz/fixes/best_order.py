"""The order of least peak: proven for small graphs, otherwise the best one found, with a lower bound for all orders.

Three methods are used, each starting from the best result so far. An order is cut at its peak and reassembled. A greedy
order always runs the op that leaves the fewest bytes alive. The sets of ops that may have run are searched by their
peak, which proves an order if the search ends; there an op that leaves no more bytes alive than before runs at once:
delaying it never helps.

The bound is a minimum cut. The ops that have run before an op form a set that contains all predecessors of its members.
A block costs its size if its maker has run and one of its readers has not, so the set with the fewest bytes alive is a
minimum cut through the ops that may run before or after that op.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count, pairwise
from typing import Any

from kvviz.fixes.order_model import Larger, Move, OrderModel, bits

# If more ops than this may run before or after it, only bytes that must be alive are counted.
_MOST_FREE = 1500
_BEGIN, _END = -1, -2
_ALL = 1 << 80


def _least_bytes(model: OrderModel, op: int) -> tuple[int, int]:
    """The fewest bytes that are alive while an op runs, in any order, and the ops that ran before it in such an order,
    as bits."""
    ahead, after = _closure(model.before, op), _behind(model, op)
    free = model.all & ~ahead & ~after & ~(1 << op)
    out = after | 1 << op
    net = _Network() if free.bit_count() <= _MOST_FREE else None
    blocks = model.blocks
    total = model.start - sum(block.size for block in blocks if block.maker < 0)
    for block in blocks:
        maker, size = block.maker, block.size
        if not size or (maker >= 0 and out >> maker & 1):
            continue
        made = maker < 0 or ahead >> maker & 1
        if made and (block.kept or block.readers & out):
            total += size
        elif net is not None and (block.kept or block.readers & out):
            net.pay(maker, [_END], size)
        elif net is not None and (not made or block.readers & free):
            net.pay(_BEGIN if made else maker, list(bits(block.readers & free)), size)
    total += _made(model, op, free, out, net)
    if net is None:
        return total, ahead
    for other in bits(free):
        for need in bits(model.before[other] & free):
            net.arc(other, need, _ALL)
    cost, side = net.cut()
    return total + cost, ahead | sum(1 << other for other in side if other >= 0 and free >> other & 1)


def _made(model: OrderModel, op: int, free: int, out: int, net: _Network | None) -> int:
    """Bytes that an op must allocate in any case; those that depend on the ops before it are arcs of the network."""
    total = sum(model.blocks[g].size for g in model.made[op]) + model.inside.get(op, 0)
    others = ~(1 << op)
    for made in dict.fromkeys(made for _, made in model.over[op]):
        size = model.blocks[made].size
        rest = [model.blocks[source].readers & others for source, target in model.over[op] if target == made]
        rest = [readers for readers in rest if not readers & out]
        if rest:
            total -= size
            if len(rest) == 1 and rest[0] & free and net is not None:
                net.pay(_BEGIN, list(bits(rest[0] & free)), size)
    return total


def _closure(before: Sequence[int], op: int) -> int:
    found, stack = 0, before[op]
    while stack:
        place = stack.bit_length() - 1
        found |= 1 << place
        stack = (stack | before[place]) & ~found
    return found


def _behind(model: OrderModel, op: int) -> int:
    found, stack = 0, [op]
    while stack:
        for place in model.behind[stack.pop()]:
            if not found >> place & 1:
                found |= 1 << place
                stack.append(place)
    return found


class _Network:
    """A flow network with a node for each op, and one for each block."""

    def __init__(self) -> None:
        self.room: dict[int, dict[int, int]] = {_BEGIN: {}, _END: {}}
        self._blocks = _END

    def arc(self, one: int, other: int, room: int) -> None:
        there = self.room.setdefault(one, {})
        there[other] = there.get(other, 0) + room
        self.room.setdefault(other, {}).setdefault(one, 0)

    def pay(self, maker: int, readers: Sequence[int], size: int) -> None:
        """Add the cost of a block whose maker has run and one of whose readers has not."""
        if len(readers) == 1:
            self.arc(maker, readers[0], size)
            return
        self._blocks -= 1
        self.arc(maker, self._blocks, size)
        for reader in readers:
            self.arc(self._blocks, reader, _ALL)

    def cut(self) -> tuple[int, set[int]]:
        """The value of the minimum cut, and the nodes on the side of the source."""
        flow = 0
        while True:
            level = self._levels()
            if _END not in level:
                return flow, set(level)
            ways = {node: iter(room) for node, room in self.room.items()}
            while more := self._augment(level, ways):
                flow += more

    def _levels(self) -> dict[int, int]:
        level, queue = {_BEGIN: 0}, deque([_BEGIN])
        while queue:
            node = queue.popleft()
            for other, room in self.room[node].items():
                if room and other not in level:
                    level[other] = level[node] + 1
                    queue.append(other)
        return level

    def _augment(self, level: dict[int, int], ways: dict[int, Iterator[int]]) -> int:
        """Send as much flow as fits along one more shortest path; 0 if there is none."""
        path = [_BEGIN]
        while path:
            node = path[-1]
            if node == _END:
                most = min(self.room[a][b] for a, b in pairwise(path))
                for a, b in pairwise(path):
                    self.room[a][b] -= most
                    self.room[b][a] += most
                return most
            deeper = level[node] + 1
            here = self.room[node]
            step = next((other for other in ways[node] if here[other] and level.get(other) == deeper), None)
            if step is None:
                path.pop()
                continue
            path.append(step)
        return 0


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
        bound, done = _least_bytes(model, op)
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
