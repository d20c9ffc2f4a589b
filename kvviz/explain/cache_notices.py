"""What the cache meters warn of as findings of the report: one for all caches to which the same happened.

Invariant: what a finding with a fix says already is not said twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvviz.caches.cache_warnings import CacheWarning
from kvviz.explain.cache_findings import CacheFinding
from kvviz.trace.units import count

WRONG = frozenset({"stale rows attended", "newest row not attended", "live rows overwritten"})
"""Kinds of warnings after which results may be wrong."""
# A warning, and the finding that tells the same with bytes and with a fix.
_TOLD = {"past copied": "copied", "reserve thrown away": "thrown away"}


def with_warnings(found: Sequence[CacheFinding], warnings: Sequence[CacheWarning]) -> tuple[CacheFinding, ...]:
    """Findings about caches with what the meters warn of: what makes results wrong first, then what wastes memory."""
    told = {(one.kind, name) for one in found for name in one.caches}
    warned = [w for w in warnings if (_TOLD.get(w.kind), w.cache) not in told]
    wrong = _together(warning for warning in warned if warning.kind in WRONG)
    wasteful = _together(warning for warning in warned if warning.kind not in WRONG)
    return (*wrong, *found, *wasteful)


def _together(warnings: Iterable[CacheWarning]) -> list[CacheFinding]:
    """One finding for all caches that are warned of for the same reason in the same runs."""
    groups: dict[tuple[str, int, int], list[CacheWarning]] = {}
    for warning in warnings:
        groups.setdefault((warning.kind, warning.run, warning.runs), []).append(warning)
    found = []
    for (kind, run, _), group in groups.items():
        caches = tuple(dict.fromkeys(warning.cache for warning in group))
        others = len(caches) - 1
        text = group[0].sentence + (f" (so with {count(others, 'other cache')})" if others else "")
        found.append(CacheFinding(kind, caches, run, 0, text))
    return found
