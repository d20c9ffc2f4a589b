"""The policy ``onnxruntime``: its CPU allocation planner, carried out with our kernels.

The plan decides where every output will live before anything runs. Planned in-place ops are dispatched in place, an
output with a dead buffer moves into that storage, and every op that only relabels is a view.

Not followed (`tests/engine/ort/test_limits.py` shows each): nodes that no output needs are not run here. Local
functions, and operators that onnxruntime only has as functions, are one frame or one op here, while it expands them
into the graph. It puts Casts around float16 operators that it lacks. Unread outputs die at once here and at the end of
the run there; a Scan writes its slices straight into the result there.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from kvviz.engine.decide import NOTHING, Verdict, elementwise_misfit, overwrite_mask
from kvviz.engine.frame import Frame
from kvviz.engine.plan import ABSENT, PlannedNode
from kvviz.engine.policy import Policy
from kvviz.memory.storage import Arguments, is_array
from kvviz.runtimes.ort import refusal
from kvviz.runtimes.ort.allocation_plan import ALLOCATE_OUTPUT
from kvviz.runtimes.ort.known_types import types_of
from kvviz.runtimes.ort.ort_order import OrtOrder
from kvviz.runtimes.ort.planned_buffers import Notes, homes, remember, take_notes
from kvviz.runtimes.ort.refusal import by_address
from kvviz.runtimes.ort.rewiring import rewired
from kvviz.trace import blockers as b

VERSION = "1.31.1"
_ABOUT = (
    "onnxruntime's CPU allocation planner with graph optimisations off and one thread: its order; in place only where "
    "the kernel says so and nobody else needs the input; dead buffers of the same size are taken over; outputs of the "
    "graph have memory of their own, unless the input that such an op overwrites is donated (one buffer bound to both)"
)


def in_place(frame: Frame, planned: PlannedNode, args: Arguments) -> Verdict:
    """The planned dispatch, after checking again that nothing needs the input: a person may have chosen another
    order."""
    notes: Notes = planned.notes
    remember(frame, planned)
    position = notes.take
    if position < 0:
        if presents := _one_buffer(frame, planned, args):
            return tuple(grow.input for grow in planned.grows), (), {"grown": presents}
        position = notes.bound
        if position < 0 or frame.stores[planned.inputs[position]].origin != "donated":
            return (), _masks(frame, planned, notes), NOTHING
    slot = planned.inputs[position]
    storage = frame.stores[slot]
    if frame.uses[slot] != 1 or storage.holders != 1 or not storage.owned:
        return (), ((position, overwrite_mask(frame, planned, args, position, slot)),), NOTHING
    return (position,), (), _keywords(planned, args, position)


def _one_buffer(frame: Frame, planned: PlannedNode, args: Arguments) -> tuple[Any, ...]:
    """The presents of an op that are outputs of the graph, if each is bound to the buffer of its past; else none."""
    pairs, buffers = by_address(planned.node), planned.notes.buffers
    if not pairs or len(buffers) <= pairs[-1][1]:
        return ()
    for past, present in pairs:
        slot = planned.inputs[past] if past < len(planned.inputs) else ABSENT
        storage, buffer = frame.stores[slot], buffers[present]
        if storage is None or storage.origin != "donated" or buffer is None or buffer.kind != ALLOCATE_OUTPUT:
            return ()
        if frame.uses[slot] != 1 or storage.holders != 1 or not storage.owned:
            return ()
    if any(grow.rows(args, planned.attributes) for grow in planned.grows):
        # It is longer than its past.
        return ()
    return tuple(args[past] for past, _ in pairs)


def _masks(frame: Frame, planned: PlannedNode, notes: Notes) -> tuple[tuple[int, int], ...]:
    """The plan's reasons. The plan counts every input of the graph as the caller's; donated ones get other reasons."""
    return tuple(
        (position, mask & ~b.BORROWED_INPUT or mask)
        if mask & b.BORROWED_INPUT and frame.stores[planned.inputs[position]].origin == "donated"
        else (position, mask)
        for position, mask in notes.masks
    )


def _keywords(planned: PlannedNode, args: Arguments, position: int) -> dict[str, Any]:
    """``out=`` if our kernel can write into its input; otherwise the result is moved there."""
    spec, array = planned.spec, args[position]
    if spec is None or position not in spec.overwrites or "out" not in spec.wants or not is_array(array):
        return NOTHING
    misfit = planned.fits(args, position, planned.attributes) if planned.fits else elementwise_misfit(args, position)
    return NOTHING if misfit or not array.flags.c_contiguous or not array.flags.writeable else {"out": array}


def lend(frame: Frame, planned: PlannedNode) -> frozenset[int]:
    """Bodies take nothing over: their captures and arguments belong to the outer graph."""
    remember(frame, planned)
    return frozenset()


def variant(mem_reuse: bool = True, parallel: bool = False) -> Policy:
    """onnxruntime with session options changed. ``mem_reuse``: ``SessionOptions.enable_mem_reuse``: whether dead
    buffers are reused. It has no effect on what runs in place. ``parallel``: ``ExecutionMode.ORT_PARALLEL``: in the
    main graph every output has memory of its own. Bodies run sequentially there, too, and are planned as usual."""
    return _made(bool(mem_reuse), bool(parallel))


@cache
def _made(mem_reuse: bool, parallel: bool) -> Policy:
    return Policy(
        "onnxruntime" + " in parallel" * parallel + " without mem_reuse" * (not mem_reuse),
        _ABOUT,
        VERSION,
        in_place=in_place,
        schedule=OrtOrder(mem_reuse, parallel),
        captures=lend,
        rewrite=rewired,
        prepare=partial(take_notes, mem_reuse=mem_reuse, parallel=parallel),
        homes=homes,
        copies_state=True,
        rules=refusal.RULES,
        types_of=types_of,
        variants=variant,
    )


onnxruntime = variant()
