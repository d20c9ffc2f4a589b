"""The code of a segment: of each op its call, what stops it there, and its values.

``code(frame, facts)`` runs the ops until one stops it. It returns the number of that op and what its kernel returned,
or `NOT_RUN`; after the last op, how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kvviz.engine import decide
from kvviz.engine.frame import Frame
from kvviz.engine.plan import PlannedNode
from kvviz.engine.program.watched_run import Seen, fits_of, source_of
from kvviz.interrupts import WAITING
from kvviz.memory.storage import address, root_of
from kvviz.trace.schema.events import APPEND, IN_PLACE, NEW, VIEW

NOT_RUN = object()
Code = Callable[[Frame, list[tuple]], tuple[int, Any]]


class Out(NamedTuple):
    """One output of an op. ``ref``: its storage: a number among the new ones, or the complement of one in ``lent``.
    ``form``: shape, strides, offset in the log."""

    slot: int
    how: int
    ref: int
    generation: int
    dtype: Any
    form: tuple


class Op(NamedTuple):
    """One op of a segment. ``outs``: its outputs, None for an absent one. ``loose``: their forms are others each time.
    ``dies``: slots whose values die; ``freed``: storages that do."""

    record: Any
    taken: tuple[int, ...]
    masks: tuple[tuple[int, int], ...]
    outs: tuple[Out | None, ...]
    loose: bool
    dies: tuple[int, ...]
    freed: tuple[int, ...]


def code_of(
    nodes: Sequence[PlannedNode], seen: Sequence[Seen], ops: Sequence[Op], loose: Collection[int]
) -> tuple[Code, dict[int, int]]:
    """The code of these ops, and which of them each of its lines belongs to. ``loose``: slots whose values lie
    otherwise each time."""
    names: dict[str, Any] = {"W": WAITING, "N": NOT_RUN, "r": root_of}
    lines, owners = ["def steps(frame, f):", " v = frame.vals"], dict[int, int]()
    for at, (planned, one, op) in enumerate(zip(nodes, seen, ops)):
        begun, slots = len(lines), planned.outputs
        given = [f"v[{read}]" if read else "None" for read in planned.inputs]
        together = "(" + "".join(f"{value}, " for value in given) + ")"
        varies = any(read in loose for read in planned.inputs)
        if varies and planned.watches:
            names[f"d{at}"] = partial(_decides_otherwise, planned, one.fits)
            lines.append(f" if d{at}({together}): return {at}, N")
        names[f"k{at}"] = planned.call
        keywords = []
        if one.taken and one.usual:
            past = given[one.taken[0]]
            keywords.append(f"out={past}" if planned.candidates else f"grown=({past},)")
        elif one.taken:
            names[f"g{at}"] = partial(_presents, planned, one)
            lines += [f" g = g{at}(frame, {together})", f" if g is None: return {at}, N"]
            keywords.append("grown=g")
        lines.append(f" o = k{at}({', '.join(given + keywords)})")
        if not one.usual:
            names[f"c{at}"] = _several(planned, one, op, loose)
            stops = f"c{at}(frame, f, o, {together}, {'g' if one.taken else ()})"
        elif op.loose:
            names[f"c{at}"] = _loose(planned, one, slots[0] in loose)
            stops = f"c{at}(f, o, {together})"
        else:
            names[f"s{at}"], names[f"t{at}"] = one.made[0] or ((), ())
            stops = f"o.shape != s{at}"
            if op.taken:
                stops += f" or o is not {given[op.taken[0]]}"
            elif planned.lone_view:
                x = given[planned.views[0]]
                inside = f"(o.base is {x} or o is {x} or r(o) is r({x}))"
                stops += f" or o.strides != t{at} or " + (f"not {inside}" if one.sources[0] >= 0 else inside)
            elif varies:
                stops += f" or o.strides != t{at}"
        lines.append(f" if {stops} or W: return {at}, o")
        for number, slot in enumerate(slots):
            if slot and slot not in op.dies:
                lines.append(f" v[{slot}] = o" + f"[{number}]" * (len(slots) > 1))
        if gone := "".join(f"v[{dead}] = " for dead in op.dies if dead not in slots):
            lines.append(f" {gone}None")
        owners.update(dict.fromkeys(range(begun + 1, len(lines) + 1), at))
    lines.append(f" return {len(nodes)}, N")
    exec(compile("\n".join(lines), "<step program>", "exec"), names)
    return names["steps"], owners


def _decides_otherwise(planned: PlannedNode, fits: tuple, args: Sequence[Any]) -> bool:
    return fits_of(planned, args) != fits


def _loose(planned: PlannedNode, one: Seen, varies: bool) -> Callable[[list, Any, tuple], bool]:
    """Takes down how an output lies and what the op cost; tells whether it is otherwise than it was watched.
    ``varies``: its shape and strides may be others."""
    how, contiguous, cost, attributes = one.placed[0][2], one.contiguous[0], planned.cost, planned.attributes
    moves, slides = planned.moves, planned.slides
    source = (one.taken or planned.views or (0,))[0]

    def otherwise(facts: list, out: np.ndarray, args: tuple) -> bool:
        x: Any = args[source] if args else None
        nbytes = out.nbytes
        strides: tuple[int, ...] | None = None
        offset: int | None = 0
        sums = 0, 0, 0
        if how == VIEW:
            root = root_of(x)
            wrong, strides = out is not x and root_of(out) is not root, out.strides
            offset = address(out) - address(root) if slides and nbytes else None
        elif how == IN_PLACE:
            wrong, strides, offset = out is not x, None if contiguous else out.strides, None
            sums = 0, 0, nbytes if cost is None else cost(args, (out,), True, attributes)[0]
        else:
            wrong = planned.lone_view and root_of(out) is root_of(x)
            written, copied = (nbytes, nbytes * moves) if cost is None else cost(args, (out,), False, attributes)
            sums = nbytes, copied, written
        facts.append((((out.shape, strides, offset),), sums, (nbytes,) if how == NEW else ()))
        if not varies:
            return wrong or (out.shape, out.strides) != one.made[0]
        return wrong or out.flags.c_contiguous is not contiguous

    return otherwise


def _presents(planned: PlannedNode, one: Seen, frame: Frame, args: Sequence[Any]) -> tuple | None:
    """What the pasts of an op grow to; None if another choice of them may grow than was watched."""
    taken, masks, how = decide.grow(frame, planned, args)
    return how["grown"] if taken == one.taken and masks == one.masks else None


def _several(planned: PlannedNode, one: Seen, op: Op, loose: Collection[int]) -> Callable[..., bool]:
    """As `_loose`, for an op with several outputs or one that appends; notes how far a block is filled."""
    cost, attributes, count, taken = planned.cost, planned.attributes, len(planned.outputs), one.taken
    presents = {grow.output: grow.input for grow in planned.grows}
    parts = [
        (at, out.how, one.sources[at], one.made[at], one.contiguous[at], out.slot in loose)
        for at, out in enumerate(op.outs)
        if out is not None
    ]

    def otherwise(frame: Frame, facts: list, made: Any, args: tuple, grown: Sequence[Any]) -> bool:
        outs = (made,) if count == 1 else made
        if type(outs) is not tuple or len(outs) < count:
            return True
        forms: list[tuple | None] = [None] * count
        capacities, stored = [], 0
        for at, how, source, layout, contiguous, varies in parts:
            out = outs[at]
            if type(out) is not np.ndarray or source_of(planned, args, out, taken) != source:
                return True
            rows = out.flags.c_contiguous
            if rows is not contiguous if varies else (out.shape, out.strides) != layout:
                return True
            root = root_of(out)
            if how == NEW:
                # Otherwise `placement` copies it.
                if not rows or root.nbytes != out.nbytes or id(root) in [id(root_of(a)) for a in args if a is not None]:
                    return True
                capacities.append(out.nbytes)
                stored += out.nbytes
                forms[at] = out.shape, None, 0
                continue
            if how == APPEND:
                if not any(out is present for present in grown):
                    return True
                stored += out.nbytes - args[source].nbytes
            if op.loose:
                forms[at] = out.shape, out.strides, address(out) - address(root) if out.size else 0
        for at, past in presents.items():
            if past in taken:
                room = frame.stores[planned.inputs[past]].room
                room.filled = outs[at].shape[room.axis]
        if op.loose:
            written, copied = stored, stored * planned.moves
            if cost is not None:
                written, copied = cost(args, outs, bool(taken), attributes)
            facts.append((tuple(forms), (sum(capacities), copied, written), tuple(capacities)))
        return False

    return otherwise
