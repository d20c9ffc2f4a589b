"""The answer first: the peak, what was copied and the one change that removes it, the biggest miss, and the caches.

Invariant: the savings of a change are computed from the fixes of all steps that it helps, and are claimed for these
steps only. Nothing is guessed, and nothing is run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kvviz.caches.cache_warnings import CacheWarning
from kvviz.explain.cache_findings import WRONG, CacheFinding
from kvviz.explain.peak import Peak
from kvviz.explain.summary import NOT_ASKED
from kvviz.fixes.fix import Fix, fix_for
from kvviz.fixes.lower_peak import OtherOrder
from kvviz.report.hazard_table import doubts, folded
from kvviz.report.missed_groups import MissedGroup
from kvviz.trace.declared import HOST
from kvviz.trace.hazards import Hazard, hidden_pairs
from kvviz.trace.recording import Trace
from kvviz.trace.run_labels import decodes
from kvviz.trace.units import count, short, size
from kvviz.trace.value_index import Index

# How many warnings are listed one by one.
_WARNINGS = 2
_WORDS = {"thrown away": "reserved buffer thrown away", "moved": "moved by the caller"}
# A change is shown with the biggest miss if it removes this share of it; above this many steps none is searched.
_MOST_OF, _MOST_STEPS = 0.5, 500
# How many codes of a producer, and kinds of hidden pairs, are named.
_CODES, _KINDS = 3, 2
_WARNING = "warning "
# Hidden pairs are searched for in runs up to this many steps in total.
_MOST_PAIRED = 40_000
NONE_HIDDEN = "no hidden dependencies: the graph itself keeps all in order that share bytes"
NONE_SHOWN = "no hidden dependencies that the file shows; it does not say which ops write into memory of another tensor"
# Missed bytes are reported from this share of all bytes on.
_WORTH = 1 / 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing to know first; ``str()`` of it is the sentence.

    Attributes
    ----------
    kind : str
        ``"peak"``, ``"copied"``, ``"miss"``, ``"cache"``, or ``"nothing"`` if there is no gain and no warning;
        ``"warning"`` or ``"transfer"`` for what a producer declared;
        ``"broken"``, ``"hidden"`` or ``"unhidden"`` for pairs whose order only the schedule keeps.
    parts : tuple of (str, str)
        The sentence in pieces, each with what it links to: ``"select"`` (the selection), ``"step"`` or nothing.
    bytes : int
    step : int or None
        The step to look at.
    selection : tuple or None
        What it is about: ``("node", name)``, the node that ran at ``step``, or ``("cache", input)``.
    fix : Fix or None
        The one change that removes most of it.
    left : int or None
        An upper bound of the peak with this change; None for other kinds, or without a fix.
    saves : tuple of (int, int) or None
        Bytes that the change saves at the steps that it helps, and the number of those steps; its effect on others was
        not tried.
    """

    kind: str
    parts: tuple[tuple[str, str], ...]
    bytes: int = 0
    step: int | None = None
    selection: tuple[str, str] | None = None
    fix: Fix | None = None
    left: int | None = None
    saves: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        """The sentence without the fix."""
        return "".join(text for text, _ in self.parts)

    @property
    def change(self) -> str:
        """The fix and what it does: ``"kv_capacity=18 (saves 96 B at this step)"``; empty without one."""
        if self.fix is None:
            return ""
        label = short(self.fix.label, 50)
        if self.saves is None:
            return label if self.left is None else f"{label} → at most {size(self.left)}"
        saved, times = self.saves
        return f"{label} (saves {size(saved)} at {'this step' if times == 1 else f'these {times:,} steps'})"

    def __str__(self) -> str:
        return self.text + (f"; fix: {self.change}" if self.fix is not None else "")


