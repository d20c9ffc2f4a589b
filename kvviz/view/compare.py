"""The same runs under other rules, side by side: what each costs, where they differ, and whether results agree.

Invariant: every row of a comparison starts from the same inputs, and the caller's arrays stay unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from kvviz.decode.public_runs import decode, dry, run
from kvviz.engine.policy import Policy, Schedule
from kvviz.engine.sessions.session import whole
from kvviz.errors import InputError
from kvviz.explain.bound import bound
from kvviz.explain.difference import Difference, align, first_difference, places
from kvviz.explain.figures import Row, row_of
from kvviz.fixes.fix import Fix
from kvviz.graph.model import Graph
from kvviz.memory.storage import find_room, reserve, root_of
from kvviz.other_names import with_other_names
from kvviz.report.faces.steps_table import Table, cell_text
from kvviz.runtimes.named_policies import find_policy, label, named
from kvviz.runtimes.schedules import least_live
from kvviz.trace.model_or_trace import as_graph, as_inputs
from kvviz.trace.recording import Trace
from kvviz.trace.schema.run_options import names_in
from kvviz.trace.units import unused, visible
from kvviz.view.charts.many_traces import plot_comparison, used
from kvviz.view.export import lanes_to_html

Schedules = Sequence[str | Schedule | None] | Mapping[str, Schedule]
_COLUMNS = (
    ("name", "", False, 40),
    ("peak", "peak", True, 12),
    ("above_weights", "above weights", True, 14),
    ("allocated", "allocated", True, 12),
    ("written", "written", True, 12),
    ("copied", "copied", True, 12),
    ("moved_outside", "moved outside", True, 14),
    ("in_place", "in place", True, 8),
    ("missed", "missed", True, 8),
    ("missed_bytes", "spent by missed", True, 15),
    ("cannot_bytes", "spent by what cannot", True, 20),
    ("steps", "steps", True, 8),
    ("results", "results", False, 120),
)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Traces of the same inputs under different policies and schedules.

    Attributes
    ----------
    rows : tuple of Row
    traces : dict of str to Trace
        By row name, in the order of the rows.
    """

    rows: tuple[Row, ...]
    traces: dict[str, Trace]

    @classmethod
    def of(cls, traces: Mapping[str, Trace]) -> Comparison:
        """Compare existing traces, given by the names of their rows.

        Examples
        --------
        >>> kvviz.Comparison.of({"concat": first, "static": second}).table()                # doctest: +SKIP
        """
        if not isinstance(traces, Mapping) or not all(isinstance(trace, Trace) for trace in traces.values()):
            raise InputError("Comparison.of takes traces by the names of their rows, such as {'first': trace}")
        rows = tuple(row_of(name, trace, next(iter(traces.values()))) for name, trace in traces.items())
        return cls(rows, dict(traces))

    @property
    def equal(self) -> bool | None:
        """Whether all rows have the same results; None for dry runs, which have none."""
        return None if self.dry else all(row.equal for row in self.rows)

    @property
    def dry(self) -> bool:
        """Whether any of the rows is a dry run."""
        return any(trace.dry for trace in self.traces.values())

    def first_difference(self, a: str | int = 0, b: str | int = 1) -> Difference | None:
        """The first op that two rows run at different steps or in different ways. Rows are given by name or number."""
        names = self._name(a), self._name(b)
        return first_difference(self.traces[names[0]], self.traces[names[1]], names)

    def align(self, a: str | int = 0, b: str | int = 1) -> tuple[np.ndarray, np.ndarray]:
        """For each step of either row, the step of the other row at which the same op ran; -1 if none did."""
        return align(self[a], self[b])

    def bound(self, row: str | int = 0) -> str:
        """What the policy ``ideal`` bounds for a row, or why it bounds nothing.

        The row is compared with the row that ran under ``ideal`` in the same order (``schedules`` can ask for one). No
        rules that reserve the same rows copy fewer bytes, if bytes moved outside of the graph count. No rules have a
        peak below the bytes that are needed at the same time.
        """
        other = self[row]
        ideals = [self.traces[each.name] for each in self.rows if each.policy == "ideal"]
        if not ideals:
            return "no bound here, because ideal was not run: compare with it, in the same order"
        order = places(other)
        return bound(next((ideal for ideal in ideals if places(ideal) == order), ideals[0]), other)

    def to_html(self, path: Any = None) -> str:
        """Write all rows as lanes of one page, to a file that needs neither a kernel nor a network."""
        return lanes_to_html(self.traces, path)

    def _name(self, key: str | int) -> str:
        return self.rows[key].name if isinstance(key, int) else key

    def __getitem__(self, key: str | int) -> Trace:
        """The trace of a row, by name or number."""
        return self.traces[self._name(key)]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def table(self) -> Table:
        """The rows as a table, which prints as text, has a display in notebooks, and has ``rows``.

        Figures that are the same in all rows have no column: the title says them.
        """
        columns, rows, alike = _columns(self)
        return Table(rows, columns, f"Comparison: {alike}" if alike else "Comparison")

    def plot(self, figure: Any = None) -> Any:
        """Draw bars of what each row costs, and the live bytes over the steps; returns the matplotlib figure."""
        return plot_comparison(self.rows, list(self.traces.values()), figure)

    def __repr__(self) -> str:
        columns, rows, alike = _columns(self)
        return "\n".join([Table(rows, columns).text(), *([alike] if alike else []), *_partings(self)])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{escape(line)}</p>" for line in _partings(self))
        return f"<div>{self.table().html()}{lines}</div>"


