"""The code of a segment: of each op its call, what stops it there, and its values.

``code(frame, facts)`` runs the ops until one stops it. It returns the number of that op and what its kernel returned,
or `NOT_RUN`; after the last op, how many there are. Of ops whose outputs lie otherwise each time it adds to ``facts``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import accumulate, pairwise
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


class Facts(NamedTuple):
    """What loose ops say while they run.

    ``forms``: of each output that is not absent: shape, strides, offset as a column of the log has it.
    ``sums``: of each op, one after the other: bytes allocated, copied, written. ``sizes``: of the storages they made.
    """

    forms: list[tuple[tuple[int, ...], tuple[int, ...] | None, int]]
    sums: list[int]
    sizes: list[int]


Code = Callable[[Frame, Facts], tuple[int, Any]]


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
    nodes: Sequence[PlannedNode], seen: Sequence[Seen], ops: Sequence[Op], loose: Collection[int], fixed: frozenset[int]
) -> tuple[Code, dict[int, int]]:
    """The code of these ops, and which of them each of its lines belongs to.

    ``loose``: slots whose values lie otherwise each time. ``fixed``: those that have the same value each time.
    """
    names: dict[str, Any] = {
        "W": WAITING,
        "N": NOT_RUN,
        "r": root_of,
        "a": address,
        "A": np.ndarray,
        "asarray": np.asarray,
    }
    lines, owners = ["def steps(frame, f):", " v = frame.vals", " F, S, C = f"], dict[int, int]()
    for at, (planned, one, op) in enumerate(zip(nodes, seen, ops)):
        begun, slots = len(lines), planned.outputs
        given = [f"v[{read}]" if read else "None" for read in planned.inputs]
        together = "(" + "".join(f"{value}, " for value in given) + ")"
        varies = any(read in loose for read in planned.inputs)
        same = not varies and not op.loose and fixed.issuperset(planned.inputs[1:])
        view = _same_view(planned, one, at, names) if same else ""
        appends = not one.usual and bool(one.taken)
        alone = one.usual or (appends and len(slots) == 1 and planned.cost is not None)
        if varies and planned.watches and not (appends and not planned.candidates):
            names[f"d{at}"] = partial(fits_of, planned)
            names[f"e{at}"] = one.fits
            lines.append(f" if d{at}({together}) != e{at}: return {at}, N")
        steady = None if varies else one.steady
        names[f"k{at}"] = steady or planned.call
        keywords = []
        if one.taken and not appends:
            past = given[one.taken[0]]
            keywords.append(past if steady else f"out={past}" if planned.candidates else f"grown=({past},)")
        elif appends:
            names[f"g{at}"] = partial(_presents, planned, one)
            lines += [f" g = g{at}(frame, {together})", f" if g is None: return {at}, N"]
            keywords.append("grown=g")
        call = f"k{at}({', '.join(given + keywords)})"
        made = view.format(x=given[0]) if view else f"asarray({call})" if one.scalar else call
        lines.append(f" o = {made}")
        if view:
            stops = "W"
        elif not alone:
            names[f"c{at}"] = _several(planned, one, op, loose)
            stops = f"c{at}(frame, f, o, {together}, {'g' if appends else ()}) or W"
        else:
            names[f"s{at}"], names[f"t{at}"] = one.made[0] or ((), ())
            x = "g[0]" if appends else given[(op.taken or planned.views or (0,))[0]] if given else "None"
            free = slots[0] in loose
            stops = f"o.flags.c_contiguous is not {one.contiguous[0]}" if free else f"o.shape != s{at}"
            if free or not names[f"s{at}"]:
                # Without axes it may be a scalar.
                stops = f"type(o) is not A or {stops}"
            if not free and (appends or (not op.taken and (planned.lone_view or varies))):
                stops += f" or o.strides != t{at}"
            if op.taken:
                stops += f" or o is not {x}"
            elif planned.lone_view:
                inside = f"(o.base is {x} or o is {x} or r(o) is r({x}))"
                stops += " or " + (f"not {inside}" if one.sources[0] >= 0 else inside)
            stops += " or W"
            if op.loose:
                names[f"q{at}"] = planned.cost
                names[f"p{at}"] = planned.attributes
                lines += _says(planned, one, f"q{at}({together}, (o,), {bool(op.taken)}, p{at})", x)
        lines.append(f" if {stops}: return {at}, o")
        if alone and appends:
            lines.append(f" room = frame.stores[{planned.inputs[one.taken[0]]}].room")
            lines.append(" room.filled = o.shape[room.axis]")
        for number, slot in enumerate(slots):
            if slot and slot not in op.dies:
                lines.append(f" v[{slot}] = o" + f"[{number}]" * (len(slots) > 1))
        if gone := "".join(f"v[{dead}] = " for dead in op.dies if dead not in slots):
            lines.append(f" {gone}None")
        owners.update(dict.fromkeys(range(begun + 1, len(lines) + 1), at))
    lines.append(f" return {len(nodes)}, N")
    exec(compile("\n".join(lines), "<step program>", "exec"), names)
    return names["steps"], owners


_RESHAPES = {"Flatten", "Reshape", "Squeeze", "Unsqueeze"}


def _same_view(planned: PlannedNode, one: Seen, at: int, names: dict[str, Any]) -> str:
    """What gives the views that an op makes of an input that lies where it lay; empty for other ops."""
    node, attributes = planned.node, planned.attributes
    made = [layout for layout in one.made if layout is not None]
    if node.domain or len(made) < len(one.made):
        return ""
    if node.op_type in _RESHAPES:
        names[f"s{at}"] = made[0][0]
        return f"{{x}}.reshape(s{at})"
    if node.op_type == "Transpose":
        names[f"s{at}"] = attributes.get("perm")
        return f"{{x}}.transpose(s{at})"
    if node.op_type != "Split":
        return ""
    axis = attributes.get("axis", 0) % len(made[0][0])
    ends = accumulate((shape[axis] for shape, _ in made), initial=0)
    names[f"s{at}"] = [(slice(None),) * axis + (slice(*pair),) for pair in pairwise(ends)]
    return "(" + "".join(f"{{x}}[s{at}[{number}]], " for number in range(len(made))) + ")"


def _says(planned: PlannedNode, one: Seen, cost: str, x: str) -> list[str]:
    """Lines that add to the facts what a lone output ``o`` is like and what its op cost. ``x``: what it was made of."""
    how = one.placed[0][2]
    strides = "None" if how == NEW or (how == IN_PLACE and one.contiguous[0]) else "o.strides"
    offset = "0" if how in (NEW, APPEND) else "-1"
    if how == VIEW and planned.slides:
        offset = f"a(o) - a(r({x})) if o.nbytes else -1"
    lines = [f" F.append((o.shape, {strides}, {offset}))"]
    if how == VIEW:
        return [*lines, " S += 0, 0, 0"]
    lines.append(" n = o.nbytes")
    lines.append(f" w, m = {cost if planned.cost else f'n, n * {int(planned.moves)}'}")
    return [*lines, " S += n, m, w", " C.append(n)"] if how == NEW else [*lines, " S += 0, 0, w"]


def _presents(planned: PlannedNode, one: Seen, frame: Frame, args: Sequence[Any]) -> tuple | None:
    """What the pasts of an op grow to; None if another choice of them may grow than was watched, or by no row."""
    taken, masks, how = decide.grow(frame, planned, args)
    if taken != one.taken or masks != one.masks:
        return None
    presents: tuple = how["grown"]
    return None if any(args[grow.input] is present for grow, present in zip(planned.grows, presents)) else presents


def _several(planned: PlannedNode, one: Seen, op: Op, loose: Collection[int]) -> Callable[..., bool]:
    """Tells whether outputs are otherwise than they were watched, of an op with several or one that appends; adds to
    the facts, and notes how far a block is filled."""
    cost, attributes, count, taken = planned.cost, planned.attributes, len(planned.outputs), one.taken
    presents = {grow.output: (number, grow.input) for number, grow in enumerate(planned.grows)}
    parts = [
        (at, out.how, one.sources[at], one.made[at], one.contiguous[at], out.slot in loose)
        for at, out in enumerate(op.outs)
        if out is not None
    ]

    def otherwise(frame: Frame, facts: Facts, made: Any, args: tuple, grown: Sequence[Any]) -> bool:
        outs = (made,) if count == 1 else made
        if type(outs) is not tuple or len(outs) < count:
            return True
        forms, capacities, stored, lent = list[Any](), list[int](), 0, None
        for at, how, source, layout, contiguous, varies in parts:
            out = outs[at]
            if type(out) is not np.ndarray:
                return True
            rows = out.flags.c_contiguous
            if rows is not contiguous if varies else (out.shape, out.strides) != layout:
                return True
            if how == APPEND:
                if out is not grown[presents[at][0]]:
                    return True
                stored += out.nbytes - args[source].nbytes
                # It begins where its block does.
                forms.append((out.shape, out.strides, 0))
                continue
            root = root_of(out)
            if how == NEW:
                lent = lent or [id(root_of(arg)) for arg in args if arg is not None]
                # Otherwise `placement` copies it.
                if not rows or root.nbytes != out.nbytes or id(root) in lent:
                    return True
                capacities.append(out.nbytes)
                stored += out.nbytes
                forms.append((out.shape, None, 0))
            elif source_of(planned, args, out, taken) != source:
                return True
            else:
                forms.append((out.shape, out.strides, address(out) - address(root) if op.loose and out.size else 0))
        for at, (_, past) in presents.items():
            if past in taken:
                room = frame.stores[planned.inputs[past]].room
                room.filled = outs[at].shape[room.axis]
        if op.loose:
            written, copied = stored, stored * planned.moves
            if cost is not None:
                written, copied = cost(args, outs, bool(taken), attributes)
            facts.forms.extend(forms)
            facts.sums.extend((sum(capacities), copied, written))
            facts.sizes.extend(capacities)
        return False

    return otherwise
