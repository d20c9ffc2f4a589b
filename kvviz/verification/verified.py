"""What `kvviz.verify` gives: a row for each op and what the optimiser changed, as text of one screen and as a page."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import chain
from typing import Any

from kvviz.report.palette import DARK, STATES
from kvviz.report.report_html import LEFT, STYLE
from kvviz.trace.recording import Trace
from kvviz.trace.roles import place_of
from kvviz.trace.units import count, short, size
from kvviz.verification.optimised_nodes import Change, in_words
from kvviz.verification.roofline import work_of
from kvviz.view.export import to_html

_LINES = 12
_KINDS, _SENTENCES = 14, 8
_HUES = (STATES["running"], STATES["in_place"], STATES["missed"])
_GREY = "#8a929c"
# A page alone has no notebook's theme around it.
_ALONE = f"""<style>@media (prefers-color-scheme: dark) {{ .kvviz-report {{
--jp-ui-font-color1:{DARK.ink};--jp-ui-font-color2:{DARK.soft};--jp-layout-color1:{DARK.pane};
--jp-layout-color2:{DARK.ground};--jp-border-color1:{DARK.soft};--jp-border-color2:{DARK.line} }} }}</style>"""
_OWN = """
.kvviz-report .big{font-size:20px;font-weight:600;margin-right:10px}
.kvviz-report svg{display:block;width:100%;height:26px}
.kvviz-report .wide{overflow-x:auto}
.kvviz-report .wide table{min-width:720px}
"""


@dataclass(frozen=True, slots=True)
class VerifiedOp:
    """One node beside its prediction; of a node that ran several times, the time in which it took most.

    Attributes
    ----------
    node, op : str
        Its name and operator.
    frame : str
        The body that it is in, such as ``"loop[body:0]"``; empty for the main graph.
    step, steps : int, tuple of int
        The first and all of its steps in ``Verification.trace``.
    predicted : int
        Bytes that it allocates by the rules of the policy.
    observed : int or None
        Bytes that it allocated; onnxruntime's arena rounds each output up to 256 B. None where that was not recorded.
    microseconds : float
        Time inside its kernel, of all times that it ran.
    reason : str
        What it does to memory by the policy, and why.
    agrees : bool
        Whether both are the same, but for the arena's rounding.
    cause : str
        What is known of why they differ; empty where they agree.
    """

    node: str
    op: str
    frame: str
    step: int
    steps: tuple[int, ...]
    predicted: int
    observed: int | None
    microseconds: float
    reason: str
    agrees: bool
    cause: str = ""


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
    def where(self) -> str:
        """The runtime, with its version."""
        return f"{self.runtime} {self.version}".strip()

    @property
    def compared(self) -> tuple[VerifiedOp, ...]:
        """Rows of nodes that the runtime reported something of."""
        return tuple(row for row in self.rows if row.observed is not None)

    @property
    def total(self) -> int:
        """Nodes that were compared."""
        return len(self.compared)

    @property
    def agree(self) -> int:
        """Nodes that allocated as predicted."""
        return self.total - len(self.differences)

    @property
    def differences(self) -> tuple[VerifiedOp, ...]:
        """Nodes that did not."""
        return tuple(row for row in self.compared if not row.agrees)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {name: getattr(self, name) for name in ("runtime", "version", "agree", "total")}
        lists = {name: list(getattr(self, name)) for name in ("unknown", "notes")}
        return {**plain, **lists, **{name: list(map(asdict, getattr(self, name))) for name in ("changes", "rows")}}

    def __str__(self) -> str:
        name = self.trace.graph.name
        lines = [f"{name}: {self.agree:,} of {count(self.total, 'node')} as predicted, by {self.where}"]
        if compared := self.compared:
            # The time of a control node has that of its bodies in it.
            time = sum(row.microseconds for row in self.rows if not row.frame) / 1000
            lines.append(
                f"{size(sum(row.observed or 0 for row in compared))} allocated"
                + (f" in {time:.1f} ms of kernels" if time else "")
                + f"; {sum(not row.observed for row in compared):,} nodes allocated nothing"
            )
        lines += self.notes
        different = [f"differs: {_line(row)}\n{'':11}{row.cause}" for row in self.differences]
        lines += [f"  {line}" for line in _first(different, _LINES)]
        lines += [f"{'µs':>10} {'observed':>10} {'predicted':>10}"]
        for row in self.rows[len(self.differences) :][:_LINES]:
            observed = "" if row.observed is None else size(row.observed)
            lines.append(f"{row.microseconds:>10,.0f} {observed:>10} {size(row.predicted):>10}  {_line(row)}")
        if self.changes:
            kinds = Counter(change.kind for change in self.changes)
            lines.append("what the optimiser changed: " + ", ".join(f"{n:,} {kind}" for kind, n in kinds.items()))
            lines += [f"  {line}" for line in _first(in_words(self.changes), _LINES)]
        if self.unknown:
            lines.append(f"not compared: {count(len(self.unknown), 'node')} without a report of their own")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The report in the look of the report on a trace: where the time goes, what is copied, what was changed."""
        changed = f"<h4>What the optimiser changed</h4>{_paragraphs(_first(in_words(self.changes), _SENTENCES))}"
        parts = [_head(self), _time(self.rows), _table(self), changed if self.changes else "", _different(self)]
        return f'<div class="kvviz-report"><style>{STYLE}{_OWN}</style>{"".join(parts)}</div>'

    def to_html(self, path: str | os.PathLike[str]) -> str:
        """Write the report with the debugger below it, where the session's times are a lane, as one file; gives it."""
        return to_html(self.trace, path, above=_ALONE + self._repr_html_())