def verdict(
    index: Index,
    top: Peak,
    groups: Sequence[MissedGroup],
    findings: Sequence[CacheFinding],
    warnings: Sequence[CacheWarning],
    other: OtherOrder | None,
) -> tuple[Verdict, ...]:
    """The conclusions of a report in a few sentences: first what may make results wrong, then the peak and the rest.

    ``warnings``: the result of `kvviz.cache_warnings`, so that all places count the same warnings.
    """
    if not index.rows and not top.bytes:
        return (Verdict("nothing", (("nothing has run", ""),)),)
    past = next((one for one in findings if one.kind == "copied"), None)
    steps, copied = (frozenset(past.steps), [_copied(index, past)]) if past is not None else (frozenset(), [])
    # Copies of pasts are reported already.
    others = [g for g in groups if sum(step in steps for one in g.entries for step in one.steps) * 2 <= g.times]
    # Less than that is no gain.
    least = max(index.trace.bytes_allocated, index.trace.bytes_copied) * _WORTH
    worst = others[0] if sum(group.bytes for group in others) > least else None
    warned = [one for one in findings if one.kind != "copied" and one.caches]
    without = [Verdict("cache", ((one.sentence, ""),)) for one in findings if not one.caches]
    declared, hidden = _declared(index.trace), _hidden(index.trace)
    # A runtime that chose what to overwrite did so for the order that it used.
    last = ("hidden",) if index.trace.policy.decides else ()
    found = [one for one in hidden if one.kind == "broken"]
    found += _warnings(index, [one for one in warned if one.kind in WRONG])
    found += [one for one in declared if one.kind == "warning"]
    found += [one for one in hidden if one.kind not in ("broken", "unhidden", *last)]
    found += [one for one in declared if one.kind != "warning"]
    found += [one for one in hidden if one.kind == "unhidden"]
    found.append(_peak(index, top, other))
    found += without
    found += copied
    if worst is not None:
        found.append(_miss(index, worst, "other " if copied and groups[0] is not worst else ""))
    found += _warnings(index, [one for one in warned if one.kind not in WRONG])
    found += [one for one in hidden if one.kind in last]
    if not index.trace.policy.decides:
        found.append(Verdict("nothing", ((NOT_ASKED, ""),)))
    elif worst is None and not copied and other is None and not warned and not without:
        found.append(_nothing(index, groups))
    elif index.trace.caches and not warnings and not without:
        found.append(Verdict("nothing", (("no cache warning", ""),)))
    if warnings:
        parts, first = ((count(len(warnings), "cache warning"), "select"),), warnings[0]
        found.append(Verdict("cache", parts, 0, _first_step(index, first.run), ("cache", first.cache)))
    return tuple(found)


def _peak(index: Index, top: Peak, other: OtherOrder | None) -> Verdict:
    weights = top.groups.get("weights", 0)
    parts = [(f"peak {size(top.bytes)}", "select" if top.step is not None else "")]
    if top.step is not None:
        parts += [(" at ", ""), (f"step {top.step:,}", "step")]
    elif top.run is not None:
        parts.append((f" in run {top.run}", ""))
    parts += [(f" · weights {size(weights)}", "")] if weights else []
    about = None if top.step is None else ("node", index.rows[top.step].op.node.name)
    fix, left = (None, None) if other is None else (other.fix, other.bytes)
    return Verdict("peak", tuple(parts), top.bytes, top.step, about, fix, left)


def _copied(index: Index, past: CacheFinding) -> Verdict:
    """The bytes of pasts that were copied, and the change that removes most of them."""
    rows = index.rows
    step = max(past.steps, key=lambda step: rows[step].copied)
    runs = len({index.frames[rows[step].frame].run for step in past.steps})
    unit = "token" if decodes(index.trace) else "run"
    parts = ((f"{size(past.bytes)} of past copied", "select"), (" in ", ""), (count(runs, unit), "step"))
    fix, saved = _best(index, past.steps)
    about = ("node", rows[step].op.node.name)
    return Verdict("copied", parts, past.bytes, step, about, fix, saves=saved)


