"""The code of a segment: of each op its call, what stops it there, and its values.

``code(values, facts)`` runs the ops until one stops it. It returns the number of that op and what its kernel returned,
or `NOT_RUN`; after the last op, how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kvviz.engine.plan import PlannedNode
from kvviz.engine.program.watched_run import Seen, fits_of
from kvviz.interrupts import WAITING
from kvviz.memory.storage import address, root_of
from kvviz.trace.schema.events import IN_PLACE, VIEW

NOT_RUN = object()
Code = Callable[[list[Any], list[tuple]], tuple[int, Any]]


class Op(NamedTuple):
    """One op of a segment.

    ``ref``: the storage of its output: a number among the new ones, or the complement of one in ``lent``.
    ``form``: shape, strides, offset in the log. ``loose``: they are another each time.
    ``dies``: slots whose values die; ``freed``: storages that do.
    """

    record: Any
    taken: tuple[int, ...]
    masks: tuple[tuple[int, int], ...]
    how: int
    ref: int
    generation: int
    dtype: Any
    form: tuple
    loose: bool
    dies: tuple[int, ...]
    freed: tuple[int, ...]


def code_of(
    nodes: Sequence[PlannedNode], seen: Sequence[Seen], ops: Sequence[Op], loose: Collection[int]
) -> tuple[Code, dict[int, int]]:
    """The code of these ops, and which of them each of its lines belongs to.

    ``loose``: slots whose values lie otherwise each time.
    """
    names: dict[str, Any] = {"W": WAITING, "N": NOT_RUN, "r": root_of}
    lines, owners = ["def steps(v, f):"], dict[int, int]()
    for at, (planned, one, op) in enumerate(zip(nodes, seen, ops)):
        begun, slot = len(lines), planned.outputs[0]
        given = [f"v[{read}]" if read else "None" for read in planned.inputs]
        together = "(" + "".join(f"{value}, " for value in given) + ")"
        varies = any(read in loose for read in planned.inputs)
        if varies and planned.watches:
            names[f"d{at}"] = partial(_decides_otherwise, planned, one.fits)
            lines.append(f" if d{at}({together}): return {at}, N")
        names[f"k{at}"] = planned.call
        names[f"s{at}"], names[f"t{at}"] = one.layout
        taken = [f"out={given[op.taken[0]]}"] if op.taken else []
        lines.append(f" o = k{at}({', '.join(given + taken)})")
        stops = f"o.shape != s{at}"
        if op.loose:
            names[f"c{at}"] = _loose(planned, one, slot in loose)
            stops = f"c{at}(f, o, {together})"
        elif op.taken:
            stops = f"o is not {given[op.taken[0]]}"
        elif planned.lone_view:
            x = given[planned.views[0]]
            inside = f"(o.base is {x} or o is {x} or r(o) is r({x}))"
            stops += f" or o.strides != t{at} or " + (f"not {inside}" if op.how == VIEW else inside)
        elif varies:
            stops += f" or o.strides != t{at}"
        lines.append(f" if {stops} or W: return {at}, o")
        if slot not in op.dies:
            lines.append(f" v[{slot}] = o")
        if gone := "".join(f"v[{dead}] = " for dead in op.dies if dead != slot):
            lines.append(f" {gone}None")
        owners.update(dict.fromkeys(range(begun + 1, len(lines) + 1), at))
    lines.append(f" return {len(nodes)}, N")
    exec(compile("\n".join(lines), "<step program>", "exec"), names)
    return names["steps"], owners


def _decides_otherwise(planned: PlannedNode, fits: tuple, args: Sequence[Any]) -> bool:
    return fits_of(planned, args) != fits


def _loose(planned: PlannedNode, one: Seen, varies: bool) -> Callable[[list, Any, tuple], bool]:
    """Takes down how an output lies and what the op cost; tells whether it is otherwise than it was watched.

    ``varies``: its shape and strides may be others.
    """
    how, contiguous, cost, attributes = one.placed[2], one.contiguous, planned.cost, planned.attributes
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
        facts.append((out.shape, strides, offset, sums))
        if not varies:
            return wrong or (out.shape, out.strides) != one.layout
        return wrong or out.flags.c_contiguous is not contiguous

    return otherwise
