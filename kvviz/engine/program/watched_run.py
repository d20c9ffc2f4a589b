"""What the ops of one run did, as far as a step program can do it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kvviz.engine import decide
from kvviz.engine.frame import Frame
from kvviz.engine.plan import PlannedNode
from kvviz.memory.storage import repeats
from kvviz.ops.registry import is_extension

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides."""


class Seen(NamedTuple):
    """One op of a watched run. ``layouts``: of the inputs and the output; ``fits``: what an input in place hangs on.

    ``placed``: the output, as the log has it. ``sums``: bytes allocated, copied, written.
    """

    taken: tuple[int, ...]
    masks: tuple[tuple[int, int], ...]
    layouts: tuple[Layout | None, ...]
    contiguous: bool
    fits: tuple
    placed: tuple
    sums: tuple[int, int, int]

    @property
    def layout(self) -> Layout:
        """Of the output."""
        found = self.layouts[-1]
        assert found is not None
        return found


class Watch:
    """What the ops of the main frame did in one run, by position; of unusual ones nothing.

    ``starts``: of the segments that are known so far, by position: what they read, how that was when they began (see
      `Segment.look`), and how often each slot was still to be read.
    """

    def __init__(self) -> None:
        self.ops: dict[int, Seen] = {}
        self.starts: dict[int, tuple[tuple[int, ...], tuple[list[Any], list[Layout]] | None, list[int]]] = {}
        self._upto = 0  # all ops before it have run

    def add(
        self,
        frame: Frame,
        planned: PlannedNode,
        args: Sequence[Any],
        out: np.ndarray,
        verdict: tuple[Any, Any],
        placed: tuple,
        sums: tuple[int, int, int],
    ) -> None:
        """Take down an op that has run in plan order.

        What writes rows, may append, or is computed by the caller's kernel stays an ordinary step.
        """
        spec = planned.spec
        if spec is None or spec.written is not None or spec.kernel is None or is_extension(spec.kernel):
            return
        at = planned.position
        self._upto = frame.done.find(0, self._upto)
        if self._upto != at or frame.done.find(1, at) >= 0:  # not in plan order
            return
        if not all(arg is None or type(arg) is np.ndarray for arg in args):
            return
        pasts = [grow.input for grow in planned.grows if args[grow.input] is not None]
        if pasts and (verdict[0] or any(frame.stores[planned.inputs[past]].room is not None for past in pasts)):
            return
        layouts = tuple([None if arg is None else (arg.shape, arg.strides) for arg in (*args, out)])
        taken, masks = verdict
        fits = fits_of(planned, args)
        self.ops[at] = Seen(taken, masks, layouts, out.flags.c_contiguous, fits, placed[0], sums)


def fits_of(planned: PlannedNode, args: Sequence[Any]) -> tuple:
    """What `decide.ideal` asks of the layouts of an op's inputs."""
    found: list[Any] = []
    for position, _ in planned.candidates:
        array, fits = args[position], planned.fits
        flags = array.flags
        misfit = fits(args, position, planned.attributes) if fits else decide.elementwise_misfit(args, position)
        found += (misfit, flags.writeable, flags.c_contiguous, flags.c_contiguous or repeats(array))
    found += [grow.rows(args, planned.attributes) > 0 for grow in planned.grows if args[grow.input] is not None]
    return tuple(found)
