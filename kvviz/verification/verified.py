"""What `kvviz.verify` gives: a row for each op, what the optimiser changed, and a report of one screen."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvviz.trace.recording import Trace
from kvviz.trace.units import count, short, size
from kvviz.verification.optimised_nodes import Change, in_words
from kvviz.verification.verified_op import VerifiedOp
from kvviz.verification.verified_page import verified_html
from kvviz.view.export import to_html

_LINES = 12


@dataclass(frozen=True)
class Verification:
    """What a runtime did beside what was predicted; ``str()`` of it is a report.

    Attributes
    ----------
    rows : tuple of VerifiedOp
        Those that differ first, then those that took most time.
    trace : Trace
        The prediction: a dry run of the graph that ran, in the order in which it ran.
    runtime, version : str
        Its name, and its version where that is known.
    unknown : tuple of str
        Nodes of which the runtime reported nothing, or something that could not be assigned; they are in no count.
    changes : tuple of Change
        What the optimiser made of the model's nodes; empty where only the optimised model is known.
    notes : tuple of str
        What limits the comparison.
    """

    rows: tuple[VerifiedOp, ...]
    trace: Trace = field(repr=False, compare=False)
    runtime: str
    version: str = ""
    unknown: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Nodes that were compared."""
        return sum(row.observed is not None for row in self.rows)

    @property
    def agree(self) -> int:
        """Nodes that allocated as predicted."""
        return self.total - len(self.differences)

    @property
    def differences(self) -> tuple[VerifiedOp, ...]:
        """Nodes that did not."""
        return tuple(row for row in self.rows if row.observed is not None and not row.agrees)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "runtime": self.runtime,
            "version": self.version,
            "agree": self.agree,
            "total": self.total,
            "unknown": list(self.unknown),
            "notes": list(self.notes),
            "changes": _as_dicts(self.changes),
            "rows": _as_dicts(self.rows),
        }

    def __str__(self) -> str:
        where = f"{self.runtime} {self.version}".strip()
        compared = [row for row in self.rows if row.observed is not None]
        lines = [f"{self.trace.graph.name}: {self.agree:,} of {count(self.total, 'node')} as predicted, by {where}"]
        if compared:
            # The time of a control node has that of its bodies in it.
            time = sum(row.microseconds for row in self.rows if not row.frame) / 1000
            lines.append(
                f"{size(sum(row.observed or 0 for row in compared))} allocated"
                + (f" in {time:.1f} ms of kernels" if time else "")
                + f"; {sum(not row.observed for row in compared):,} nodes allocated nothing"
            )
        lines += self.notes
        for row in self.differences[:_LINES]:
            lines += [f"  differs: {_line(row)}", f"           {row.cause}"]
        lines += _more(len(self.differences))
        lines += [f"{'µs':>10} {'observed':>10} {'predicted':>10}"]
        for row in self.rows[len(self.differences) :][:_LINES]:
            observed = "" if row.observed is None else size(row.observed)
            lines.append(f"{row.microseconds:>10,.0f} {observed:>10} {size(row.predicted):>10}  {_line(row)}")
        if self.changes:
            kinds = Counter(change.kind for change in self.changes)
            lines.append("what the optimiser changed: " + ", ".join(f"{n:,} {kind}" for kind, n in kinds.items()))
            words = in_words(self.changes)
            lines += [f"  {line}" for line in words[:_LINES]] + _more(len(words))
        if self.unknown:
            lines.append(f"not compared: {count(len(self.unknown), 'node')} without a report of their own")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        where = f"{self.runtime} {self.version}".strip()
        return verified_html(self.trace, self.rows, where, self.changes, self.notes, here=bool(self.version))

    def to_html(self, path: str | os.PathLike[str]) -> str:
        """Write the report with the debugger below it, where the session's times are a lane, as one file; gives it."""
        return to_html(self.trace, path, above=self._repr_html_())


def _as_dicts(values: Sequence[Any]) -> list[dict[str, Any]]:
    return [{name: getattr(value, name) for name in type(value).__slots__} for value in values]


def _more(lines: int) -> list[str]:
    return [f"  and {lines - _LINES:,} more"] if lines > _LINES else []


def _line(row: VerifiedOp) -> str:
    where = f" in {row.frame}" if row.frame else ""
    return f"{row.op} {short(row.node, 48)}{where}: {row.reason}"
