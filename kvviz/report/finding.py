"""One finding: something that a recording costs, something that endangers its results, or that there is neither."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from kvviz.fixes.fix import Fix
from kvviz.query.grammar import LONGEST
from kvviz.report.faces.steps_table import Table
from kvviz.report.finding_groups import MissedGroup
from kvviz.trace.units import short, size

KINDS = ("broken", "hidden", "unhidden", "warning", "transfer", "cache", "copied", "miss", "peak", "held", "nothing")
"""``"broken"``, ``"hidden"``, ``"unhidden"``: pairs of accesses whose order only the schedule keeps; ``"warning"``,
``"transfer"``: what a producer declared; ``"nothing"``: no gain and no warning."""


class Cure(NamedTuple):
    """A change that was tried.

    ``saves``: bytes that it saves at the steps that it helps, and the number of those steps.
    ``left``: an upper bound of the peak with it.
    ``about``: further remarks.
    """

    fix: Fix
    saves: tuple[int, int] | None = None
    left: int | None = None
    about: str = ""


class Part(NamedTuple):
    """One part of a finding: a kind of op, or a group of storages.

    ``name``: of the kind of op its role.
    ``bytes``: its share of the bytes of the finding.
    ``where``: how often, or the names of the largest.
    ``at``: its steps, ascending; empty for storages.
    ``group``: of a kind of op.
    """

    name: str
    bytes: int = 0
    where: str = ""
    at: tuple[int, ...] = ()
    group: MissedGroup | None = None

    @property
    def fix(self) -> Fix | None:
        """For a kind of op, the fix of the step that spent most; None without one."""
        return None if self.group is None else self.group.fix

    def __str__(self) -> str:
        named = " ".join(part for part in (self.group.op_type if self.group else self.name, self.where) if part)
        return f"{named}: {size(self.bytes)}"


@dataclass(frozen=True)
class Finding:
    """One finding about a trace; ``str()`` of it is its sentence with the change that helps most.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    title : str
        One sentence, without the change.
    bytes : int
        What it costs over the whole recording.
    at : tuple of int
        Its steps, the one that costs most first; only kept steps are among them.
    step : int or None
        The step to look at first.
    selection : tuple or None
        Its subject: ``("node", name)``, the node that ran at ``step``, ``("cache", input)``, or
        ``("storage", number)``.
    where : str
        The place in the model and how often.
    example : str
        The sentence of one of its steps, or another explanation; empty if the title says everything.
    scope : str
        Which runs ``bytes`` and ``at`` are of.
    calm : bool
        Nothing is to be done.
    reasons : tuple of str
        Of missed ops, the codes of the blockers.
    time : float
        Time of its steps, if the trace has times; in the unit of its clock.
    parts : tuple of Part
        Its parts, the largest first.
    """

    kind: str
    title: str
    bytes: int = 0
    at: tuple[int, ...] = ()
    step: int | None = None
    selection: tuple[str, str] | None = None
    where: str = ""
    example: str = ""
    scope: str = "all runs"
    calm: bool = False
    reasons: tuple[str, ...] = ()
    time: float = 0.0
    parts: tuple[Part, ...] = ()
    find: Callable[[], Cure | None] | None = field(default=None, repr=False, compare=False)
    asked: str = field(default="", repr=False, compare=False)

    @property
    def steps(self) -> int:
        """Number of its steps."""
        return len(self.at)

    @cached_property
    def cure(self) -> Cure | None:
        """The one change that removes most of it, searched for on ghosts on first use."""
        return None if self.find is None else self.find()

    @property
    def fix(self) -> Fix | None:
        """That change as a fix that can be applied; None if no single change helps."""
        return None if self.cure is None else self.cure.fix

    @property
    def peak(self) -> int | None:
        """Bytes by which the fix lowers the peak, negative if it raises it; None without a fix."""
        return None if self.fix is None else self.fix.peak

    @property
    def saves(self) -> tuple[int, int] | None:
        """Bytes that the fix saves at the steps that it helps, and the number of those steps."""
        return None if self.cure is None else self.cure.saves

    @property
    def left(self) -> int | None:
        """An upper bound of the peak with the fix."""
        return None if self.cure is None else self.cure.left

    @property
    def query(self) -> str:
        """A query that finds its steps with `Trace.find`; empty if it has none, or too many for one query."""
        return self.asked or query_of_steps(self.at)

    @property
    def change(self) -> str:
        """The fix and what it does: ``"kv_capacity=18 (saves 96 B at this step)"``; empty without one."""
        if self.cure is None:
            return ""
        label = short(self.cure.fix.label, 50)
        if self.saves is None:
            return label if self.left is None else f"{label} → at most {size(self.left)}"
        saved, times = self.saves
        return f"{label} (saves {size(saved)} at {'this step' if times == 1 else f'these {times:,} steps'})"

    @property
    def line(self) -> str:
        """The title with its bytes, for use without a column of bytes."""
        return f"{self.title}: {size(self.bytes)}" if self.kind == "miss" else self.title

    def __str__(self) -> str:
        return self.line + (f"; fix: {self.change}" if self.change else "")


_COLUMNS = (
    ("rank", "", True, 4),
    ("bytes", "bytes", True, 10),
    ("title", "finding", False, 120),
    ("where", "where", False, 60),
    ("steps", "steps", True, 8),
    ("change", "fix", False, 60),
)


def finding_columns(findings: Sequence[Finding]) -> dict[str, list[Any]]:
    """One row a finding, by rank. Their fixes are not searched for."""
    keys = ("kind", "title", "bytes", "where", "scope", "steps", "step", "query")
    return {"rank": list(range(1, len(findings) + 1))} | {key: [getattr(f, key) for f in findings] for key in keys}


class Findings(tuple[Finding, ...]):
    """Findings, what endangers results first, then by cost; displayed as a table."""

    __slots__ = ()

    def table(self) -> Table:
        """The findings as a table; their fixes are searched for."""
        keys = [key for key, *_ in _COLUMNS[1:]]
        rows = [{"rank": rank, **{key: getattr(one, key) for key in keys}} for rank, one in enumerate(self, 1)]
        return Table(rows, _COLUMNS)

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def query_of_steps(steps: Iterable[int]) -> str:
    """A query for steps by number: ``"step:3|7..9"``; empty if it would be longer than a query may be."""
    spans: list[tuple[int, int]] = []
    for step in sorted(set(steps)):
        if spans and spans[-1][1] == step - 1:
            spans[-1] = spans[-1][0], step
        else:
            spans.append((step, step))
    text = "step:" + "|".join(f"{first}..{last}" if first < last else f"{first}" for first, last in spans)
    return text if spans and len(text) <= LONGEST else ""
