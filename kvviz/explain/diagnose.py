"""The report on a trace: what was missed and how to change it, what the peak was made of, what was held too long.

Invariant: the bytes of the missed list are those of the missed steps, and the parts of the peak sum to it. Nothing is
tried to make a report: fixes, another order, and the verdict that names them are found when they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kvviz.caches.cache_warnings import CacheWarning, cache_warnings
from kvviz.explain.cache_findings import CacheFinding, cache_findings
from kvviz.explain.cache_notices import with_warnings
from kvviz.explain.hidden_verdict import hidden_verdict
from kvviz.explain.lower_peak import OtherOrder, lower_peak
from kvviz.explain.missed_groups import MissedGroup, missed_groups
from kvviz.explain.peak import Peak, peak
from kvviz.explain.recomputed_rows import recomputed_rows
from kvviz.explain.retention import Held, held_too_long
from kvviz.explain.summary import Counts, Missed, counts, missed
from kvviz.explain.verdict import Verdict, verdict
from kvviz.fixes.combinations import together
from kvviz.fixes.fix import Fix
from kvviz.late import late
from kvviz.other_names import not_there, with_other_names
from kvviz.trace.model_or_trace import as_trace
from kvviz.trace.value_index import index_of


@dataclass(frozen=True, repr=False)
class Report:
    """The diagnosis of a trace.

    Attributes
    ----------
    trace : Trace
    counts : Counts
        How many steps ran in which way.
    missed : tuple of Missed
        Nodes that could have run in place and did not, the one that spent most bytes first. Their blockers have fixes,
        which are computed when they are read.
    peak : Peak
        The moment with the most live bytes, and what they belong to.
    held_too_long : tuple of Held
        Storages that were kept after the last use of everything in them.
    caches : tuple of CacheFinding
        Findings about the caches, in sentences. Those that may make results wrong come first.
    cache_warnings : tuple of CacheWarning
        What `kvviz.cache_warnings` gives; findings say the same of many caches at once.
    groups : tuple of MissedGroup
        The missed nodes, grouped: those that are alike in all layers and tokens are one entry. The group that spent
        most bytes comes first.
    """

    trace: Any = field(compare=False)
    counts: Counts
    missed: tuple[Missed, ...]
    peak: Peak
    held_too_long: tuple[Held, ...]
    caches: tuple[CacheFinding, ...]
    cache_warnings: tuple[CacheWarning, ...]
    groups: tuple[MissedGroup, ...]

    @cached_property
    def other_order(self) -> OtherOrder | None:
        """An order of the main graph whose peak is much lower, with the fix that uses it; None where none is found."""
        return lower_peak(index_of(self.trace))

    @cached_property
    def together(self) -> tuple[Fix, ...]:
        """Fixes of several changes, tried as a whole: the fewest with the least bytes copied, and with the least peak;
        none where one change does as well. Some seconds where many ops were missed."""
        units = [group.changes for group in self.groups if (fix := group.fix) is not None and fix.saves > 0]
        orders = [self.other_order.fix.changes] if self.other_order is not None else []
        return together(index_of(self.trace), orders + units)

    @cached_property
    def verdict(self) -> tuple[Verdict, ...]:
        """The conclusions, in a few sentences, with the one change that removes most of what each is about."""
        index, hidden = index_of(self.trace), hidden_verdict(self.trace)
        return verdict(index, self.peak, self.groups, self.caches, self.cache_warnings, self.other_order, hidden)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return not_there(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its trace, which is diagnosed anew: fixes are found when they are read."""
        return explain, (self.trace,)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, ready for JSON."""
        data: dict[str, Any] = late("view.report_data:report_data")(self)
        return data

    def to_markdown(self, step: int | None = None) -> str:
        """A step in Markdown that GitHub renders: what was decided and why, the fix with its code, how to see it again.

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
        text: str = late("view.markdown:to_markdown")(self, step)
        return text

    def __repr__(self) -> str:
        text: str = late("view.report_text:report_text")(self)
        return text

    def _repr_html_(self) -> str:
        html: str = late("view.report_html:report_html")(self)
        return html


@with_other_names
def explain(trace: Any) -> Report:
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
    caches = (*recomputed_rows(index), *with_warnings(cache_findings(index), warnings))
    entries = missed(trace)
    groups = missed_groups(trace, entries)
    return Report(trace, counts(trace), entries, peak(trace), held_too_long(index), caches, warnings, groups)
