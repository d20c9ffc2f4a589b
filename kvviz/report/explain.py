"""The report on a trace, with its output as text, HTML, Markdown, and plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvviz.caches.cache_warnings import cache_warnings
from kvviz.explain.cache_findings import cache_findings
from kvviz.explain.retention import held_too_long, peak
from kvviz.explain.summary import counts, missed
from kvviz.other_names import not_there, with_other_names
from kvviz.report.diagnosis import Diagnosis
from kvviz.report.faces.markdown_text import to_markdown
from kvviz.report.faces.report_data import report_data
from kvviz.report.faces.report_html import report_html
from kvviz.report.faces.report_text import report_text
from kvviz.report.finding import Findings
from kvviz.report.finding_groups import by_time, missed_groups
from kvviz.trace.index.value_index import index_of
from kvviz.trace.model_or_trace import TraceLike, as_trace


class Report(Diagnosis):
    """The diagnosis of a trace, displayed as text and as HTML.

    Its attributes are those of `kvviz.report.diagnosis.Diagnosis`.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return not_there(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the trace, which is diagnosed again: fixes are found when they are read."""
        return explain, (self.trace,)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, ready for JSON."""
        return report_data(self)

    def to_markdown(self, step: int | None = None) -> str:
        """A step in GitHub's Markdown: what was decided and why, the fix with its code, how to reproduce it.

        Parameters
        ----------
        step : int, optional
            Its number; counted from the end if negative. By default the whole trace: totals, the ops that were missed,
            and their fixes.

        Returns
        -------
        str

        Raises
        ------
        IndexError
            If there is no such step.

        Examples
        --------
        >>> print(kvviz.explain(trace).to_markdown(step=2940))                              # doctest: +SKIP
        """
        return to_markdown(self, step)

    def __repr__(self) -> str:
        return report_text(self)

    def _repr_html_(self) -> str:
        return report_html(self)


@with_other_names
def explain(trace: TraceLike) -> Report:
    """Diagnose a trace.

    Parameters
    ----------
    trace : Trace or path
        Any trace, or the path of a saved one. A fix of a trace that was loaded from a file gives a dry run.

    Returns
    -------
    Report

    Examples
    --------
    >>> report = kvviz.explain(kvviz.decode(graph, [5, 17, 33], 8))                        # doctest: +SKIP
    >>> report.missed[0].blockers[0].fix.label                                              # doctest: +SKIP
    'kv_capacity=10'
    >>> report.missed[0].blockers[0].fix.apply().bytes_copied < report.trace.bytes_copied   # doctest: +SKIP
    True
    """
    trace = as_trace(trace, "kvviz.explain")
    index = index_of(trace)
    warnings = cache_warnings(trace)
    entries = missed(trace)
    groups, caches = missed_groups(trace, entries), cache_findings(index, warnings)
    if by_time(groups):
        entries = tuple(entry for group in groups for entry in group.entries)
    return Report(trace, counts(trace), entries, peak(trace), held_too_long(index), caches, warnings, groups)


@with_other_names
def findings(trace: TraceLike) -> Findings:
    """What a trace costs and what endangers its results, ranked.

    What may make results wrong comes first, then costs in bytes, and last what needs no action. The peak ranks among
    the costs by its bytes above the weights. The list is there at once; the fix of a finding is searched for, by
    trying changes on ghosts, when it is read first.

    Parameters
    ----------
    trace : Trace or path
        Any trace, or the path of a saved one.

    Returns
    -------
    Findings
        A tuple of `kvviz.report.finding.Finding`, displayed as a table with all fixes.

    Examples
    --------
    >>> found = kvviz.findings(kvviz.decode(graph, [5, 17, 33], 8))                         # doctest: +SKIP
    >>> past = next(one for one in found if one.kind == "copied")                           # doctest: +SKIP
    >>> past.title, past.steps, past.fix.label                                              # doctest: +SKIP
    ('8,064 B of past copied in 7 tokens', 28, 'kv_capacity=10')
    >>> len(trace.find(past.query)) == past.steps                                           # doctest: +SKIP
    True
    """
    return explain(trace).findings
