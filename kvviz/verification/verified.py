"""The result of a verification, predicted beside observed: text of one screen, plain values, and a page.

The page shows for each op how fast it moved bytes and computed, beside the limits of this machine. These roofs are
measured with NumPy: a copy of 64 MB, and a product of two matrices of 512 × 512 numbers. The model is that of Williams,
Waterman and Patterson, "Roofline" (2009).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from html import escape
from timeit import repeat
from typing import Any, ClassVar

import numpy as np

from kvviz.device.simulated_time import flops
from kvviz.explain.sentences import sentence
from kvviz.report.faces.report_html import STYLE
from kvviz.report.faces.steps_table import Table
from kvviz.report.palette import DARK, STATES
from kvviz.trace.index.value_index import index_of
from kvviz.trace.recording import Trace
from kvviz.trace.schema.element_types import nbytes
from kvviz.trace.units import count, place_of, short, size
from kvviz.verification.matching import Change, in_words
from kvviz.view.export import to_html

# They read as much of their inputs as they write, or only need the shape.
_READ_PARTS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "Shape", "Size"})
# If an op spends a smaller share of its time at a roof, neither roof explains the time.
_LEAST = 0.1


def work_of(trace: Trace, steps: Iterable[int]) -> tuple[int, int, int]:
    """Operations of some steps, bytes that they read and wrote, and how many of these were only copied."""
    index, computed, moved, copied = index_of(trace), 0, 0, 0
    for log in (trace.log[step] for step in steps):
        copied += log.copied
        if not log.written:
            continue
        inputs = [index.places.get((log.frame, name)) for name in log.op.node.inputs]
        shapes = [None if place is None else place.shape for place in inputs]
        computed += flops(log.op.node, shapes, [None if out is None else out.shape for out in log.outs])
        read = sum(nbytes(place.shape, place.dtype) for place in inputs if place is not None)
        moved += log.written + (log.written if log.op.node.op_type in _READ_PARTS else read)
    return computed, moved, copied


def bound_by(computed: int, moved: int, microseconds: float) -> str:
    """The limit of an op on this machine: ``"memory"``, ``"compute"``, or ``"overhead"`` of calling the kernel."""
    rate, speed = _roofs()
    moving, computing = moved / rate, computed / speed
    if max(moving, computing) * 1e6 < _LEAST * microseconds:
        return "overhead"
    return "memory" if moving > computing else "compute"


@cache
def _roofs() -> tuple[float, float]:
    """Bytes per second of a copy here, and operations per second of a product."""
    block, square = np.ones(1 << 24, np.float32), np.ones((512, 512), np.float32)
    other = np.empty_like(block)
    copy = min(repeat(lambda: np.copyto(other, block), number=1, repeat=4))
    product = min(repeat(lambda: square @ square, number=1, repeat=4))
    return 2 * block.nbytes / copy, 2 * 512**3 / product


_LINES, _KINDS = 12, 8
_HUES = (STATES["running"].light, STATES["in_place"].light, STATES["missed"].light)
_OTHERS = "#8a929c"
# A page of its own has no notebook theme around it.
_ALONE = f"""<style>@media (prefers-color-scheme: dark) {{ .kvviz-report {{
--jp-ui-font-color1:{DARK.ink};--jp-ui-font-color2:{DARK.soft};--jp-layout-color1:{DARK.pane};
--jp-layout-color2:{DARK.ground};--jp-border-color1:{DARK.soft};--jp-border-color2:{DARK.line} }} }}</style>"""
_OWN = """
.kvviz-report .big{font-size:20px;font-weight:600;margin-right:10px}
.kvviz-report svg{display:block;width:100%;height:26px}
.kvviz-report .wide{overflow-x:auto}
.kvviz-report .wide table{min-width:720px}
.kvviz-report caption{text-align:left;font-weight:600;padding:10px 0 4px}
@media print{.kvviz-report .wide{overflow:visible}.kvviz-report .wide table{min-width:0;font-size:9px}
.kvviz-report .wide :is(th,td){padding-right:4px;overflow-wrap:break-word}}
"""
# Key, heading, whether it is a number, and the most characters, as in every `Table`.
_COLUMNS = (
    ("op", "op, role", False, 64),
    ("time", "time", True, 10),
    ("predicted", "predicted", True, 10),
    ("observed", "observed", True, 10),
    ("copied", "copied", True, 10),
    ("rate", "GB/s", True, 8),
    ("intensity", "FLOP/B", True, 8),
    ("bound", "bound by", False, 8),
    ("why", "why", False, 90),
)


@dataclass(frozen=True, repr=False)
class Verified(ABC):
    """What a runtime did beside what was predicted; ``str()`` of it is a report.

    Attributes
    ----------
    rows : tuple
        Compared rows; those that differ come first.
    trace : Trace
        The prediction: a dry run of the graph that ran, in the order in which it ran.
    runtime, version : str
        Its name, and its version if that is known.
    notes : tuple of str
        Limits of the comparison.
    """

    counted: ClassVar[tuple[str, str]] = ("node", "as predicted")

    rows: tuple[Any, ...]
    trace: Trace = field(compare=False)
    runtime: str
    version: str = ""
    notes: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[Any, ...]:
        """Rows with an observation of the runtime."""
        return tuple(row for row in self.rows if row.observed is not None)

    @property
    def total(self) -> int:
        """Number of compared rows."""
        return len(self.compared)

    @property
    def agree(self) -> int:
        """Number of rows that agree with their prediction."""
        return self.total - len(self.differences)

    @property
    def differences(self) -> tuple[Any, ...]:
        """Compared rows that do not agree."""
        return tuple(row for row in self.compared if not row.agrees)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        names = [one.name for one in fields(self) if one.name not in ("trace", "rows")]
        return {name: _plain(getattr(self, name)) for name in (*names, "agree", "total", "rows")}

    @abstractmethod
    def table(self) -> Table:
        """The rows in groups."""

    def facts(self) -> list[str]:
        """Lines below the first one."""
        return []

    def sections(self) -> list[tuple[str, list[str]]]:
        """Lines below the table, each group with a title."""
        return []

    def __str__(self) -> str:
        table = self.table()
        lines = [f"{self.trace.graph.name}: {self.agree:,} of {self._counted()}", *self.facts(), *self.notes]
        lines += [f"  {line}" for line in _different(self)]
        lines += [f"{table.title}:", table.text()]
        for title, said in self.sections():
            lines += [title, *(f"  {line}" for line in _first(said))]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The report in the look of the report on a trace."""
        hue, words = STATES["missed" if self.differences else "in_place"].light, self._counted().split(" ", 1)[1]
        parts = [
            f'<p><span class="big" style="color:{hue}">{self.agree:,} of {self.total:,}</span> '
            f"<b>{escape(words)}</b> · {escape(short(self.trace.graph.name))}</p>",
            *(f'<p class="soft">{escape(line)}</p>' for line in (*self.facts(), *self.notes)),
            *(f"<p>{escape(line)}</p>" for line in _different(self)),
            _strip(self.trace),
            f'<div class="wide">{self.table().html()}</div>',
        ]
        for title, said in self.sections():
            parts += [f"<h4>{escape(title)}</h4>", *(f"<p>{escape(line)}</p>" for line in _first(said))]
        return f'<div class="kvviz-report"><style>{STYLE}{_OWN}</style>{"".join(parts)}</div>'

    def to_html(self, path: str | os.PathLike[str]) -> str:
        """Write the report with the debugger below, with the session's times as a lane, to one file; returns it."""
        return to_html(self.trace, path, above=_ALONE + self._repr_html_())

    def _counted(self) -> str:
        noun, words = self.counted
        return f"{count(self.total, noun)} {words}, by {self.runtime} {self.version}".strip()


