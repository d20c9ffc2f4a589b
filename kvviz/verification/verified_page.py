"""A verification as a piece of HTML: what agrees, where the time goes, what is copied, what the optimiser changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from kvviz.report.palette import STATES
from kvviz.report.report_html import LEFT, STYLE
from kvviz.trace.recording import Trace
from kvviz.trace.roles import place_of
from kvviz.trace.units import count, short, size
from kvviz.verification.optimised_nodes import Change, in_words
from kvviz.verification.roofline import Work, works
from kvviz.verification.verified_op import VerifiedOp

_KINDS, _DIFFERENT, _COLOURED, _SENTENCES = 14, 12, 3, 8
_HUES = (STATES["running"], STATES["in_place"], STATES["missed"])
_GREY = "#8a929c"
_OWN = """
.kvviz-report .big{font-size:20px;font-weight:600;margin-right:10px}
.kvviz-report svg{display:block;width:100%;height:26px}
.kvviz-report .wide{overflow-x:auto}
.kvviz-report .wide table{min-width:720px}
"""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Rows of one operator and role, in one or many layers."""

    op: str
    role: str
    rows: tuple[VerifiedOp, ...]
    copied: int
    work: Work

    @property
    def microseconds(self) -> float:
        return sum(row.microseconds for row in self.rows)


def verified_html(
    trace: Trace,
    rows: Sequence[VerifiedOp],
    where: str,
    changes: Sequence[Change] = (),
    notes: Sequence[str] = (),
    here: bool = True,
) -> str:
    """The report of a verification, in the look of the report on a trace.

    ``where``: runtime and version. ``here``: it ran on this machine, so that its times can be compared with it.
    """
    changed = f"<h4>What the optimiser changed</h4>{_list(in_words(changes), _SENTENCES)}" if changes else ""
    parts = [_head(trace, rows, where, notes), _time(rows), _table(trace, rows, here), changed, _different(rows)]
    return f'<div class="kvviz-report"><style>{STYLE}{_OWN}</style>{"".join(parts)}</div>'


def _head(trace: Trace, rows: Sequence[VerifiedOp], where: str, notes: Sequence[str]) -> str:
    compared = [row for row in rows if row.observed is not None]
    agree = sum(row.agrees for row in compared)
    hue = STATES["in_place" if agree == len(compared) else "missed"].light
    words = "".join(f'<p class="soft">{escape(note)}</p>' for note in notes)
    return (
        f'<p><span class="big" style="color:{hue}">{agree:,} of {len(compared):,}</span>'
        f"<b>allocations are as predicted</b> · {escape(where)} · {escape(short(trace.graph.name))}</p>{words}"
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
    largest = sorted(by_op, key=lambda op: -by_op[op])[:_COLOURED]
    hues = {op: look.light for op, look in zip(largest, _HUES)}
    x, bars = 0.0, []
    for row in rows:
        width = 1000 * row.microseconds / total
        words = f"{row.op} {row.node}: {row.microseconds:,.0f} µs"
        name = f"<title>{escape(words)}</title>" if width > 1 else ""
        fill = hues.get(row.op, _GREY)
        bars.append(f'<rect x="{x:.2f}" width="{width:.2f}" height="26" fill="{fill}">{name}</rect>')
        x += width
    parts = [(hues[op], op, by_op[op]) for op in largest]
    if rest := total - sum(by_op[op] for op in largest):
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


def _kinds(trace: Trace, ops: Sequence[VerifiedOp]) -> list[_Kind]:
    work = works(trace, ops)
    members: dict[tuple[str, str], list[VerifiedOp]] = defaultdict(list)
    for row in ops:
        members[row.op, place_of(trace, trace.log[row.step]).role].append(row)
    kinds = []
    for (op, role), rows in members.items():
        copied = sum(trace.log[step].copied for row in rows for step in row.steps)
        flops, moved = (sum(getattr(work[row.step], name) for row in rows) for name in ("flops", "moved"))
        kinds.append(_Kind(op, role, tuple(rows), copied, Work(flops, moved, sum(row.microseconds for row in rows))))
    return kinds


def _table(trace: Trace, rows: Sequence[VerifiedOp], here: bool) -> str:
    """The kinds that copy most, and those that take most time."""
    kinds = _kinds(trace, rows)
    copies = sorted((kind for kind in kinds if kind.copied), key=lambda kind: -kind.copied)[: _KINDS // 2]
    slow = sorted((kind for kind in kinds if kind not in copies), key=lambda kind: -kind.microseconds)
    shown = [*copies, *slow[: _KINDS - len(copies)]]
    lines = []
    for kind in shown:
        observed = [row.observed for row in kind.rows if row.observed is not None]
        sign = "" if not observed else "✓ " if all(row.agrees for row in kind.rows) else "✗ "
        often = f' <span class="soft">× {len(kind.rows):,}</span>' if len(kind.rows) > 1 else ""
        figures = [
            size(sum(row.predicted for row in kind.rows)),
            size(sum(observed)) if observed else "",
            size(kind.copied) if kind.copied else "",
            _duration(kind.microseconds),
            f"{kind.work.rate / 1e9:,.1f}",
            f"{kind.work.intensity:,.1f}",
        ]
        cells = "".join(f'<td class="n">{figure}</td>' for figure in figures)
        worst = max(kind.rows, key=lambda row: (not row.agrees, row.microseconds))
        lines.append(
            f"<tr><td {LEFT}>{sign}<b>{escape(kind.op)}</b> "
            f"{escape(short(kind.role, 60))}{often}</td>{cells}"
            f'<td class="g" {LEFT}>{kind.work.bound if here else ""}</td>'
            f"<td {LEFT}>{escape(short(worst.reason, 160))}</td></tr>"
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


def _different(rows: Sequence[VerifiedOp]) -> str:
    different = [row for row in rows if row.observed is not None and not row.agrees]
    lines = [
        f"{row.op} {short(row.node, 60)}: {size(row.observed or 0)}, predicted {size(row.predicted)}; {row.cause}"
        for row in different
    ]
    title = f"<h4>Where prediction and run differ: {count(len(different), 'node') if different else 'nowhere'}</h4>"
    return title + (_list(lines, _DIFFERENT) if lines else "")


def _duration(microseconds: float) -> str:
    return f"{microseconds / 1000:,.1f} ms" if microseconds >= 1000 else f"{microseconds:,.0f} µs"


def _list(lines: Sequence[str], most: int) -> str:
    more = [f"and {len(lines) - most:,} more"] if len(lines) > most else []
    return "".join(f"<p>{escape(line)}</p>" for line in [*lines[:most], *more])
