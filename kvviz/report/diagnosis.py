"""The findings of a report as data: missed ops, the parts of the peak, storages held too long.

Invariant: the bytes of the missed list are those of the missed steps, and the parts of the peak sum to it. Making a
report tries no changes: fixes, another order, and the cures of findings are computed when they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

from kvviz.caches.cache_warnings import CacheWarning
from kvviz.explain.cache_findings import CacheFinding
from kvviz.explain.retention import Held, Peak
from kvviz.explain.summary import Counts, Missed
from kvviz.fixes.combinations import together
from kvviz.fixes.fix import Fix
from kvviz.fixes.lower_peak import OtherOrder, lower_peak
from kvviz.report.finding import Finding, Findings
from kvviz.report.finding_groups import MissedGroup
from kvviz.report.findings import leading, ranked
from kvviz.trace.index.value_index import Index, index_of
from kvviz.trace.recording import Trace
from kvviz.trace.trace_data import noted


@dataclass(frozen=True, repr=False)
class Diagnosis:
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
        The result of `kvviz.cache_warnings`; findings summarise it for many caches.
    groups : tuple of MissedGroup
        The missed nodes, grouped: those that are alike in all layers and tokens are one entry. The group that spent
        most bytes comes first.
    """

    trace: Trace = field(compare=False)
    counts: Counts
    missed: tuple[Missed, ...]
    peak: Peak
    held_too_long: tuple[Held, ...]
    caches: tuple[CacheFinding, ...]
    cache_warnings: tuple[CacheWarning, ...]
    groups: tuple[MissedGroup, ...]

    @cached_property
    def other_order(self) -> OtherOrder | None:
        """An order of the main graph whose peak is much lower, with the fix that uses it; None if none is found."""
        return _other_order(index_of(self.trace))

    @cached_property
    def together(self) -> tuple[Fix, ...]:
        """Fixes of several changes each: the fewest changes with the fewest bytes copied, and with the lowest peak.
        Empty if a single change does as well. Takes some seconds if many ops were missed."""
        units = [group.changes for group in self.groups if (fix := group.fix) is not None and fix.saves > 0]
        orders = [self.other_order.fix.changes] if self.other_order is not None else []
        return together(index_of(self.trace), orders + units)

    @cached_property
    def findings(self) -> Findings:
        """Everything that costs memory or endangers results, ranked; see `kvviz.findings`."""
        index = index_of(self.trace)
        # The search for another order must not hold this report, which would then wait for the collector.
        other = partial(_other_order, index)
        return Findings(
            ranked(index, self.peak, self.groups, self.held_too_long, self.caches, self.cache_warnings, other)
        )

    @cached_property
    def verdict(self) -> tuple[Finding, ...]:
        """The findings to know first, each with the one change that helps most."""
        return leading(self.findings)


def _other_order(index: Index) -> OtherOrder | None:
    return noted(index.notes, "other order", lambda: lower_peak(index))