@dataclass(frozen=True, slots=True)
class VerifiedOp:
    """One node beside its prediction; for a node that ran several times, the run with the largest allocation.

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
        Bytes that it allocated; onnxruntime's arena rounds each output up to 256 B. None if that was not recorded.
    microseconds : float
        Time inside its kernel, of all its runs.
    reason : str
        What it does to memory by the policy, and why.
    agrees : bool
        Whether both are the same, except for the arena's rounding.
    cause : str
        The known cause of a difference; empty if they agree.
    flops, moved, copied : int
        Operations, bytes read and written, and how many of these were only copied, of all its runs.
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
    cause: str
    flops: int
    moved: int
    copied: int

    @property
    def bound(self) -> str:
        """Its limit on this machine: ``"memory"``, ``"compute"``, or ``"overhead"`` of calling the kernel."""
        return bound_by(self.flops, self.moved, self.microseconds)

    def __str__(self) -> str:
        where = f" in {self.frame}" if self.frame else ""
        bytes_of = f"{size(self.observed or 0)}, predicted {size(self.predicted)}"
        return f"{self.op} {short(self.node, 48)}{where}: {bytes_of}; {self.cause}. {self.reason}"


def verified_op(
    trace: Trace, steps: Sequence[int], predicted: int, observed: int | None, cause: str = "", microseconds: float = 0.0
) -> VerifiedOp:
    """The row of a node that ran at these steps; it agrees if there is no ``cause`` for a difference."""
    step = trace.steps[steps[0]]
    node, why = step.graph_node, sentence(replace(step, foreign=False), trace)
    who = node.name, node.qualified_op, "/".join(step.frame), step.index, tuple(steps)
    return VerifiedOp(*who, predicted, observed, microseconds, why, not cause, cause, *work_of(trace, steps))


@dataclass(frozen=True, repr=False)
class Verification(Verified):
    """The allocations of a run beside their prediction.

    Attributes
    ----------
    rows : tuple of VerifiedOp
        Those that differ first, then those that took most time.
    unknown : tuple of str
        Nodes without a report of the runtime, or with one that could not be assigned; they are not counted.
    changes : tuple of Change
        What the optimiser made of the model's nodes; empty if only the optimised model is known.
    """

    rows: tuple[VerifiedOp, ...]
    unknown: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    def facts(self) -> list[str]:
        """How much was allocated, and in what time."""
        if not (compared := self.compared):
            return []
        # The time of a control node includes that of its bodies.
        time = sum(row.microseconds for row in self.rows if not row.frame)
        spent = f" in {_duration(time)} of kernels" if time else ""
        allocated = size(sum(row.observed for row in compared))
        return [f"{allocated} allocated{spent}; {sum(not row.observed for row in compared):,} nodes allocated nothing"]

    def table(self) -> Table:
        """Rows of one operator and role, in all layers, are one: the slowest kinds, and those that copy most."""
        kinds: dict[tuple[str, str], list[VerifiedOp]] = defaultdict(list)
        for row in self.rows:
            kinds[row.op, place_of(self.trace, self.trace.log[row.step]).role].append(row)
        slow, copying = (
            sorted(kinds, key=lambda kind: -sum(getattr(row, name) for row in kinds[kind]))
            for name in ("microseconds", "copied")
        )
        shown = [kind for kind in slow if kind in slow[:_KINDS] or kind in copying[:_KINDS]]
        lines = [_line(op, role, kinds[op, role], bool(self.version)) for op, role in shown]
        used = tuple(column for column in _COLUMNS if any(line[column[0]] for line in lines))
        return Table(lines, used, f"kinds of op that take most time, or copy most: {len(lines):,} of {len(kinds):,}")

    def sections(self) -> list[tuple[str, list[str]]]:
        """What the optimiser changed, and what could not be compared."""
        kinds = Counter(change.kind for change in self.changes)
        parts = ", ".join(f"{n:,} {kind}" for kind, n in kinds.items())
        found = [(f"what the optimiser changed: {parts}", in_words(self.changes))] if parts else []
        missing = f"not compared: {count(len(self.unknown), 'node')} without a report of their own"
        return found + ([(missing, [])] if self.unknown else [])


def _line(op: str, role: str, rows: Sequence[VerifiedOp], here: bool) -> dict[str, str]:
    """``here``: whether it ran on this machine, with its roofs."""
    time, copied, moved, computed, predicted = (
        sum(getattr(row, name) for row in rows) for name in ("microseconds", "copied", "moved", "flops", "predicted")
    )
    observed = [row.observed for row in rows if row.observed is not None]
    sign = "" if not observed else "✓ " if all(row.agrees for row in rows) else "✗ "
    often = f" × {len(rows):,}" * (len(rows) > 1)
    return {
        "op": f"{sign}{op} {short(role, 60 - len(op) - len(often))}{often}",
        "time": _duration(time) if time else "",
        "predicted": size(predicted),
        "observed": size(sum(observed)) if observed else "",
        "copied": size(copied) if copied else "",
        "rate": f"{moved / time / 1e3:,.1f}" if time else "",
        "intensity": f"{computed / max(moved, 1):,.1f}",
        "bound": bound_by(computed, moved, time) if time and here else "",
        "why": max(rows, key=lambda row: (not row.agrees, row.microseconds)).reason,
    }


def _plain(value: Any) -> Any:
    return [asdict(one) if is_dataclass(one) else one for one in value] if isinstance(value, tuple) else value  # type: ignore[arg-type]


def _different(found: Verified) -> list[str]:
    return _first([f"differs: {row}" for row in found.differences])


def _first(lines: Sequence[str]) -> list[str]:
    return [*lines[:_LINES], *([f"and {len(lines) - _LINES:,} more"] if len(lines) > _LINES else [])]


def _duration(microseconds: float) -> str:
    return f"{microseconds / 1000:,.1f} ms" if microseconds >= 1000 else f"{microseconds:,.0f} µs"


def _strip(trace: Trace) -> str:
    """A strip of the main graph's ops in running order, each as wide as its time."""
    log, times = trace.log, trace.log.declared.times.items()
    outer = {number for number, frame in enumerate(log.frames) if frame.parent is None}
    ran = [(log[step].op.node, timing.end - timing.start) for step, timing in times if log[step].frame in outer]
    by_op: dict[str, float] = defaultdict(float)
    for node, took in ran:
        by_op[node.qualified_op] += took
    if not (total := sum(by_op.values())):
        return ""
    slowest = sorted(by_op, key=lambda op: -by_op[op])[: len(_HUES)]
    hues = dict(zip(slowest, _HUES))
    x, bars = 0.0, []
    for node, took in ran:
        width, op = 1000 * took / total, node.qualified_op
        title = f"<title>{escape(f'{op} {node.name}: {_duration(took)}')}</title>" if width > 1 else ""
        place = f'x="{x:.2f}" width="{width:.2f}" height="26"'
        bars.append(f'<rect {place} fill="{hues.get(op, _OTHERS)}">{title}</rect>')
        x += width
    times_of = [(hues[op], op, by_op[op]) for op in slowest]
    times_of.append((_OTHERS, "others", total - sum(by_op[op] for op in slowest)))
    key = '<span class="key" style="background:{}"></span>{} {}'
    keys = [key.format(hue, escape(op), _duration(took)) for hue, op, took in times_of if took]
    return (
        f"<h4>Time inside kernels, in the order of running: {_duration(total)}</h4>"
        '<svg viewBox="0 0 1000 26" preserveAspectRatio="none" role="img" '
        f'aria-label="Time of each op, from the first to the last one that ran">{"".join(bars)}</svg>'
        f'<p class="soft">{" ".join(keys)}</p>'
    )