def _miss(index: Index, group: MissedGroup, which: str) -> Verdict:
    """The kind of op that spent most, and the change that removes most of it, if there is one."""
    often = f" {group.often}" if group.often else ""
    parts = ((f"biggest {which}miss ", ""), (f"{group.op_type}{often}: {size(group.bytes)}", "select"))
    about = ("node", group.worst.node)
    steps = [step for entry in group.entries for step in entry.steps]
    fix, saved = _best(index, steps) if len(steps) <= _MOST_STEPS and not group.worst.clones else (None, None)
    if saved is None or saved[0] < group.bytes * _MOST_OF:
        return Verdict("miss", parts, group.bytes, group.worst.step, about)
    return Verdict("miss", parts, group.bytes, group.worst.step, about, fix, saves=saved)


def _best(index: Index, steps: Sequence[int]) -> tuple[Fix | None, tuple[int, int] | None]:
    """The one change that saves most at these steps, the bytes saved, and the number of steps that it helps."""
    ways: dict[Any, list[tuple[Fix, int]]] = {}
    for step in steps:
        for fix, saved in _ways(index, step):
            ways.setdefault(fix.changes, []).append((fix, saved))
    if not ways:
        return None, None
    best = max(ways.values(), key=lambda found: sum(saved for _, saved in found))
    return best[0][0], (sum(saved for _, saved in best), len(best))


def _ways(index: Index, step: int) -> list[tuple[Fix, int]]:
    """The fixes that each suffice for a step to spend nothing, with the bytes saved."""
    row = index.rows[step]
    grown = {grow.input for grow in row.op.grows}
    refused = [position for position, _ in row.masks]
    pasts = [position for position in refused if position in grown]
    fixes = [fix for position in pasts or refused if (fix := fix_for(index, step, position)) is not None]
    if pasts:
        # An op with two pasts copies if either is refused.
        if len(fixes) < len(pasts) or any(fix.changes != fixes[0].changes for fix in fixes):
            return []
        return [(fixes[0], max(fix.saves for fix in fixes))]
    return list({fix.changes: (fix, fix.saves) for fix in fixes if fix.saves > 0}.values())


def _warnings(index: Index, found: Sequence[CacheFinding]) -> list[Verdict]:
    """The warnings about caches, in a few words each."""
    verdicts = []
    for one in found[:_WARNINGS]:
        more = f" and {count(len(one.caches) - 1, 'other cache')}" if len(one.caches) > 1 else ""
        step = _first_step(index, one.run)
        name = next((cache.name for cache in index.trace.caches if cache.input == one.caches[0]), one.caches[0])
        cost = f", {size(one.bytes)}" if one.bytes else ""
        begun = (f"run {one.run}", "" if step is None else "step")
        parts = ((f"{_WORDS.get(one.kind, one.kind)}: {name}{more}{cost}", "select"), (", from ", ""), begun)
        verdicts.append(Verdict("cache", parts, one.bytes, step, ("cache", one.caches[0])))
    if len(found) > _WARNINGS:
        verdicts.append(Verdict("cache", ((f"{count(len(found) - _WARNINGS, 'more finding')} about caches", ""),)))
    return verdicts


def _first_step(index: Index, number: int) -> int | None:
    """The first step of a run, if its steps were kept."""
    run = index.trace.runs[number]
    return run.first if run.last > run.first else None


def _nothing(index: Index, groups: Sequence[MissedGroup]) -> Verdict:
    rest = sum(group.bytes for group in groups)
    why = "every op that could run in place did"
    if rest:
        why = f"missed ops spent only {size(rest)} of {size(index.trace.bytes_allocated)} allocated"
    return Verdict("nothing", ((f"nothing to gain: {why}", ""),), rest)


