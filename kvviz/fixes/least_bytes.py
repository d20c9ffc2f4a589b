"""The bytes that any order must hold when an op runs: a minimum cut through the ops that may run before or after it.

The ops that have run before an op form a set that contains all predecessors of its members. The set with the fewest
bytes alive is a minimum cut: a block costs its size if its maker has run and one of its readers has not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kvviz.fixes.order_model import OrderModel, bits

# If more ops than this may run before or after it, only bytes that must be alive are counted.
_MOST_FREE = 1500
_BEGIN, _END = -1, -2
_ALL = 1 << 80


def least_bytes(model: OrderModel, op: int) -> tuple[int, int]:
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
