"""What has to change so that an op is the only one left to hold the bytes of its input.

The bytes of a value are free for an op if the run owns them, and if at that moment no other live value has a part of
them. Which values do is the same in every order and for every donation: those that views connect. So it is enough to
look at them, and at whoever reads them later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvviz.engine.plan import needed
from kvviz.explain.changes import ByValue, Change, Donate, Drop, RunFirst
from kvviz.graph.model import Node
from kvviz.trace.run_options import RunOptions
from kvviz.trace.value_index import Index, head_and_carried


class Unfixable(Exception):
    """No change of a kind that is known here would do."""


Gate = Callable[[Index, int, str], str]


def handed_over(index: Index, frame: int, name: str, lends: bool = False) -> str:
    """How a body takes over a value under the policy ``ideal``: an If what it captures, and all others their arguments.

    ``frame``: the body's.
    ``name``: of the value, in the outer frame.
    ``lends``: the policy lends captured values to branches, whoever else needs them.
    """
    planned = index.frames[frame].caller
    node = planned.node
    if planned.control == "If":
        if name in node.inputs or (frame, name) not in index.places:
            return ""
        return "by value" if lends else "as it is"
    if node.inputs.count(name) != 1 or name in node.captures or (node.op_type == "Scan" and node.opset < 9):
        return ""
    if planned.control != "function":
        first = 2 if node.op_type == "Loop" else 0
        _, carried = head_and_carried(node)
        if name not in node.inputs[first : first + carried]:
            return ""
    return "as it is"


class Clearing:
    """The changes after which one input of a step is its own to overwrite.

    ``step``: of an op with a kernel.
    ``position``: which of its inputs.
    ``gate``: ``gate(index, frame, name)`` says how a body, of which ``frame`` is an activation, can take over a value
      of the outer frame that nobody else needs: ``"as it is"``, ``"by value"`` (if the policy captures by value) or
      not at all.
    ``other_rules``: it is to run under another policy than the one that it ran under.
    ``copies_views``: the policy makes a view only of what nobody else reads: a reader that runs earlier makes a copy
      instead.

    Raises `Unfixable`: if no change would do.
    """

    def __init__(
        self,
        index: Index,
        step: int,
        position: int,
        gate: Gate,
        other_rules: bool = False,
        copies_views: bool = False,
    ) -> None:
        self.index = index
        self.gate = gate
        self.copies_views = copies_views
        self.step = step
        row = index.rows[step]
        self.name: str = row.op.node.inputs[position]
        self.path = index.path(row.frame)
        self.nodes: list[Node] = [index.frames[frame].caller.node for frame in self.path[1:]] + [row.op.node]
        place = index.places[row.frame, self.name]
        self.shared = (place.storage, place.contents)
        self.members = index.members[self.shared]
        if index.trace.log.storages[place.storage].origin == "weights":
            # Of a body that is over, too: an If may hand out a constant.
            self._fail("a weight")
        self._refuse_sequences()
        self.dropped: dict[Change, None] = {}
        # Nodes of the main graph that nobody needs without the outputs that are dropped: they read nothing, and what
        # only they need is not moved with them.
        self.gone: frozenset[int] = frozenset()
        self._clear(place.storage)
        while (gone := self._not_needed()) != self.gone:
            self.gone = gone
            self._clear(place.storage)
        if self.nodes[0].index in self.gone:
            self._fail("the op would not run")
        if self.dropped:
            self._refuse_unread()
        if other_rules or self.gone or any(isinstance(change, Donate) for change in self.changes):
            self._refuse_appends()

    def _clear(self, storage: int) -> None:
        self.moved: dict[int, set[int]] = {frame: set() for frame in self.path}
        self.changes: dict[Change, None] = {}
        self._ask_the_caller(storage)
        for depth in range(len(self.path)):
            self._refuse_collected(depth)
            while self._clear_frame(depth):
                pass
        self.changes |= self.dropped

    def _not_needed(self) -> frozenset[int]:
        if not self.dropped:
            return frozenset()
        plan = self.index.frames[self.path[0]].program
        left = needed(plan.graph, [name for name in self.index.outputs(self.path[0]) if Drop(name) not in self.dropped])
        return frozenset(planned.node.index for planned in plan.order) - {node.index for node in left}

    # -- one frame --------------------------------------------------------------------------------------------------

    def _clear_frame(self, depth: int) -> bool:
        """Let the values of a frame that have a part of the bytes be read before its node runs; True if that brought
        new nodes in front of it."""
        index, frame, node = self.index, self.path[depth], self.nodes[depth]
        now = index.step_of[frame, node.index]
        more = False
        for member_frame, name in self.members:
            if member_frame != frame or not self._exists(frame, name, now):
                continue
            if name in index.outputs(frame):
                self._drop(frame, name)
            readers = list(index.readers(frame, name))
            if not readers and index.places[frame, name].bound:
                self._fail("nobody reads it, so it is held to the end")
            for reader, step in readers:
                if not depth and reader.index in self.gone:
                    continue
                if reader is node:
                    self._hand_over(depth, name)
                elif step > now and reader.index not in self.moved[frame]:
                    self._move(frame, reader, node, now)
                    more = True
        return more

    def _exists(self, frame: int, name: str, now: int) -> bool:
        """Whether a value exists when the frame's node runs, in the order as it will be."""
        place = self.index.places[frame, name]
        if place.bound or place.step < now:
            return place.bound != "weight" or self._fail("a weight")
        return not self.copies_views and self.index.rows[place.step].op.node.index in self.moved[frame]

    def _drop(self, frame: int, name: str) -> None:
        if self.index.frames[frame].parent is not None:
            self._fail("a body hands it out")
        trace = self.index.trace
        if len(trace.runs) > 1 or trace.options.kind != "run":
            self._fail("the next run needs it")
        self.dropped[Drop(name)] = None

    def _move(self, frame: int, reader: Node, node: Node, now: int) -> None:
        """Let a reader run before the frame's node, with all that it needs."""
        graph, moved = self.index.frames[frame].program.graph, self.moved[frame]
        steps = self.index.step_of
        stack = [reader]
        while stack:
            need = stack.pop()
            if need is node:
                self._fail("the reader needs what the node makes")
            step = steps.get((frame, need.index))
            if step is None or step < now or need.index in moved:
                continue
            moved.add(need.index)
            stack += [graph.producers[name] for name in (*need.inputs, *need.captures) if name in graph.producers]
        self.changes[RunFirst(graph.path, reader.index, node.index)] = None

    def _hand_over(self, depth: int, name: str) -> None:
        """The frame's own node reads a value: the op itself, or the control node whose body leads to the op."""
        node = self.nodes[depth]
        if depth == len(self.path) - 1:
            if name != self.name or node.inputs.count(name) > 1:
                self._fail("the op reads it twice")
            return
        how = self.gate(self.index, self.path[depth + 1], name)
        if not how:
            self._fail("the body only borrows it")
        if how == "by value":
            self.changes[ByValue()] = None

    # -- what stands in the way whatever the order is ---------------------------------------------------------------

    def _refuse_collected(self, depth: int) -> None:
        """Scan outputs of earlier iterations are kept until the loop ends."""
        if depth + 1 < len(self.path):
            index, child = self.index, self.path[depth + 1]
            for sibling in index.bodies[self.path[depth], self.nodes[depth].index]:
                for name in index.scanned(sibling) if sibling < child else ():
                    place = index.places.get((sibling, name))
                    if place is not None and (place.storage, place.contents) == self.shared:
                        self._fail("a scan output is collected")

    def _refuse_unread(self) -> None:
        """Another input in that memory may be read for the sake of a dropped output only; then nobody lets it go."""
        for frame, name in self.members:
            bound = self.index.places[frame, name].bound
            if bound in ("borrowed", "donated") and (frame, name) != (self.path[-1], self.name):
                nodes = [node for node, _ in self.index.readers(frame, name)]
                if frame == self.path[0] and not any(node in self.nodes for node in nodes):
                    self._fail("another input in its memory may not be read any more")

    def _refuse_appends(self) -> None:
        """Who appends to these bytes once the run owns them, or once nobody else does so first, has a part of them, and
        so has what is appended to them."""
        index = self.index
        if not _may_have_room(index):
            return
        for frame, name in self.members:
            place = index.places[frame, name]
            made = () if place.bound else index.rows[place.step].op.grows
            if any(index.rows[place.step].op.node.outputs[grow.output] == name for grow in made):
                self._fail("it may be appended to what others read")
            for reader, step in index.readers(frame, name):
                pasts = [reader.inputs[grow.input] for grow in index.rows[step].op.grows]
                if name in pasts and (step < self.step or reader.index in self.moved.get(frame, ())):
                    self._fail("another op may append to it")

    def _refuse_sequences(self) -> None:
        """A sequence holds its elements in ways that are not looked at here."""
        known: dict[tuple[int, int], bool] = self.index.notes.setdefault("sequences", {})
        if self.shared not in known:
            known[self.shared] = self._meets_sequence()
        if known[self.shared]:
            self._fail("a sequence may hold it")

    def _meets_sequence(self) -> bool:
        """Whether an op that made or read these bytes read or made a sequence."""
        index = self.index
        steps: set[int] = set()
        for frame, name in self.members:
            place = index.places[frame, name]
            steps.update(step for _, step in index.readers(frame, name))
            steps.update(() if place.bound else (place.step,))
        for row in (index.rows[step] for step in steps):
            given = (index.places.get((row.frame, name)) for name in row.op.node.inputs)
            kinds = [place.dtype for place in given if place is not None]
            kinds += [out.dtype for out in row.outs if out is not None]
            if any(isinstance(kind, str) and kind in ("list", "tuple", "dict") for kind in kinds):
                return True
        return False

    def _ask_the_caller(self, storage: int) -> None:
        """An input that was lent must be donated, with all others in the same memory."""
        main = self.path[0]
        options = self.index.trace.options
        for name, bound, _, how, *_ in self.index.frames[main].bindings:
            if bound == storage and how == "borrowed":
                if name in options.lent:
                    self._fail("the caller needs it again")
                if name in options.layouts and options.layouts[name].repeats:
                    self._fail("elements of its array share memory, so it cannot be donated")
                self.changes[Donate(name)] = None
        self._refuse_lent_memory(storage, options)

    def _refuse_lent_memory(self, storage: int, options: RunOptions) -> None:
        """What no op reads is no value of the run, but its memory is still the caller's."""
        bindings, layouts = self.index.frames[self.path[0]].bindings, options.layouts
        blocks = {layouts[name].block for name, bound, *_ in bindings if bound == storage and name in layouts}
        unread = layouts.keys() - {name for name, *_ in bindings} - set(options.donate)
        if any(layouts[name].block in blocks for name in unread):
            self._fail("an input that no op reads lies in the same memory")

    def _fail(self, why: str) -> Any:
        raise Unfixable(why)


def _may_have_room(index: Index) -> bool:
    """Whether any block that this trace was given may have room to grow."""
    options = index.trace.options
    if options.given is None or options.kv_capacity is not None or options.growth == "after":
        return True
    return any(layout.room is not None for layout in options.layouts.values())