def _hidden(trace: Trace) -> list[Verdict]:
    """Broken pairs first, then hidden ones, or a sentence that there are none.

    Empty if ops did not declare what they touch: finding the pairs would take longer than everything else.
    """
    if not trace.log.declared.accesses or trace.live is not None:
        return []
    runs = [run for run in trace.runs if run.last > run.first]
    looked = [run for run in runs if run is runs[0] or run.last - runs[0].first <= _MOST_PAIRED]
    where = f" in the first {count(len(looked), 'run')} of {len(runs):,}" if len(looked) < len(runs) else ""
    found = [pair for run in looked for pair in hidden_pairs(trace, run.index) if pair.exact]
    broken = [pair for pair in found if pair.broken]
    hidden = [pair for pair in found if not pair.broken]
    verdicts = []
    if broken:
        words = f"{count(len(broken), 'pair')} in the wrong order{where}"
        verdicts.append(_of_pairs("broken", words, f": {broken[0].sentence}{_ids(trace, broken[0])}", broken))
    if hidden:
        words = f"{count(len(hidden), 'hidden pair')}{doubts(hidden)}{where}"
        rest = f"; nothing but the order of the list keeps {'them' if len(hidden) > 1 else 'it'}"
        rest += "" if trace.policy.decides else f": {_kinds(trace, hidden)}"
        verdicts.append(_of_pairs("hidden", words, f"{rest}{_ids(trace, hidden[0])}", hidden))
    none = NONE_SHOWN if any(_id(trace, run.first) for run in looked) else NONE_HIDDEN
    return verdicts or [Verdict("unhidden", ((f"{none}{where}", ""),))]


def _of_pairs(kind: str, words: str, rest: str, pairs: list[Hazard]) -> Verdict:
    nbytes = sum(pair.exact for pair in pairs)
    return Verdict(kind, ((words, "step"), (rest, "")), nbytes, pairs[0].second)


def _ids(trace: Trace, pair: Hazard) -> str:
    """The names of the first pair's nodes in a DOT file."""
    ids = [_id(trace, step) for step in (pair.first, pair.second)]
    return f" (the first: {ids[0]} → {ids[1]})" if all(ids) else ""


def _id(trace: Trace, step: int) -> Any:
    """The name of a node in the DOT file that the graph was read from; None for other graphs."""
    return trace.steps[step].graph_node.attributes.get("id")


def _kinds(trace: Trace, pairs: list[Hazard]) -> str:
    titles = folded(trace, pairs)[1]
    more = f" and {count(len(titles) - _KINDS, 'other kind')}" if len(titles) > _KINDS else ""
    return "; ".join(islice(titles, _KINDS)) + more


def _declared(trace: Trace) -> list[Verdict]:
    """Warnings first, then transfers; empty if the producer declares no marks and everything is in one memory."""
    declared, last = trace.log.declared, len(trace.log) - 1
    verdicts = []
    warned = [mark for mark in declared.marks if mark.kind.startswith(_WARNING)]
    if warned and last >= 0:
        codes = Counter(mark.kind.removeprefix(_WARNING).lower().replace("_", " ") for mark in warned)
        kinds = [f"{code} × {n}" if n > 1 else code for code, n in codes.most_common(_CODES)]
        more = f" and {count(len(codes) - _CODES, 'other kind')}" if len(codes) > _CODES else ""
        step = min(max(0, warned[0].after), last)
        parts = ((count(len(warned), "warning"), "step"), (f": {', '.join(kinds)}{more}", ""))
        verdicts.append(Verdict("warning", parts, sum(mark.nbytes for mark in warned), step))
    if any(place.space != HOST.space for place in declared.places.values()):
        moved = _transfers(trace)
        total = sum(nbytes for _, nbytes in moved)
        most = max(moved, key=lambda one: one[1], default=(None, 0))[0]
        runs = f" for {count(len(trace.runs), 'submit')}" if len(trace.runs) > 1 else ""
        link = f"{size(total)} over the host link" if moved else "nothing went over the host link"
        words = f" in {count(len(moved), 'transfer')}{runs}" if moved else ""
        verdicts.append(Verdict("transfer", ((link, "step" if moved else ""), (words, "")), total, most))
    return verdicts


def _transfers(trace: Trace) -> list[tuple[int, int]]:
    """(step, bytes) of every op that copied from the host's memory into another one, or back."""
    declared, found = trace.log.declared, []
    for step, accesses in declared.accesses.items():
        copied = trace.log[step].copied
        spaces = [
            {declared.places.get(a.storage, HOST).space for a in accesses if a.writes is w} for w in (False, True)
        ]
        if copied and HOST.space in spaces[0] ^ spaces[1]:
            found.append((step, copied))
    return found