@with_other_names
def compare(
    graph: Graph | str | os.PathLike[str],
    inputs: Mapping[str, Any] | None = None,
    policies: str | Policy | Sequence[str | Policy] = ("ideal", "rten", "onnxruntime"),
    schedules: Schedules | None = None,
    fixes: Sequence[Fix] | None = None,
    *,
    prompt: Any = None,
    donate: Sequence[str] = (),
    dry: bool = False,
    prompt_tokens: int | None = None,
    **options: Any,
) -> Comparison:
    """Run a graph under several policies and schedules, and put what they cost side by side.

    Parameters
    ----------
    graph : Graph or path
    inputs : mapping of str to array_like, optional
        As in `kvviz.run`, or with a prompt as in `kvviz.decode`. They are not changed: an input that a run may
        overwrite is copied for each run, with the room that `kvviz.reserve` gave it.
    policies : sequence of str or Policy
    schedules : sequence or mapping of str or callable, optional
        Orders to try under each policy: names (see `kvviz.runtimes.named_policies`), schedules, or None for the
        policy's own; that is all by default. ``"least_live"`` plans with the sizes of the first row.
    fixes : sequence of Fix, optional
        Each is applied, and its trace is one more row.
    prompt : str or sequence of int, optional
        Decode from this prompt; without one the graph is run once.
    donate : sequence of str
        Inputs of a single run that it may overwrite.
    dry : bool
        Compare dry runs: nothing is computed, and whether results are equal is not known.
    prompt_tokens : int, optional
        In dry runs: decode after a prompt of this many tokens.
    **options
        Further arguments of `kvviz.run` (``outputs``) or `kvviz.decode` (``max_new_tokens``, ``kv_capacity``,
        ``tokenizer``, …); of `kvviz.dry` (``dims``, ``counts``, ``chunk``, …) for dry runs without ``prompt``.

    Returns
    -------
    Comparison
        Rows in the order of policies, schedules, fixes. If results differ, ``equal`` is False and the row says where;
        no error is raised.

    Examples
    --------
    >>> kvviz.compare(graph, policies=["ideal", "never"], prompt=[5, 17, 33], max_new_tokens=4)   # doctest: +SKIP
    """
    graph = as_graph(graph, "kvviz.compare")
    if prompt_tokens is not None:
        if not dry or prompt is not None:
            raise InputError("prompt_tokens is for dry runs without a prompt; give dry=True, and no prompt")
        options["prompt_tokens"] = prompt_tokens
    once = runner(graph, as_inputs(inputs), prompt, donate, options, dry)
    given = [policies] if isinstance(policies, (str, Policy)) else policies
    traces: dict[str, Trace] = {}
    for policy in map(find_policy, given):
        for name, schedule in _named(schedules):
            if isinstance(schedule, str):
                measured = next(iter(traces.values())) if traces else whole(once(policy))
                schedule = least_live(measured)
            trace = whole(once(policy if schedule is None else replace(policy, schedule=schedule)))
            traces[unused(f"{policy.name} ({name})" if name else policy.name, traces)] = trace
    for fix in fixes or ():
        traces[unused(f"fix: {fix.label}", traces)] = whole(fix.apply())
    return Comparison.of(traces)


