"""The cursor: a position in a trace; moving it past the end of the recording makes the session run further.

The widget, the command line and the tests all use it. A position is the number of the step that was completed last; -1
is before the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvviz.debugger.breakpoints import Breakpoint
from kvviz.debugger.state import depth_of, find_choice, frame_after, frontier_after
from kvviz.engine.sessions.session import Session
from kvviz.errors import KvvizError
from kvviz.graph.blocks import blocks
from kvviz.graph.model import Node
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step


@dataclass(frozen=True, slots=True)
class Stop:
    """Why (``"start"``, ``"step"``, ``"breakpoint"`` or, with nothing left to run, ``"end"``) and where it stopped."""

    reason: str
    position: int
    breakpoint: Breakpoint | None = None


class Cursor:
    """A position in a trace, and the commands of a debugger that move it. Past the end of the recording, a session runs
    further; a trace without a session ends there."""

    def __init__(self, source: Session | Trace) -> None:
        self.session = None if isinstance(source, Trace) else source
        self.trace: Trace = source if isinstance(source, Trace) else source.trace
        self.position = -1
        self.breakpoints: list[Breakpoint] = []
        self._blocks: dict[int, int] = {}

    @property
    def step(self) -> Step | None:
        return self.trace.steps[self.position] if self.position >= 0 else None

    @property
    def at_edge(self) -> bool:
        return self.position == len(self.trace.steps) - 1

    @property
    def decode_step(self) -> int:
        return self.trace.steps[self.position].run if self.position >= 0 else 0

    def frontier(self) -> tuple[Node, ...]:
        """Nodes that may run next, in plan order; empty if the next step completes an If, a loop or a function."""
        if self.at_edge and self.session is not None:
            live = self.session.look_ahead()
            return live.frontier if live else ()
        return frontier_after(self.trace, self.position)

    def frame(self) -> tuple[str, ...]:
        if self.at_edge and self.session is not None:
            self.session.look_ahead()
        return frame_after(self.trace, self.position)

    def next(self) -> Stop:
        """Complete the next op of this frame; the body of a control node counts as part of it."""
        depth = self._depth()
        return self._move(lambda index: depth_of(self.trace, index) <= depth)

    over = next

    def into(self) -> Stop:
        """Complete one more op in any frame: if a body comes next, its first op."""
        return self._move(lambda index: True)

    def out(self) -> Stop:
        """Run until the control node of this frame is complete; in the main graph, to the end of the next block."""
        depth = self._depth()
        if depth:
            return self._move(lambda index: depth_of(self.trace, index) < depth)
        stop = self.next()
        if stop.reason != "step":
            return stop
        run, block = self.decode_step, self._block()
        last = self.position
        while self.next().reason == "step" and self.decode_step == run and self._block() == block:
            last = self.position
        self.position = last  # one more op may have run; it is recorded, and comes next
        return Stop("step", last)

    def back(self) -> Stop:
        """Go back to the previous op of this frame or of one around it."""
        depth = self._depth()
        while self.position >= 0:
            self.position -= 1
            if self.position >= 0 and depth_of(self.trace, self.position) <= depth:
                return Stop("step", self.position)
        return Stop("start", -1)

    def resume(self, until: Breakpoint | None = None) -> Stop:
        """Continue to the next breakpoint or to the end. ``until``: one more breakpoint, for this time."""
        return self._move(lambda index: until is not None and until.matches(self.trace, index), stops=True)

    def reverse(self) -> Stop:
        """Go back to the previous step that a breakpoint matches, or to the start."""
        while self.position > 0:
            self.position -= 1
            hit = self._hit(self.position)
            if hit is not None:
                return Stop("breakpoint", self.position, hit)
        self.position = -1
        return Stop("start", -1)

    def next_decode_step(self) -> Stop:
        """Go to the same op in the next run, or to the end of that run if the op does not run there."""
        here = self.step
        if here is None:
            following = self.position + 1
            ahead = self.trace.steps[following].run if following < len(self.trace.steps) else len(self.trace.runs) - 1
            return self._move(lambda index: self._ends_run(index, ahead))
        wanted, node = here.run + 1, here.graph_node
        rows, frames = self.trace.log, self.trace.log.frames

        def arrived(index: int) -> bool:
            row = rows[index]
            return frames[row.frame].run == wanted and (row.op.node is node or self._ends_run(index, wanted))

        return self._move(arrived)

    def goto(self, position: int) -> Stop:
        """Go to a step by its number (-1: before the first), running further if it has not run yet."""
        if position < -1:
            raise KvvizError(f"step {position} does not exist; the first position is -1, before anything ran")
        if position < len(self.trace.steps):
            self.position = position
            return Stop("step" if position >= 0 else "start", position)
        return self._move(lambda index: index >= position)

    def choose(self, node: Node | str) -> Stop:
        """Run an op of the frontier next, instead of the first one. Raises `KvvizError` if it cannot run there, or
        another op has run there already: a fork runs it instead."""
        if self.session is None or not self.at_edge:
            raise KvvizError("an op can be chosen where none has run yet; elsewhere, kvviz.fork runs another one")
        if self.session.look_ahead() is None:
            raise KvvizError("nothing is left to run: go back to a step to choose what runs after it")
        self.session.advance(find_choice(self.trace, self.position + 1, node)[1])
        self.position = len(self.trace.steps) - 1
        self.session.look_ahead()
        return Stop("step", self.position)

    def _forward(self) -> bool:
        if self.at_edge:
            if self.session is None:
                return False
            before = len(self.trace.steps)
            try:
                if not self.session.advance():
                    return False
            finally:
                # An interrupted step is either complete or has not begun.
                self.position += len(self.trace.steps) - before
            return True
        self.position += 1
        return True

    def _move(self, arrived: Callable[[int], bool], stops: bool = False) -> Stop:
        while self._forward():
            if stops and (hit := self._hit(self.position)) is not None:
                return Stop("breakpoint", self.position, hit)
            if arrived(self.position):
                return Stop("step", self.position)
        return Stop("end", self.position)

    def _hit(self, index: int) -> Breakpoint | None:
        hits = [b for b in self.breakpoints if b.matches(self.trace, index)]
        return hits[0] if hits else None

    def _block(self) -> int:
        if not self._blocks:
            frame = next(f for f in self.trace.frames if f.parent is None)
            cut = enumerate(blocks(self.trace.graph, frame.order))
            self._blocks = {id(node): number for number, block in cut for node in block.nodes}
        return self._blocks.get(id(self.trace.log[self.position].op.node), -1)

    def _depth(self) -> int:
        return depth_of(self.trace, self.position) if self.position >= 0 else 0

    def _ends_run(self, index: int, run: int) -> bool:
        rows, frames = self.trace.log, self.trace.log.frames
        if index + 1 < len(rows):
            return frames[rows[index + 1].frame].run != run
        return self.session is None or self.session.run_is_over
