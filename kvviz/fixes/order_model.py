"""Live memory while the main graph of a trace runs in any order: which ops make, read and may reuse each block.

Invariant: if `OrderModel.exact`, the modelled bytes of any order are those of a run in that order. Otherwise bodies,
sequences or rules that are not modelled add or save some bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kvviz.graph.model import Node
from kvviz.runtimes.frontier import reads
from kvviz.trace import blockers as b
from kvviz.trace.index.value_index import Index, live_curve
from kvviz.trace.schema.element_types import nbytes
from kvviz.trace.schema.events import APPEND, IN_PLACE, NEW, PASSED, POOL, VIEW, Op
from kvviz.trace.schema.regions import packed_strides

# Reasons against an input that hold in every order.
_NEVER = b.SHAPE_DIFFERS | b.DTYPE_DIFFERS | b.NOT_CONTIGUOUS | b.OP_CANNOT | b.POLICY
# The kind of an optional output that the kernel leaves out.
_ABSENT = type(None).__name__
Larger = tuple[tuple[int, int], ...]
"""Blocks that are larger than their contents, since an op ran in place in the block of a view: (block, bytes)."""


class Move(NamedTuple):
    """The effect of running an op now: bytes allocated, the change of live bytes, and the blocks that are then larger
    than their contents."""

    new: int
    change: int
    larger: Larger


@dataclass(slots=True)
class Block:
    """Memory that is alive from the op that makes it to the last op that reads a value in it. ``maker``: place of that
    op among the ops; -1 for a block that the run starts with. ``readers``: the ops that read it, as bits. ``kept``: the
    caller owns it, or gets it."""

    size: int
    maker: int
    readers: int = 0
    kept: bool = False


@dataclass(slots=True)
class OrderModel:
    """The ops of a main graph, by their place in the recorded order, and the blocks that they share.

    ``start``: bytes alive before the first op, ``weights`` among them.
    ``before``: for each op, the ops that must run before it, as bits; ``behind``: the ops that wait for it.
    ``read, made``: blocks that an op reads, and those that it makes.
    ``over``: for each op, the blocks that it may overwrite, each with the block that it then does not make.
    ``inside``: the most bytes that the bodies of an op had alive.
    ``exact``: see the module's invariant.
    ``loose``: the bytes of an order are a lower bound for a run in that order under any rules.
    """

    nodes: list[Node]
    start: int
    weights: int
    blocks: list[Block] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    behind: list[list[int]] = field(default_factory=list)
    read: list[tuple[int, ...]] = field(default_factory=list)
    made: list[tuple[int, ...]] = field(default_factory=list)
    over: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    inside: dict[int, int] = field(default_factory=dict)
    exact: bool = True
    loose: bool = False

    @property
    def all(self) -> int:
        return (1 << len(self.nodes)) - 1

    def move(self, done: int, larger: Larger, op: int) -> Move:
        blocks, here, left = self.blocks, 1 << op, ~done
        dead = [g for g in self.read[op] if blocks[g].readers & left == here and not blocks[g].kept]
        grown = dict(larger)
        new = change = 0
        reused: dict[int, int] = {}
        for source, made in self.over[op]:
            if source in dead and made not in reused and (self.loose or source not in reused.values()):
                reused[made] = source
        for g in self.made[op]:
            block, saved = blocks[g], reused.get(g, -1)
            alive = block.readers or block.kept
            if saved < 0 or self.loose:
                new += block.size if saved < 0 else 0
                change += block.size if alive else 0
                continue
            have = grown.get(saved, blocks[saved].size) if larger else blocks[saved].size
            dead.remove(saved)
            change -= 0 if alive else have
            if alive and have != block.size:
                grown[g] = have
        for g in dead:
            change -= grown.get(g, blocks[g].size) if larger else blocks[g].size
        if grown:
            grown = {g: size for g, size in grown.items() if blocks[g].readers & left & ~here or blocks[g].kept}
        return Move(new + self.inside.get(op, 0), change, tuple(sorted(grown.items())) if grown else ())

    def needs(self, order: Iterable[int]) -> list[int]:
        """Bytes alive while each op of an order runs."""
        done, live, found = 0, self.start, []
        larger: Larger = ()
        for op in order:
            new, change, larger = self.move(done, larger, op)
            found.append(live + new)
            live += change
            done |= 1 << op
        return found

    def peak(self, order: Sequence[int]) -> int:
        return max(self.needs(order), default=self.start)


def order_model(index: Index, run: int, loose: bool = False) -> OrderModel:
    """The model of one run of a trace. ``loose``: count only what is alive under any rules: bodies need nothing, every
    possible view is one, and an op works in the memory of any value that dies with it."""
    return _Building(index, run, loose).model


class _Building:
    def __init__(self, index: Index, run: int, loose: bool) -> None:
        self.index, self.frame, self.rule = index, index.mains[run], index.trace.policy.base
        known = self.rule in ("ideal", "never")
        self.any_rule = loose and not known
        frame = index.frames[self.frame]
        first, last = index.trace.runs[run].first, index.trace.runs[run].last
        rows = [row for row in index.rows[first:last] if row.frame == self.frame]
        capacities = index.trace.log.storages
        weights = sum(storage.capacity for storage in capacities if storage.origin == "weights")
        self.model = OrderModel([row.op.node for row in rows], int(live_curve(index)[index.binding(run)]), weights)
        self.model.exact, self.model.loose = known and not loose, loose
        self.home: dict[str, int] = {}  # value to its block; the run never frees values that are not here
        self.here: dict[int, int] = {}  # storage to the block that is there now
        self.known = {bound.storage for bound in frame.bindings}  # storages that values of this frame lay in
        self.fixed: set[str] = set()  # views that cannot be written to
        self.appended: Counter[int] = Counter()
        self.most: dict[int, int] = {}  # bytes of the largest value that may lie in a block
        self._bind(frame.bindings)
        self.given = sum(block.size for block in self.model.blocks)
        places = {name: place for place, row in enumerate(rows) for name in row.op.node.outputs if name}
        for place, row in enumerate(rows):
            self._note(place, row, places)
        for name in frame.program.outputs:
            if name in self.home:
                self.model.blocks[self.home[name]].kept = True
        self.model.over = [self._over(place, row) for place, row in enumerate(rows)]
        for place, ahead in enumerate(self.model.before):
            for other in bits(ahead):
                self.model.behind[other].append(place)
        model = self.model
        for place, row in enumerate(rows):
            if row.op.control:
                made = sum(model.blocks[g].size for g in model.made[place])
                model.inside[place] = -made if loose else _inside(index, row)
        # A given value may count less than it takes.
        model.start -= self.given - sum(block.size for block in model.blocks if block.maker < 0)
        if self.model.exact:
            seen = self.model.needs(range(len(rows)))
            self.model.exact = all(mine == row.live for mine, row in zip(seen, rows))

    def _bind(self, bindings: Sequence[Any]) -> None:
        lent = {bound.storage for bound in bindings if bound.how == "borrowed"}
        storages = self.index.trace.log.storages
        for bound in bindings:
            if bound.how == "donated" and bound.storage not in lent:
                block = self.here.get(bound.storage)
                if block is None:
                    block = self.here[bound.storage] = self._add(storages[bound.storage].capacity, -1)
                self.home[bound.name] = block
                # A value that no op reads is held to the end.
                self.model.blocks[block].kept |= bound.name not in self.index.frames[self.frame].program.graph.consumers

    def _add(self, size: int, maker: int) -> int:
        self.model.blocks.append(Block(size, maker))
        self.most[len(self.model.blocks) - 1] = size
        return len(self.model.blocks) - 1

    def _note(self, place: int, row: Op, places: Mapping[str, int]) -> None:
        model, node = self.model, row.op.node
        names = reads(node)
        found = dict.fromkeys(self.home[name] for name in names if name in self.home)
        for block in found:
            model.blocks[block].readers |= 1 << place
        ahead = 0
        for name in names:
            if name in places:
                ahead |= 1 << places[name]
        made = []
        for name, out in zip(node.outputs, row.outs):
            if out is None:
                continue
            shared = self._shared(row, out) if self.any_rule else None
            if shared is not None:
                self.home[name] = self.here[out.storage] = shared
                size = nbytes(out.shape, out.dtype)
                self.most[shared] = max(self.most[shared], size)
                model.blocks[shared].size = min(model.blocks[shared].size, size)
            elif out.how in (NEW, POOL, IN_PLACE) or (out.how == PASSED and out.storage not in self.known):
                size = nbytes(out.shape, out.dtype)
                if row.op.control or out.shape is None:
                    capacity = self.index.trace.log.storages[out.storage].capacity
                    size = min(size, capacity) if model.loose else capacity
                self.home[name] = self.here[out.storage] = self._add(size, place)
                made.append(self.home[name])
            elif out.storage in self.here:
                self.home[name] = self.here[out.storage]
                self.appended[out.storage] += out.how == APPEND
            self.known.add(out.storage)
            if out.how == VIEW and (self._expands(row, out) or self.fixed.intersection(node.inputs)):
                self.fixed.add(name)
            model.exact &= (out.shape is not None or out.dtype == _ABSENT) and self.appended[out.storage] < 2
        model.exact = model.exact and not row.op.control
        model.before.append(ahead)
        model.behind.append([])
        model.read.append(tuple(found))
        model.made.append(tuple(made))

    def _expands(self, row: Op, out: Any) -> bool:
        """Whether a view is larger than its input. An Expand to the same shape hands its input on, which may be
        written."""
        node = row.op.node
        return node.op_type == "Expand" and self.index.places[self.frame, node.inputs[0]].shape != out.shape

    def _shared(self, row: Op, out: Any) -> int | None:
        """The one block in which some rule may place an output while its contents are still read."""
        op = row.op
        lenders = (*op.views, *(grow.input for grow in op.grows)) if not op.foreign else range(len(op.node.inputs))
        names = [op.node.inputs[position] for position in lenders if position < len(op.node.inputs)]
        found = {self.home[name] for name in names if name in self.home}
        if out.how in (VIEW, APPEND, PASSED) and out.storage in self.here:
            found.add(self.here[out.storage])
        if not found:
            return None
        blocks, one = self.model.blocks, min(found)
        for other in found - {one}:
            blocks[one].readers |= blocks[other].readers
            blocks[one].kept |= blocks[other].kept
            self.most[one] = max(self.most[one], self.most[other])
            blocks[one].size, blocks[other].size = min(blocks[one].size, blocks[other].size), 0
            model = self.model
            self.home.update({name: one for name, block in self.home.items() if block == other})
            self.here.update({storage: one for storage, block in self.here.items() if block == other})
            for lists in (model.read, model.made):
                lists[:] = [tuple(dict.fromkeys(one if g == other else g for g in places)) for places in lists]
        return one

    def _over(self, place: int, row: Op) -> tuple[tuple[int, int], ...]:
        """Blocks that an op can overwrite, with the block that it then does not make, in the order of trial."""
        blocks = self.model.blocks
        if row.op.control or self.rule == "never":
            return ()
        if self.any_rule:
            # If an op may run in place by kind, every rule says why it did not.
            may = row.op.overwrites or row.taken or row.masks or any(out and out.how == IN_PLACE for out in row.outs)
            read, new = self.model.read[place] if may else (), self.model.made[place]
            return tuple((g, m) for m in new for g in read if blocks[m].size <= self.most[g])
        node, refused = row.op.node, dict(row.masks)
        pairs = [(position, 0) for position in row.op.overwrites] + [(g.input, g.output) for g in row.op.grows]
        used = Counter(self.home[name] for name in (*node.inputs, *node.captures) if name in self.home)
        found = []
        for position, output in pairs:
            name, out = node.inputs[position], row.outs[output] if output < len(row.outs) else None
            source, made = self.home.get(name), self.home.get(node.outputs[output]) if out is not None else None
            if source is None or made is None or source == made or out is None:
                continue
            value = self.index.places[self.frame, name]
            fits = value.shape is not None and (value.shape, value.dtype) == (out.shape, out.dtype)
            packed = value.strides is None or _packed(value)
            free = used[source] == 1 and not blocks[source].kept and name not in self.fixed
            if fits and packed and free and not refused.get(position, 0) & _NEVER:
                found.append((source, made))
        return tuple(found)


def _packed(value: Any) -> bool:
    """Whether a value is in row-major order; strides of axes of length 1 do not matter."""
    meant = packed_strides(value.shape, np.dtype(value.dtype).itemsize)
    return all(n == 1 or a == c for n, a, c in zip(value.shape, value.strides, meant)) or 0 in value.shape


def bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _inside(index: Index, row: Op) -> int:
    """The most bytes that the bodies of a control node had alive."""
    bodies = index.bodies.get((row.frame, row.op.node.index))
    step = index.step_of(row.frame, row.op.node.index)
    if not bodies or step is None:
        return 0
    opened = min(index.frames[bodies[0]].opened, step)
    first, last = index.moment(opened), index.moment(step)
    change: Counter[int] = Counter()
    for life in index.lives:
        inside = life.last >= first and life.first <= last and life.born >= 0 and opened <= life.born <= step
        if inside and index.frames[index.rows[life.born].frame].parent is not None:
            change[life.first] += life.bytes
            change[life.last + 1] -= life.bytes
    live = top = 0
    for moment in sorted(change):
        live += change[moment]
        top = max(top, live) if moment <= last else top
    return top
