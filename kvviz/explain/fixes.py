"""Fixes: what to change so that an op that was refused runs in place, found without running anything.

Invariant: a fix that is offered works. Where that cannot be told from the trace, there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvviz.engine.replay import is_random
from kvviz.errors import KvvizError
from kvviz.explain.changes import Change, GrowAfter, RunFirst, arguments
from kvviz.explain.fix_wording import KINDS, code_of, label_of, sentence_of
from kvviz.explain.reordering import check_order
from kvviz.explain.sole_use import Unfixable
from kvviz.explain.under_ideal import appends_rows, as_refused, under_ideal
from kvviz.explain.under_onnxruntime import under_onnxruntime
from kvviz.explain.under_rten import under_rten
from kvviz.explain.units import short
from kvviz.trace.blockers import Blocker
from kvviz.trace.element_types import nbytes
from kvviz.trace.records import Branch
from kvviz.trace.value_index import Index, index_of


@dataclass(frozen=True, slots=True)
class Fix:
    """A change after which an op runs in place, and nothing else about the results is different.

    Attributes
    ----------
    kind : str
        ``"run_first"``, ``"donate"``, ``"by_value"``, ``"reserve"``, ``"capacity"``, ``"grow_after"``, ``"drop"``,
        ``"swap"``, ``"fix_dims"``, ``"policy"`` or ``"reorder"``: of the first change.
    label : str
        A few words.
    sentence : str
        What it does, and what it would save.
    code : str
        The same change in the exporter or in the calling code: one to three lines of Python.
    changes : tuple of Change
    saves : int
        Bytes that this step then does not spend, less those that a reader which is to run first has to spend in
        exchange. What other steps spend then is not counted: an op may need the memory that this one leaves.
    """

    kind: str
    label: str
    sentence: str
    code: str
    changes: tuple[Change, ...]
    trace: Any = field(repr=False, compare=False)
    picked: bool = field(default=False, repr=False)
    saves: int = field(default=0, compare=False)

    def apply(self) -> Any:
        """Run again with the change.

        Returns
        -------
        Trace
            Of the whole run or decode.

        Raises
        ------
        KvvizError
            If the trace was loaded from a file.
        ReplayError
            If the inputs were not kept.
        """
        if self.trace.recipe is None:
            raise KvvizError(
                "a trace that was loaded from a file cannot be run again; record it again, then apply the fix"
            )
        recipe = self.trace.recipe
        after = recipe.again(**arguments(self.trace, self.changes, self.picked, recipe.options["policy"]))
        after.branch = Branch(self.label, 0)
        return after


def fixer(trace: Any, step: int, blocker: Blocker) -> Fix | None:
    """The fix that removes a blocker of a step, together with all others of its input; None where there is none."""
    return fix_for(index_of(trace), step, blocker.position) if blocker.position >= 0 else None


def fix_for(index: Index, step: int, position: int) -> Fix | None:
    """The fix after which a step can take over one of its inputs.

    ``position``: of the input.
    """
    known: dict[tuple[int, int], Fix | None] = index.notes.setdefault("fixes", {})
    if not is_repeatable(index, step) or index.trace.graph.spelled is not None:
        return None
    if (step, position) not in known:
        known[step, position] = _find(index, step, position)
    return known[step, position]


def _find(index: Index, step: int, position: int) -> Fix | None:
    row = index.rows[step]
    mask = dict(row.masks).get(position, 0)
    if not mask:
        return None
    # Paths of bodies are known once the main graph was looked at.
    try:
        picked = _is_picked(index, index.path(row.frame))
        changes = _rules(index.trace)(index, step, position, mask)
        check_order(index, step, position, changes, picked)
    except Unfixable:
        return None
    return _fix(index, step, position, changes, picked) if changes else None


def _fix(index: Index, step: int, position: int, changes: tuple[Change, ...], picked: bool) -> Fix:
    trace, row = index.trace, index.rows[step]
    node = row.op.node
    appends = appends_rows(index, step, position)
    saved = _saved(index, step, position)
    lost, exchange = _in_exchange(index, step, position, changes)
    told = " Together the two save nothing." if exchange and lost >= saved else ""
    told += _stays(trace, changes)
    return Fix(
        KINDS[type(changes[0])],
        label_of(trace.graph, changes),
        sentence_of(trace.graph, changes, node, node.inputs[position], appends, saved) + exchange + told,
        code_of(trace, changes, picked),
        changes,
        trace,
        picked,
        saved - lost,
    )


def _saved(index: Index, step: int, position: int) -> int:
    """Bytes that a step does not spend once it takes over an input: new memory, or what it would copy."""
    row = index.rows[step]
    saved = max(row.allocated, row.copied)
    presents = [row.outs[grow.output] for grow in row.op.grows if grow.input == position]
    if len(row.op.grows) > 1 and presents and presents[0] is not None and presents[0].shape is not None:
        # The others get no room by this.
        return min(saved, nbytes(presents[0].shape, presents[0].dtype))
    # Cut or converted where they lie, elements are moved all the same.
    moved = index.trace.policy.places_outputs and row.op.node.op_type in ("Slice", "Cast", "CastLike")
    return row.allocated if moved else saved


def _rules(trace: Any) -> Callable[[Index, int, int, int], tuple[Change, ...]]:
    """By whose rules a fix is found."""
    found = _RULES.get(trace.policy.base)
    if found is None:
        raise Unfixable("its rules are not known here")
    return found


_RULES: dict[str, Callable[[Index, int, int, int], tuple[Change, ...]]] = {
    "ideal": as_refused,
    "never": under_ideal,
    "rten": under_rten,
    "onnxruntime": under_onnxruntime,
}


def _stays(trace: Any, changes: tuple[Change, ...]) -> str:
    """What an earlier ``kv_capacity`` means where caches are moved when they are full: fewer moves."""
    capacity = trace.options.kv_capacity
    if capacity is None or not any(isinstance(change, GrowAfter) for change in changes):
        return ""
    return f" kv_capacity={capacity} stays: a larger buffer then has at least so many rows, and is moved less often."


def _in_exchange(index: Index, step: int, position: int, changes: tuple[Change, ...]) -> tuple[int, str]:
    """What is lost where a reader that is to run first was the one to take over that memory: bytes, and a sentence."""
    row = index.rows[step]
    storage = index.places[row.frame, row.op.node.inputs[position]].storage
    lost, told = 0, ""
    key = index.frames[row.frame].program.graph.path
    for change in changes:
        if isinstance(change, RunFirst) and change.graph == key:
            later = index.rows[index.step_of[row.frame, change.reader]]
            names = [later.op.node.inputs[i] for i in later.taken]
            if any(index.places[row.frame, name].storage == storage for name in names):
                told = (
                    told
                    or f" In exchange {later.op.node.op_type} {short(later.op.node.name)}, which took it over, cannot."
                )
                lost += sum(
                    nbytes(out.shape, out.dtype) for out in later.outs if out is not None and out.storage == storage
                )
    return lost, told


def is_repeatable(index: Index, step: int) -> bool:
    """Whether the run of a step was finished, and another run would do the same and give the same results."""
    return _is_over(index, step) and not _has_chance(index) and _is_alike(index)


def _is_alike(index: Index) -> bool:
    """Whether the inputs of another run lie as those of this one did."""
    given = index.trace.options.given
    return given is None or given.alike


def _is_over(index: Index, step: int) -> bool:
    """Whether the run of a step was finished, so that all who read its values are known."""
    trace, run = index.trace, index.frames[index.rows[step].frame].run
    return run + 1 < len(trace.runs) or (trace.live is None and not trace.interrupted)


def _has_chance(index: Index) -> bool:
    """Whether the model draws random numbers, so that no two runs agree."""
    if "chance" not in index.notes:
        index.notes["chance"] = any(is_random(row) for row in index.rows)
    return bool(index.notes["chance"])


def _is_picked(index: Index, path: list[int]) -> bool:
    """Whether these frames ran in an order that a person chose; `Unfixable` if it was another one each time."""
    if all(_order(index, frame) == _plan(index, frame) for frame in path):
        return False
    first = {frame.program.graph: number for number, frame in reversed(list(enumerate(index.frames)))}
    if any(_order(index, frame) != _order(index, first[index.frames[frame].program.graph]) for frame in path):
        raise Unfixable("the runs had different orders")
    return True


def _plan(index: Index, frame: int) -> list[int]:
    return [planned.node.index for planned in index.frames[frame].program.order]


def _order(index: Index, frame: int) -> list[int]:
    """Nodes of a frame in the order in which they ran."""
    orders: dict[int, list[int]] = index.notes.get("orders", {})
    if not orders:
        orders = index.notes["orders"] = {number: [] for number in range(len(index.frames))}
        for row in index.rows:
            orders[row.frame].append(row.op.node.index)
    return orders[frame]
