"""rten's use counts and its dispatch rule: when an op is called in place, and with which inputs.

An op is called in place if *every* in-place input that is present has a use count of 1 and belongs to this run. A
commutative op tries one operand only: the one with the most elements, the last one on ties. Counts are kept in a byte:
255 is never counted down. Source: ``Graph::run_plan`` and ``NodeRefCount`` at commit c7f7bad9.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.engine.decide import NOTHING, ONLY, Verdict, elementwise_misfit
from kvviz.engine.frame import Frame
from kvviz.engine.plan import KEEP, PIN, Plan, PlannedNode
from kvviz.graph.model import Graph, Node
from kvviz.memory.storage import Arguments
from kvviz.runtimes.rten import output_identity
from kvviz.runtimes.rten.rten_planner import QUIRKS, in_place_inputs, is_commutative
from kvviz.trace import blockers as b

STICKY = 255
RULES = (
    "rten tries only one operand of a commutative op, the one with the most elements and the last one on ties: "
    "{input} was not tried",
    "{op} cannot overwrite {input}: rten counts its uses in a byte, and 255 is never counted down",
    "{op} cannot overwrite {input}: rten counts a captured value once for each body that names it, "
    "so it was borrowed and not handed over",
    "{op} cannot overwrite {input}: rten hands captured values over by one level only",
    "{op} cannot overwrite {input}: a Loop of rten never owns its inputs, so its first iteration borrows them",
    "{op} cannot overwrite {input}: another op makes that value again in this run, and what reads it runs once more",
    "{op} cannot overwrite {input}: before v0.14.1 rten lent captured values to bodies and never handed them over",
)
NOT_TRIED, SATURATED, COUNTED_TWICE, TWO_LEVELS, LOOP_LENDS, MADE_AGAIN, ALWAYS_LENT = (
    b.rule(number) for number in range(len(RULES))
)


@dataclass(frozen=True, slots=True)
class Notes:
    """The rules' data on a planned node. ``candidates``: in-place inputs that are present; all operands for a
    commutative op."""

    candidates: tuple[tuple[int, int], ...]
    commutative: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules, with all or some of rten's quirks (see `kvviz.runtimes.rten.rten_planner.QUIRKS`). ``lends``: bodies
    borrow all captures, as before rten's pull request 407."""

    quirks: frozenset[str] = frozenset(QUIRKS)
    lends: bool = False

    def prepare(self, plan: Plan) -> None:
        """Count uses as rten does, and look up what each node declares."""
        local = _local_names(plan.graph)
        for planned in plan.order:
            declared = in_place_inputs(planned.node)
            commutative = is_commutative(planned.node) and bool(declared)
            positions = tuple(range(len(planned.inputs))) if commutative else declared
            present = tuple((i, planned.inputs[i]) for i in positions if i < len(planned.inputs) and planned.inputs[i])
            planned.notes = Notes(present, commutative)
            if planned.control:
                self._recount(plan, planned, local)
        sticky = (slot for slot, count in enumerate(plan.uses) if STICKY <= count % KEEP < PIN)
        plan.notes = PlanNotes(
            frozenset(slot for _, slot in plan.captured),
            frozenset(sticky if "sticky_count" in self.quirks else ()),
            frozenset(plan.slots[name] for name in plan.graph.spelled or ()),
        )
        self._pin(plan)

    def _recount(self, plan: Plan, planned: PlannedNode, local: frozenset[str]) -> None:
        """Count captured values once for each body that names them, and only those that this graph has a node for."""
        for slot, count in planned.consumes:
            plan.uses[slot] -= count
        reads = {slot: planned.inputs.count(slot) for slot in planned.inputs if slot}
        for name, slot in planned.captures:
            if (name in local or "one_level" not in self.quirks) and slot not in planned.inputs:
                reads[slot] = _times_captured(planned.node, name) if "counted_twice" in self.quirks else 1
        planned.reads = {**{slot: 0 for _, slot in planned.captures}, **reads}
        planned.consumes = tuple(reads.items())
        for slot, count in planned.consumes:
            plan.uses[slot] += count

    def _pin(self, plan: Plan) -> None:
        uses = plan.uses
        if "unread_outputs" in self.quirks:
            for planned in plan.order:
                for slot in planned.outputs:
                    if slot and not uses[slot]:
                        uses[slot] = PIN
        for slot in (*plan.notes.sticky, *plan.notes.again):
            uses[slot] += PIN
        if "kept_captures" in self.quirks:
            for _, slot in plan.captured:
                uses[slot] += PIN

    def in_place(self, frame: Frame, planned: PlannedNode, args: Arguments) -> Verdict:
        notes: Notes = planned.notes
        candidates = notes.candidates
        if not candidates:
            return (), (), NOTHING
        if notes.commutative:
            candidates = self._operand(frame, planned, args)
        tried = candidates[0][0]
        refused = {}
        for i, slot in candidates:
            if mask := self._mask(frame, planned, slot):
                refused[i] = mask
        if not refused:
            taken = ONLY[tried] if len(candidates) == 1 else tuple([i for i, _ in candidates])
            how = output_identity.keywords(frame, planned, args, taken)
            # An operand that cannot hold the result is named when that is found out; the other one is named here.
            small = notes.commutative and not how and elementwise_misfit(args, tried)
            return taken, tuple(self._others(frame, planned, tried).items()) if small else (), how
        if notes.commutative:
            others = self._others(frame, planned, tried)
        else:
            others = {i: b.OTHER_INPUT_BUSY for i, _ in candidates if i not in refused}
        return (), tuple(sorted({**others, **refused}.items())), NOTHING

    def captures(self, frame: Frame, planned: PlannedNode) -> frozenset[int]:
        """Captured values that move into the bodies of a control node: not its inputs, used once, and owned here."""
        if self.lends or (planned.control != "If" and not (planned.control == "Loop" and "loop_copies" in self.quirks)):
            return frozenset()
        reads = planned.reads
        return frozenset(
            slot
            for _, slot in planned.captures
            if slot not in planned.inputs and reads[slot] and not self._mask(frame, planned, slot)
        )

    def _operand(self, frame: Frame, planned: PlannedNode, args: Arguments) -> tuple[tuple[int, int], ...]:
        candidates: tuple[tuple[int, int], ...] = planned.notes.candidates
        if "one_operand" not in self.quirks:
            free = [c for c in candidates if not self._mask(frame, planned, c[1])]
            candidates = tuple(free) or candidates
        # The last one of equally large operands. Only values of this graph's run count.
        uses, stores = frame.uses, frame.stores
        lent = frame.plan.notes.captured if "one_operand" in self.quirks else ()
        best, most = candidates[0], 0
        for candidate in candidates:
            position, slot = candidate
            counts = uses[slot] < KEEP >> 1 and stores[slot].owned and slot not in lent
            size = args[position].size if counts else 0
            if size >= most:
                best, most = candidate, size
        return (best,)

    def _others(self, frame: Frame, planned: PlannedNode, tried: int) -> dict[int, int]:
        """Why a commutative op did not take over the operands that were not tried."""
        return {i: self._mask(frame, planned, slot) or NOT_TRIED for i, slot in planned.notes.candidates if i != tried}

    def _mask(self, frame: Frame, planned: PlannedNode, slot: int) -> int:
        storage = frame.stores[slot]
        if storage is None or storage.origin == "weights":
            return b.CONSTANT
        plan = frame.plan
        left, here = frame.uses[slot], planned.reads.get(slot, 0)
        if left == here == 1 and storage.owned and storage.holders == 1:
            # The usual case: outputs, lent and pinned values have larger counts.
            return 0
        mask = 0
        if left >= KEEP >> 1:
            left -= KEEP
            mask |= b.CAPTURED_BY_REFERENCE | self._why_lent(frame, slot)
        left %= PIN
        if slot in plan.is_output:
            mask |= b.REQUESTED_OUTPUT
            left -= 1
        if slot in plan.notes.sticky:
            mask |= SATURATED
        if slot in plan.notes.again:
            mask |= MADE_AGAIN
        if left > here:
            mask |= b.NOT_LAST_USE
        if here > 1:
            mask |= COUNTED_TWICE if planned.control else b.SAME_OP_TWICE
        if not storage.owned:
            mask |= b.BORROWED_INPUT
        if storage.holders > 1 + (not storage.owned):
            mask |= b.ALIASED
        return mask

    def _why_lent(self, frame: Frame, slot: int) -> int:
        """The quirk because of which a value was lent to a body, if there was one."""
        parent, caller = frame.parent, frame.caller
        if parent is None or caller is None:
            return 0
        if slot in frame.plan.inputs:
            return LOOP_LENDS
        outer = parent.plan.slots.get(frame.plan.names[slot])
        if outer is None or parent.stores[outer] is None:
            return 0
        if self.lends:
            return ALWAYS_LENT
        if not caller.reads.get(outer):
            return TWO_LEVELS
        mask = self._mask(parent, caller, outer)
        return mask & COUNTED_TWICE if not mask & ~COUNTED_TWICE else 0


@dataclass(frozen=True, slots=True)
class PlanNotes:
    """The rules' data on a plan. ``captured``: slots of values of an outer graph. ``sticky``: slots of so many uses
    that their count does not change. ``again``: slots of given values that are made again under another name."""

    captured: frozenset[int]
    sticky: frozenset[int]
    again: frozenset[int]


def _local_names(graph: Graph) -> frozenset[str]:
    """Names that a graph has a node for: its own values, and outer ones that an op of it reads directly."""
    own = {value.name for value in graph.inputs} | set(graph.producers) | set(graph.weights)
    read = {name for node in graph.nodes for name in node.inputs if name}
    return frozenset(own | read | {value.name for value in graph.outputs})


def _times_captured(node: Node, name: str) -> int:
    """How many bodies of a node, and bodies of their nodes, name a value: rten does not merge them."""
    times = 0
    for body in node.subgraphs.values():
        times += any(name in inner.inputs for inner in body.nodes) or any(value.name == name for value in body.outputs)
        times += sum(_times_captured(inner, name) for inner in body.nodes if inner.subgraphs)
    return times
