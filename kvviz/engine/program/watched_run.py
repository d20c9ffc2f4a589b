"""What the ops of one run did, as far as a step program can do it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvviz.engine import decide
from kvviz.engine.frame import Frame
from kvviz.engine.plan import Plan, PlannedNode
from kvviz.memory.storage import repeats, root_of
from kvviz.ops.registry import is_extension
from kvviz.trace.schema.events import APPEND, NEW, VIEW

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides."""


class Seen(NamedTuple):
    """One op of a watched run. ``layouts``: of the inputs and the outputs; ``fits``: what an input in place hangs on.

    ``contiguous``: of each output.
    ``placed``: the outputs, as the log has them.
    ``sums``: bytes allocated, copied, written.
    ``sources``: for each output the position of the input in whose storage it lies, or -1.
    ``usual``: a lone output in a place that `Execution.execute` has written out, also if it came as a ``scalar``.
    ``steady``: the kernel's shorter call for inputs that lie so, if it has one.
    """

    taken: tuple[int, ...]
    masks: tuple[tuple[int, int], ...]
    layouts: tuple[Layout | None, ...]
    contiguous: tuple[bool, ...]
    fits: tuple
    placed: tuple
    sums: tuple[int, int, int]
    sources: tuple[int, ...]
    usual: bool
    scalar: bool
    steady: Callable[..., Any] | None

    @property
    def made(self) -> tuple[Layout | None, ...]:
        """Layouts of the outputs."""
        return self.layouts[-len(self.placed) :]


class Watch:
    """What the ops of one frame did, by position; of unusual ones nothing.

    ``starts``: of the segments that are known so far, by position: what they read, how that was when they began (see
      `Segment.look`), and how often each slot was still to be read.
    ``bodies``: of each If the branch that it took, its plan and what its ops did.
    ``given``: of a main graph, the layouts of its packed inputs.
    ``apart``: whether each output of a main graph has memory of its own.
    ``alike, repeated``: the ops and the bodies that did the same in the run before.
    ``loose``: slots whose values lie otherwise each time.
    """

    def __init__(self) -> None:
        self.ops: dict[int, Seen] = {}
        self.starts: dict[int, tuple[tuple[int, ...], tuple[list[Any], list[Layout]] | None, list[int]]] = {}
        self.bodies: dict[int, tuple[str, Plan, Watch]] = {}
        self.given: dict[int, Layout] = {}
        self.apart = False
        self.alike: dict[int, Seen] = {}
        self.repeated: dict[int, tuple[str, Plan, Watch]] = {}
        self.loose: set[int] = set()
        self._upto = 0  # all ops before it have run

    def begin(self, frame: Frame) -> None:
        """Take down the inputs of a main graph."""
        for slot in frame.plan.inputs:
            value = frame.vals[slot]
            if type(value) is np.ndarray and value.flags.c_contiguous:
                self.given[slot] = value.shape, value.strides

    def end(self, frame: Frame) -> None:
        """Take down the outputs of a main graph."""
        stores = [frame.stores[slot] for slot in frame.plan.outputs]
        owned = all(storage is not None and storage.owned for storage in stores)
        self.apart = owned and len({storage.id for storage in stores}) == len(stores)

    def compare(self, plan: Plan, before: Watch, keep: bool) -> None:
        """Find what was alike in the run before, in bodies too. ``keep``: slots that lay otherwise then count."""
        self.loose = set(before.loose) if keep else set()
        for position, seen in self.ops.items():
            past = before.ops.get(position)
            if past is not None and _alike(past, seen):
                self.alike[position] = seen
                slots = (*plan.order[position].inputs, *plan.order[position].outputs)
                self.loose.update(slot for slot, a, b in zip(slots, past.layouts, seen.layouts) if a != b)
        self.loose.update(slot for slot, layout in self.given.items() if before.given.get(slot) != layout)
        for position, (attribute, inner, body) in self.bodies.items():
            branch, _, past_body = before.bodies.get(position, ("", None, None))
            if branch == attribute and past_body is not None:
                body.compare(inner, past_body, keep)
                self.repeated[position] = self.bodies[position]

    def add(
        self,
        frame: Frame,
        planned: PlannedNode,
        args: Sequence[Any],
        out: Any,
        verdict: tuple[Any, Any],
        placed: tuple,
        sums: tuple[int, int, int],
        usual: bool,
    ) -> None:
        """Take down an op that has run in plan order. What writes rows inside a value, was refused a room, or is
        computed by the caller's kernel stays an ordinary step; so does what gave outputs that are no arrays or had to
        be copied."""
        spec = planned.spec
        if spec is None or spec.written is not None or spec.kernel is None or is_extension(spec.kernel):
            return
        at = planned.position
        self._upto = frame.done.find(0, self._upto)
        if self._upto != at or frame.done.find(1, at) >= 0:  # not in plan order
            return
        if not all(arg is None or type(arg) is np.ndarray for arg in args):
            return
        taken, masks = verdict
        slots = planned.outputs
        scalar = planned.plain and isinstance(out, np.generic)
        if scalar:
            out, usual = frame.vals[slots[0]], True
        outs = (out,) if len(slots) == 1 else out[: len(slots)] if type(out) is tuple else ()
        if not all(not slot or type(value) is np.ndarray for slot, value in zip(slots, outs, strict=False)):
            return
        pasts = [planned.inputs[grow.input] for grow in planned.grows if args[grow.input] is not None]
        grows = bool(pasts and taken) and not usual
        if taken and usual and pasts and (planned.candidates or len(planned.grows) > 1):
            return
        if grows and not set(pasts) <= set(frame.plan.inputs):
            return
        if not grows and any(frame.stores[past].room is not None for past in pasts):
            return
        sources: list[int] = []
        if usual:
            sources.append(-1 if placed[0][2] == NEW else (taken or planned.views)[0])
        elif len(outs) < len(slots) or (taken and not grows):
            return
        for slot, value, where in () if usual else zip(slots, outs, placed):
            if slot and (value is not frame.vals[slot] or where[2] not in ((NEW, APPEND) if grows else (NEW, VIEW))):
                return
            sources.append(source_of(planned, args, value, taken) if slot else -1)
        made = [value if slot else None for slot, value in zip(slots, outs)]
        layouts = tuple([None if one is None else (one.shape, one.strides) for one in (*args, *made)])
        rows = tuple([one is None or one.flags.c_contiguous for one in made])
        fits = fits_of(planned, args)
        own = getattr(planned.call, "func", planned.call) is spec.kernel
        steady = spec.steady(args, planned.attributes) if spec.steady is not None and own else None
        self.ops[at] = Seen(taken, masks, layouts, rows, fits, placed, sums, tuple(sources), usual, scalar, steady)