def _first(lines: Sequence[str], most: int) -> list[str]:
    return [*lines[:most], *([f"and {len(lines) - most:,} more"] if len(lines) > most else [])]


def _line(row: VerifiedOp) -> str:
    where = f" in {row.frame}" if row.frame else ""
    return f"{row.op} {short(row.node, 48)}{where}: {row.reason}"


# -- page -------------------------------------------------------------------------------------------------------------


def _head(found: Verification) -> str:
    hue, name = STATES["missed" if found.differences else "in_place"].light, short(found.trace.graph.name)
    words = "".join(f'<p class="soft">{escape(note)}</p>' for note in found.notes)
    return (
        f'<p><span class="big" style="color:{hue}">{found.agree:,} of {found.total:,}</span>'
        f"<b>allocations are as predicted</b> · {escape(found.where)} · {escape(name)}</p>{words}"
    )


def _time(ops: Sequence[VerifiedOp]) -> str:
    """A strip of the run, each op as wide as the time that it took, in the order of running."""
    rows = sorted((row for row in ops if not row.frame and row.microseconds), key=lambda row: row.step)
    by_op: dict[str, float] = defaultdict(float)
    for row in rows:
        by_op[row.op] += row.microseconds
    total = sum(by_op.values())
    if not total:
        return ""
    hues = {op: look.light for op, look in zip(sorted(by_op, key=lambda op: -by_op[op]), _HUES)}
    x, bars = 0.0, []
    for row in rows:
        width = 1000 * row.microseconds / total
        words = f"{row.op} {row.node}: {row.microseconds:,.0f} µs"
        name = f"<title>{escape(words)}</title>" if width > 1 else ""
        fill = hues.get(row.op, _GREY)
        bars.append(f'<rect x="{x:.2f}" width="{width:.2f}" height="26" fill="{fill}">{name}</rect>')
        x += width
    parts = [(hue, op, by_op[op]) for op, hue in hues.items()]
    if rest := total - sum(by_op[op] for op in hues):
        parts.append((_GREY, "others", rest))
    keys = (
        f'<span class="key" style="background:{hue}"></span>{escape(op)} {_duration(time)}' for hue, op, time in parts
    )
    title = f"<h4>Time inside kernels, in the order of running: {_duration(total)}</h4>"
    label = "Time of each op, from the first to the last one that ran"
    return (
        f'{title}<svg viewBox="0 0 1000 26" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'{"".join(bars)}</svg><p class="soft">{" ".join(keys)}</p>'
    )


def _table(found: Verification) -> str:
    """The kinds that copy most, and those that take most time: rows of one operator and role, in all layers."""
    trace = found.trace
    kinds: dict[tuple[str, str], list[VerifiedOp]] = defaultdict(list)
    for row in found.rows:
        kinds[row.op, place_of(trace, trace.log[row.step]).role].append(row)
    works = {
        kind: work_of(trace, chain.from_iterable(row.steps for row in rows), sum(row.microseconds for row in rows))
        for kind, rows in kinds.items()
    }
    copies = sorted((kind for kind in kinds if works[kind].copied), key=lambda kind: -works[kind].copied)[: _KINDS // 2]
    slow = sorted((kind for kind in kinds if kind not in copies), key=lambda kind: -works[kind].microseconds)
    shown = [*copies, *slow[: _KINDS - len(copies)]]
    lines = []
    for kind in shown:
        rows, work = kinds[kind], works[kind]
        observed = [row.observed for row in rows if row.observed is not None]
        often = f' <span class="soft">× {len(rows):,}</span>' if len(rows) > 1 else ""
        figures = [
            size(sum(row.predicted for row in rows)),
            size(sum(observed)) if observed else "",
            size(work.copied) if work.copied else "",
            _duration(work.microseconds),
            f"{work.rate / 1e9:,.1f}",
            f"{work.intensity:,.1f}",
        ]
        cells = "".join(f'<td class="n">{figure}</td>' for figure in figures)
        worst = max(rows, key=lambda row: (not row.agrees, row.microseconds))
        sign = "" if not observed else "✓ " if worst.agrees else "✗ "
        # Times of another machine are not compared with the roofs of this one.
        bound = work.bound if found.version else ""
        lines.append(
            f"<tr><td {LEFT}>{sign}<b>{escape(kind[0])}</b> "
            f"{escape(short(kind[1], 60))}{often}</td>{cells}"
            f'<td class="g" {LEFT}>{bound}</td><td {LEFT}>{escape(short(worst.reason, 160))}</td></tr>'
        )
    names = ("predicted", "observed", "copied", "time", "GB/s", "FLOP/B")
    head = "".join(f'<th class="n">{name}</th>' for name in names)
    rest = f'<p class="soft">and {count(len(kinds) - len(shown), "more kind")}</p>' if len(kinds) > len(shown) else ""
    return (
        "<h4>What copies most, and what takes most time</h4>"
        f'<div class="wide"><table><thead><tr><th {LEFT}>op, role</th>{head}'
        f"<th {LEFT}>bound by</th><th {LEFT}>why</th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>{rest}"
    )


def _different(found: Verification) -> str:
    rows = found.differences
    lines = [
        f"{row.op} {short(row.node, 60)}: {size(row.observed or 0)}, predicted {size(row.predicted)}; {row.cause}"
        for row in rows
    ]
    title = f"<h4>Where prediction and run differ: {count(len(rows), 'node') if rows else 'nowhere'}</h4>"
    return title + _paragraphs(_first(lines, _LINES))


def _duration(microseconds: float) -> str:
    return f"{microseconds / 1000:,.1f} ms" if microseconds >= 1000 else f"{microseconds:,.0f} µs"


def _paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)
