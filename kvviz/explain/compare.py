"""The same runs under other rules, side by side: what each costs, where they part, and that the results agree.

Invariant: every row of a comparison starts from the same inputs, and the caller's arrays are as before afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kvviz.engine.policy import Policy, Schedule
from kvviz.engine.session import whole
from kvviz.errors import InputError
from kvviz.explain.comparison.aligning import align, places
from kvviz.explain.comparison.bound import bound
from kvviz.explain.comparison.difference import Difference, first_difference
from kvviz.explain.comparison.equality import unlike
from kvviz.explain.comparison.runs import runner
from kvviz.explain.summary import counts
from kvviz.graph.model import Graph
from kvviz.late import late
from kvviz.other_names import with_other_names
from kvviz.runtimes.named_policies import find_policy
from kvviz.runtimes.named_schedules import label, named
from kvviz.runtimes.policy_data import schedule_of
from kvviz.runtimes.schedules import least_live
from kvviz.trace.model_or_trace import as_graph

__all__ = ["Comparison", "Difference", "Row", "align", "compare", "comparison_of", "first_difference"]

Schedules = Sequence[str | Schedule | None] | Mapping[str, Schedule]


@dataclass(frozen=True, slots=True)
class Row:
    """What one of the compared traces comes to.

    Attributes
    ----------
    name : str
    policy, schedule : str
        Names of its rules and of its order.
    peak, above_weights : int
        The largest number of bytes alive, with and without the weights.
    allocated, written, copied : int
        Bytes.
    moved_outside : int
        Bytes that the caller of a decode moved between runs to give caches more room; not part of ``copied``.
    in_place, missed : int
        Ops that ran in place, and that could have by kind but spent memory instead.
    missed_bytes : int
        What these spent.
    cannot, cannot_bytes : int
        Ops that cannot run in place by kind under the policy, and what they spent: who can do less misses less.
    steps : int
    equal : bool or None
        Its results are those of the first row, within 1e-5; None where either is a dry run, which has no results.
    difference : str
        What of the results differs; empty where all of it is the same.
    """

    name: str
    policy: str
    schedule: str
    peak: int
    above_weights: int
    allocated: int
    written: int
    copied: int
    moved_outside: int
    in_place: int
    missed: int
    missed_bytes: int
    cannot: int
    cannot_bytes: int
    steps: int
    equal: bool | None
    difference: str


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
    traces: dict[str, Any]

    @property
    def equal(self) -> bool | None:
        """Whether all rows have the same results; None for dry runs, which have none."""
        return None if self.dry else all(row.equal for row in self.rows)

    @property
    def dry(self) -> bool:
        """Whether there are dry runs among them."""
        return any(trace.dry for trace in self.traces.values())

    def first_difference(self, a: str | int = 0, b: str | int = 1) -> Difference | None:
        """The first op that two rows, given by name or number, run at another step or in another way."""
        names = self._name(a), self._name(b)
        return first_difference(self.traces[names[0]], self.traces[names[1]], names)

    def align(self, a: str | int = 0, b: str | int = 1) -> tuple[np.ndarray, np.ndarray]:
        """For each step of either row, the step of the other row at which the same op ran; -1 if none did."""
        return align(self[a], self[b])

    def bound(self, row: str | int = 0) -> str:
        """Of what the policy ``ideal`` is a bound for a row, or why it is none.

        It compares with the row that ran under ``ideal`` in the same order (``schedules`` can ask for one): no rules
        copy fewer bytes that have the same rows reserved, with what is moved outside of the graph counted, and none has
        a peak below the bytes that are needed at once.
        """
        other = self[row]
        ideals = [self.traces[each.name] for each in self.rows if each.policy == "ideal"]
        if not ideals:
            return "no bound here, because ideal was not run: compare with it, in the same order"
        order = places(other)
        return bound(next((ideal for ideal in ideals if places(ideal) == order), ideals[0]), other)

    def to_html(self, path: Any = None) -> str:
        """Write all rows as lanes of one page, to a file that needs neither a kernel nor a network."""
        page: str = late("view.export:lanes_to_html")(self.traces, path)
        return page

    def _name(self, key: str | int) -> str:
        return self.rows[key].name if isinstance(key, int) else key

    def __getitem__(self, key: str | int) -> Any:
        """The trace of a row, by name or number."""
        return self.traces[self._name(key)]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def table(self) -> Any:
        """The rows as a table, which prints as text, has a display in notebooks, and has ``rows``."""
        return late("view.comparison_view:comparison_table")(self)

    def plot(self, figure: Any = None) -> Any:
        """Bars of what each row costs, and the live bytes of all over their steps; returns the matplotlib figure."""
        return late("view.comparison_view:plot_comparison")(self, figure)

    def __repr__(self) -> str:
        text: str = late("view.comparison_view:comparison_text")(self)
        return text

    def _repr_html_(self) -> str:
        html: str = late("view.comparison_view:comparison_html")(self)
        return html


@with_other_names
def compare(
    graph: Graph | str | os.PathLike[str],
    inputs: Mapping[str, Any] | None = None,
    policies: str | Policy | Sequence[str | Policy] = ("ideal", "rten", "onnxruntime"),
    schedules: Schedules | None = None,
    fixes: Sequence[Any] | None = None,
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
        Orders to try under each policy: names (see `kvviz.runtimes.named_schedules`), schedules, or None for the
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
        In dry runs: decode after a prompt of so many tokens.
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
    run = runner(graph, dict(inputs or {}), prompt, donate, options, dry)
    given = [policies] if isinstance(policies, (str, Policy)) else policies
    traces: dict[str, Any] = {}
    for policy in map(find_policy, given):
        for name, schedule in _named(schedules):
            if isinstance(schedule, str):
                measured = next(iter(traces.values())) if traces else whole(run(policy))
                schedule = least_live(measured)
            trace = whole(run(policy if schedule is None else replace(policy, schedule=schedule)))
            traces[_unused(f"{policy.name} ({name})" if name else policy.name, traces)] = trace
    for fix in fixes or ():
        traces[_unused(f"fix: {fix.label}", traces)] = whole(fix.apply())
    return comparison_of(traces)


def comparison_of(traces: Mapping[str, Any]) -> Comparison:
    """Put traces that exist already side by side.

    Parameters
    ----------
    traces : mapping of str to Trace
        By the names of their rows.
    """
    reference = next(iter(traces.values()), None)
    return Comparison(tuple(_row(name, trace, reference) for name, trace in traces.items()), dict(traces))


def _row(name: str, trace: Any, reference: Any) -> Row:
    count = counts(trace)
    weights = sum(s.capacity for s in trace.log.storages if s.origin == "weights")
    equal, difference = unlike(trace, reference)
    return Row(
        name,
        trace.policy.name,
        label(schedule_of(trace.policy)),
        trace.peak_bytes,
        trace.peak_bytes - weights,
        trace.bytes_allocated,
        trace.bytes_written,
        trace.bytes_copied,
        sum(run.bytes_moved_outside for run in trace.runs),
        count.in_place,
        count.missed,
        count.missed_bytes,
        count.cannot,
        count.cannot_bytes,
        len(trace.steps),
        equal,
        difference,
    )


def _named(schedules: Schedules | None) -> list[tuple[str, str | Schedule | None]]:
    """Names of schedules with the schedules; one that has to be measured first stays a name, None is the policy's."""
    if schedules is None:
        return [("", None)]
    if isinstance(schedules, str):
        schedules = [schedules]
    if isinstance(schedules, Mapping):
        return [
            (name, s if s in (None, "least_live") or not isinstance(s, str) else named(s))
            for name, s in schedules.items()
        ]
    found: list[tuple[str, str | Schedule | None]] = []
    for given in schedules:
        if given is None:
            found.append(("", None))
        elif isinstance(given, str):
            found.append((label(named(given)), given if given == "least_live" else named(given)))
        else:
            found.append((label(given), given))
    return found


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    """The name, with a number behind it where a row has it already."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name} ({number})"
    return found
