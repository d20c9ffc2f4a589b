"""Ops in a row that a step program runs: their code, and where frame, ledger and log are after them."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.plan import ABSENT, KEEP, Plan
from kvviz.engine.program.done_rows import Bytes, Done, Templates
from kvviz.engine.program.segment_code import NOT_RUN, Code, Facts, Op, Out, code_of
from kvviz.engine.program.watched_run import Layout, Seen
from kvviz.engine.run_state import RunState, raise_failure
from kvviz.memory.storage import Storage, root_of
from kvviz.trace.schema.events import APPEND, IN_PLACE, NEW, RUN, VIEW


class State(NamedTuple):
    """Where a frame and its storages are after some ops of a segment.

    ``made``: storages.
    ``alive``: of these (number, generation, holders, slots).
    ``lent``: of storages from before (number, holders more, generations more, dead, slots).
    ``uses``: readings left of each slot.
    ``gone``: slots from before that have no value now.
    """

    made: int
    alive: list[tuple[int, int, int, list[int]]]
    lent: list[tuple[int, int, int, bool, list[int]]]
    uses: list[int]
    gone: list[int]


class Segment:
    """Ops in a row, and the code that runs them. ``slots``: values from before that it reads, weights apart. ``start,
    uses``: what was seen of them, and how often each slot is still read."""

    def __init__(self, plan: Plan, first: int, stop: int) -> None:
        self.first = first
        self.nodes = plan.order[first:stop]
        given = {plan.slots.get(value.name) for value in plan.graph.overridable}
        inner = {ABSENT} | {slot for _, slot in plan.weights if slot not in given}
        self._fixed = frozenset(inner)
        slots: dict[int, None] = {}
        for planned in self.nodes:
            slots.update(dict.fromkeys(slot for slot in planned.inputs if slot not in inner))
            inner.update(planned.outputs)
        self.slots = tuple(slots)
        self.start: tuple[list[Any], list[Layout]] | None = None
        self.uses: list[int] = []
        self.code: Code | None = None
        self._bytes: Bytes | None = None

    def look(self, frame: Frame) -> tuple[list[Any], list[Layout]] | None:
        """What decisions hang on when it begins: how values from before lie, and who holds them."""
        facts: list[Any] = []
        layouts, owners = [], dict[int, int]()
        vals, stores = frame.vals, frame.stores
        for slot in self.slots:
            value, storage = vals[slot], stores[slot]
            if type(value) is not np.ndarray:
                return None
            flags, room = value.flags, storage.room is None
            facts += (value.dtype, flags.c_contiguous, flags.writeable, storage.owned, storage.holders, room)
            facts += (storage.origin, owners.setdefault(id(storage), slot))
            layouts.append((value.shape, value.strides))
        return (facts, layouts) if frame.done.find(1, self.first) < 0 else None

    def run(self, execution: RunState, frame: Frame) -> tuple[bool, bool]:
        """Run its ops, as far as they are as they were: whether it began, and whether that was to the end."""
        now = self.look(frame)
        if now is None or self.start is None or self.code is None or now[0] != self.start[0] or frame.uses != self.uses:
            return False, False
        if any(a != b and steady for a, b, steady in zip(now[1], self.start[1], self.steady)):
            return False, False
        facts, out = Facts([], [], []), None
        try:
            count, out = self.code(frame, facts)
        except Exception as error:
            trace = error.__traceback__
            assert trace is not None and trace.tb_next is not None
            count, out = self._lines[trace.tb_next.tb_lineno], error
        self._account(execution, frame, count, facts)
        if out is not NOT_RUN:
            # Complete the op that stopped the code.
            planned, op = self.nodes[count], self.ops[count]
            args = tuple([frame.vals[slot] for slot in planned.inputs])
            if isinstance(out, Exception):
                raise_failure(planned, args, out)
            execution.execute(frame, planned, (args, out, op.taken, op.masks))
        return True, count == len(self.ops)

    def _account(self, execution: RunState, frame: Frame, count: int, facts: Facts) -> None:
        """Bring frame, ledger and log to where they are after ``count`` ops."""
        if not count:
            return
        ledger, log, vals, stores = execution.ledger, execution.recorder.log, frame.vals, frame.stores
        state = self._whole if count == len(self.ops) else self._simulate(count)[1]
        said: tuple[list[Any], ...] = facts
        forms, sums, sizes = (some[: upto[count]] for some, upto in zip(said, self._said))
        lent = [stores[slot] for slot in self._lent]
        key = count, [storage.capacity for storage in lent], sums, sizes
        found = self._bytes if self._bytes is not None and self._bytes.key == key else self._count(key, state.made)
        self._bytes, base = found, len(ledger.storages)
        if execution.recorder.on:
            before = [(storage.id, storage.generation) for storage in lent]
            log.write_done(Done(self.ops, self._templates, frame.id, base, before, forms, found, ledger.live))
        ledger.storages += [None] * state.made
        ledger.facts.capacities.frombytes(found.capacities.tobytes())
        ledger.facts.origins.frombytes(bytes((RUN,)) * state.made)
        for number, generation, holders, slots in state.alive:
            made = Storage(base + number, int(found.capacities[number]), root_of(vals[slots[0]]), holders=holders)
            made.generation, ledger.storages[made.id] = generation, made
            for slot in slots:
                stores[slot] = made
        for number, holders, generations, dead, slots in state.lent:
            storage = lent[number]
            storage.holders += holders
            storage.generation += generations
            for slot in slots:
                stores[slot] = storage
            if dead:
                storage.root = None
        for slot in state.gone:
            stores[slot] = None
        frame.uses[:] = state.uses
        ledger.peak_here = max(ledger.peak_here, ledger.live + found.highest)
        ledger.live += found.end
        allocated, copied, written = found.totals
        log.allocated += allocated
        log.copied += copied
        log.written += written
        frame.done[self.first : self.first + count] = b"\1" * count
        frame.next_position = self.first + count

    def _count(self, key: tuple[int, list[int], list[int], list[int]], made: int) -> Bytes:
        """What some ops do to memory. ``key``: how many, capacities of storages from before, `Facts`; ``made``: how
        many storages they make."""
        count, lent, said, new = key
        sums, sizes = self._sums[:count], np.concatenate((self._capacities, [*lent, 0]), dtype=np.int64)
        if said:
            sums = sums.copy()
            sums[self._loose[: len(said) // 3]] = np.array(said).reshape(-1, 3)
            sizes[self._loose_new[: len(new)]] = new
        ends = self._ends[count - 1] + 1
        curve = np.cumsum(self._signs[:ends] * sizes[self._events[:ends]])
        highest, end, totals = int(curve.max()), int(curve[-1]), sums.sum(0).tolist()
        return Bytes(key, sizes[:made], curve, self._upto[:count], highest, end, sums, totals)

    # -- making it --------------------------------------------------------------------------------------------------

    def build(self, seen: list[Seen], loose: set[int]) -> None:
        """Make the code. ``seen``: its ops; ``loose``: slots whose values lie otherwise each time."""
        assert self.start is not None
        self._seen, self._varies = seen, loose
        self.steady = [slot not in loose for slot in self.slots]
        self._lent: list[int] = []
        self.ops, self._whole = self._simulate(len(self.nodes))
        self._templates: Templates = WeakKeyDictionary()
        self._loose = [at for at, op in enumerate(self.ops) if op.loose]
        new = [[at for at, out in enumerate(op.outs) if out is not None and out.how == NEW] for op in self.ops]
        there = [sum(out is not None for out in op.outs) for op in self.ops]
        says = [(op.loose * n, op.loose * 3, op.loose * len(some)) for op, n, some in zip(self.ops, there, new)]
        self._said = [[0, *accumulate(numbers)] for numbers in zip(*says)]
        self._sums = np.array([one.sums for one in seen], np.int64)
        made_here = [one.placed[at] for one, some in zip(seen, new) for at in some]
        sizes = [math.prod(where[3]) * where[4].itemsize for where in made_here]
        self._capacities = np.array(sizes, np.int64)
        events, signs, upto, made = [-1], [0], list[int](), 0
        self._ends: list[int] = []
        self._loose_new: list[int] = []
        for op, some in zip(self.ops, new):
            numbers = range(made, made + len(some))
            events += numbers
            signs += [1] * len(some)
            made += len(some)
            if op.loose:
                self._loose_new += numbers
            upto.append(len(events) - 1)
            events += [ref if ref >= 0 else self._whole.made + ~ref for ref in op.freed]
            signs += [-1] * len(op.freed)
            self._ends.append(len(events) - 1)
        self._events, self._signs, self._upto = np.array(events), np.array(signs), np.array(upto)
        self.code, self._lines = code_of(self.nodes, seen, self.ops, loose, self._fixed)

    def numbers(self, seen: list[Seen], loose: set[int], uses: list[int]) -> Code:
        """Code that only computes: nobody asks who holds what it reads."""
        self._seen, self._varies, self.uses, self._lent = seen, loose, uses.copy(), []
        ops, _ = self._simulate(len(self.nodes))
        return code_of(self.nodes, seen, ops, loose, self._fixed)[0]

    def _simulate(self, count: int) -> tuple[list[Op], State]:
        """The ops, and what there is after ``count`` of them: who holds which storage, as `Execution.note` counts."""
        facts, uses = self.start[0] if self.start else [], list(self.uses)
        outer = {slot: (facts[at * 8 + 4], facts[at * 8 + 7]) for at, slot in enumerate(self.slots) if facts}
        refs, holders, generations = dict[int, int](), dict[int, int](), dict[int, int]()
        first = dict[int, int]()  # holders of storages from before, when it begins
        ops: list[Op] = []
        made = 0

        def ref_of(slot: int) -> int:
            if slot not in refs:
                held, owner = outer.get(slot, (KEEP, slot))
                if owner not in self._lent:
                    self._lent.append(owner)
                refs[slot] = ref = ~self._lent.index(owner)
                holders.setdefault(ref, first.setdefault(ref, held))
            return refs[slot]

        steady: set[int] = set()  # slots whose values begin at the same place of their storages each time
        for planned, one in zip(self.nodes[:count], self._seen):
            outs: list[Out | None] = []
            others = planned.inputs[1:] if one.usual else planned.inputs[len(one.taken or planned.views) :]
            loose = planned.cost is not None and not self._varies.isdisjoint(planned.inputs)
            for slot, where, position in zip(planned.outputs, one.placed, one.sources):
                if where is None:
                    outs.append(None)
                    continue
                _, _, how, shape, dtype, offset, strides = where
                source = ABSENT
                if how == NEW:
                    ref, made = made, made + 1
                else:
                    source = planned.inputs[position]
                    ref = ref_of(source)
                holders[ref] = holders.get(ref, 0) + 1
                generations[ref] = generations.get(ref, 0) + (how in (IN_PLACE, APPEND))
                refs[slot] = ref
                lies = how in (NEW, APPEND) or source in self._fixed or source in steady
                if how == VIEW and planned.slides:
                    lies = lies and all(other in self._fixed for other in others)
                if lies:
                    steady.add(slot)
                loose |= slot in self._varies or (how == VIEW and not lies and (planned.slides or not one.usual))
                outs.append(Out(slot, how, ref, generations[ref], dtype, (shape, strides, offset)))
            dies, freed = [], []
            spends = planned.spends
            for read, times in planned.consumes if spends is None else [(read, 1) for read in spends]:
                uses[read] -= times
                if not uses[read]:
                    dies.append(read)
            dies += [slot for slot in planned.outputs if slot and not uses[slot]]
            for dead in dies:
                gone = ref_of(dead)
                holders[gone] -= 1
                if not holders[gone]:
                    freed.append(gone)
            ops.append(Op(planned.record, one.taken, one.masks, tuple(outs), loose, tuple(dies), tuple(freed)))
        living: dict[int, list[int]] = {}
        dead_slots = {slot for op in ops for slot in op.dies}
        for slot, ref in refs.items():
            if slot not in dead_slots:
                living.setdefault(ref, []).append(slot)
        alive = [(ref, generations[ref], holders[ref], slots) for ref, slots in living.items() if ref >= 0]
        lent = [
            (~ref, holders[ref] - held, generations.get(ref, 0), not holders[ref], living.get(ref, []))
            for ref, held in first.items()
        ]
        return ops, State(made, alive, lent, uses, [slot for slot in dead_slots if slot in outer])