def runner(
    graph: Graph,
    inputs: Mapping[str, Any],
    prompt: Any,
    donate: Sequence[str],
    options: Mapping[str, Any],
    layouts_only: bool = False,
) -> Callable[[Policy], Any]:
    """A function that runs or decodes a graph under a policy, each time from the same inputs. ``layouts_only``: dry
    runs; without a prompt the options are those of `kvviz.dry`. Raises `InputError`: if something is donated to a
    decode, which donates its caches by itself."""
    donated = names_in(donate)
    if prompt is not None:
        if donated:
            raise InputError("donate is for a single run; a decode always donates its caches")
        # Caches that the caller passed in are borrowed in the first run, so they are not overwritten.
        quiet = {"progress": False, "dry": layouts_only, **options}
        return lambda policy: decode(graph, prompt, inputs=inputs, policy=policy, **quiet)

    if layouts_only:
        return lambda policy: dry(graph, inputs, policy=policy, donate=donated, **options)

    def once(policy: Policy) -> Any:
        fresh = {name: own_copy(value) if name in donated else value for name, value in inputs.items()}
        return run(graph, fresh, donate=donated, policy=policy, **options)

    return once


def own_copy(value: Any) -> Any:
    """A copy of an array, or of all arrays in a sequence. An array from `kvviz.reserve` keeps its reserved rows."""
    if isinstance(value, (list, tuple)):
        return [own_copy(element) for element in value]
    if not isinstance(value, np.ndarray):
        return value
    room = find_room(root_of(value), value)
    return value.copy() if room is None else reserve(value, room.axis, room.rows)


def _named(schedules: Schedules | None) -> list[tuple[str, str | Schedule | None]]:
    """Schedules by name. One that needs a measurement first stays a name; None is the policy's own."""
    if schedules is None:
        return [("", None)]
    listed = [schedules] if isinstance(schedules, str) else schedules
    given = listed.items() if isinstance(listed, Mapping) else ((None, each) for each in listed)
    found: list[tuple[str, str | Schedule | None]] = []
    for name, each in given:
        schedule = named(each) if isinstance(each, str) else each
        own = "" if schedule is None else label(schedule)
        found.append((own if name is None else name, each if each == "least_live" else schedule))
    return found


def _columns(comparison: Comparison) -> tuple[tuple[Any, ...], list[dict[str, Any]], str]:
    """The columns in which rows differ, the values of all columns, and a text on what is the same in all rows."""
    above = any(row.above_weights != row.peak for row in comparison)
    columns = tuple(c for c in used(_COLUMNS, comparison.rows) if above or c[0] != "above_weights")
    rows = [{k: _results(row) if k == "results" else getattr(row, k) for k, *_ in columns} for row in comparison]
    if len(rows) < 2:
        return columns, rows, ""
    same = {key: heading for key, heading, *_ in columns if len({row[key] for row in rows}) == 1}
    parts = []
    if "steps" in same and "results" in same and not any(row.equal is False for row in comparison):
        parts = [f"{rows[0]['steps']:,} steps each, {'results equal' if comparison.equal else rows[0]['results']}"]
    left = {"steps", "results"} if parts else set()
    # With one figure for all rows there is nothing to compare in its column.
    if figures := [key for key in same if key not in ("steps", "results")]:
        parts.append("in all rows " + ", ".join(f"{same[key]} {cell_text(key, rows[0])}" for key in figures))
    return tuple(c for c in columns if c[0] not in {*left, *figures}), rows, "; ".join(parts)


def _results(row: Row) -> str:
    if row.equal:
        return f"equal ({row.difference})" if row.difference else "equal"
    return row.difference


def _partings(comparison: Comparison) -> list[str]:
    lines = []
    for row in comparison.rows[1:]:
        found = comparison.first_difference(0, row.name)
        where = f"at {found.sentence}" if found else "nowhere: every op ran in the same order and way"
        lines.append(f"{comparison.rows[0].name} and {row.name} part {visible(where)}")
    return lines