def source_of(planned: PlannedNode, args: Sequence[Any], value: np.ndarray, taken: tuple[int, ...]) -> int:
    """The position of the input in whose memory an output lies, as `placement.kernel_homes` finds it; -1 if in none."""
    root = root_of(value)
    for position in taken + planned.views:
        if position < len(args) and (arg := args[position]) is not None and root_of(arg) is root:
            return position
    return -1


def fits_of(planned: PlannedNode, args: Sequence[Any]) -> tuple:
    """What `decide.ideal` asks of the layouts of an op's inputs."""
    found: list[Any] = []
    for position, _ in planned.candidates:
        array, fits = args[position], planned.fits
        flags = array.flags
        misfit = fits(args, position, planned.attributes) if fits else decide.elementwise_misfit(args, position)
        found += (misfit, flags.writeable, flags.c_contiguous, flags.c_contiguous or repeats(array))
    for grow in planned.grows:
        if (past := args[grow.input]) is not None:
            flags = past.flags
            found += (grow.rows(args, planned.attributes) > 0, flags.writeable, flags.c_contiguous)
            if not flags.c_contiguous:
                found += (repeats(past), decide.rows_are_in_order(past.shape, past.strides, past.itemsize))
    return tuple(found)


def _alike(one: Seen, two: Seen) -> bool:
    same = one.taken == two.taken and one.masks == two.masks and len(one.layouts) == len(two.layouts)
    kinds = [[where and (where[2], where[4]) for where in seen.placed] for seen in (one, two)]
    return same and one[3:5] == two[3:5] and one[7:-1] == two[7:-1] and kinds[0] == kinds[1]
