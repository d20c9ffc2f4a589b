"""The findings of a report in one ranked list: what endangers results, what costs memory, or that there is neither.

Invariant: the savings of a change are computed from the fixes of all steps that it helps, and are claimed for these
steps only. Changes are tried when `Finding.cure` is read; the list alone tries none, except an order with a lower peak
if there is nothing else to report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from kvviz.caches.cache_warnings import CacheWarning
from kvviz.explain.cache_findings import WRONG, CacheFinding
from kvviz.explain.retention import ASKED, Held, Peak
from kvviz.explain.sentences import REFUSALS, in_order, nearest
from kvviz.explain.summary import NOT_ASKED
from kvviz.fixes.combinations import together
from kvviz.fixes.fix import Fix, fix_for
from kvviz.fixes.lower_peak import OtherOrder
from kvviz.query.grammar import LONGEST
from kvviz.report.declared_findings import declared_findings, pair_findings
from kvviz.report.finding import Cure, Finding, Part
from kvviz.report.finding_groups import MissedGroup, held_groups
from kvviz.trace.blockers import BlockerCode
from kvviz.trace.index.value_index import Index
from kvviz.trace.units import buffer, count, decodes, in_kept_runs, keeps_all, kept_runs, short, size

_WORDS = {"thrown away": "reserved buffer thrown away", "moved": "moved by the caller"}
# Maximum steps of a kind of op, and maximum kinds of a finding, for which a change is searched for.
_MOST_STEPS, _MOST_KINDS = 500, 6
# Missed bytes are reported from this share of all bytes on.
_WORTH = 1 / 100
# Maximum kinds of missed ops whose causes are examined, listed causes, and groups of storages held too long.
_LOOKED_AT, _CAUSES, _HELD = 60, 8, 4
# Maximum names listed of a group at the peak, and parts of a finding.
_NAMES, _PARTS = 12, 200


def ranked(
    index: Index,
    top: Peak,
    groups: Sequence[MissedGroup],
    held: Sequence[Held],
    caches: Sequence[CacheFinding],
    warnings: Sequence[CacheWarning],
    other: Callable[[], OtherOrder | None],
) -> tuple[Finding, ...]:
    """Dangers to results first, then costs, and last what needs no action. The peak ranks by its bytes besides the
    weights. ``warnings``: from `kvviz.cache_warnings`, so that all places count the same. ``other``: searches for an
    order with a lower peak."""
    if not index.rows and not top.bytes:
        return (Finding("nothing", "nothing has run", calm=True),)
    trace = index.trace
    pairs, declared = pair_findings(trace), declared_findings(trace)
    past = next((one for one in caches if one.kind == "copied"), None)
    copied = [] if past is None else [_copied(index, past, groups, warnings)]
    missed = list(_missed(index, groups, frozenset(copied[0].at if copied else ())))
    warned = [one for one in caches if one.kind != "copied" and one.caches]
    without = [Finding("cache", one.sentence) for one in caches if not one.caches]
    # A runtime that decided what to overwrite did so for its own order.
    certain = ("broken",) if trace.policy.decides else ("broken", "hidden")
    danger = [one for one in pairs if one.kind == "broken"]
    danger += [_cache(index, one) for one in warned if one.kind in WRONG]
    danger += [one for one in declared if one.kind == "warning"]
    danger += [one for one in pairs if one.kind in certain and one.kind != "broken"]
    costs = [*copied, *missed, _peak(index, top, other)]
    # Copies and peaks are of all runs. Misses rank as if the other runs had missed as much as those that were searched,
    # so that the order is that of a whole recording; their bytes are as counted.
    searched = 1.0 if keeps_all(trace) else len(kept_runs(trace)) / len(trace.runs)
    counted = {"miss": lambda nbytes: nbytes / searched, "peak": lambda nbytes: nbytes - top.groups.get("weights", 0)}
    costs.sort(key=lambda one: (-one.time, -counted.get(one.kind, float)(one.bytes)))
    costs += [_cache(index, one) for one in warned if one.kind not in WRONG]
    costs += [one for one in declared if one.kind != "warning"]
    costs += _held(index, held)
    rest = [one for one in pairs if one.kind not in certain]
    found = [*danger, *without, *costs, *rest]
    if not trace.policy.decides:
        found.append(Finding("nothing", NOT_ASKED, calm=True))
    elif not (copied or missed or warned or without) and other() is None:
        found.append(_nothing(index, groups))
    elif trace.caches and not warnings and not without:
        found.append(Finding("nothing", "no cache warning", calm=True))
    return tuple(sorted(found, key=lambda one: one.calm))


def leading(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that a summary names: of missed ops only the first, and no storages that were held too long."""
    missed = False
    chosen = []
    for one in findings:
        if one.kind == "held" or (one.kind == "miss" and missed):
            continue
        missed |= one.kind == "miss"
        chosen.append(one)
    return tuple(chosen)


def _scope(index: Index) -> str:
    return in_kept_runs(index.trace).removeprefix("in the ") or "all runs"


def _peak(index: Index, top: Peak, other: Callable[[], OtherOrder | None]) -> Finding:
    weights = top.groups.get("weights", 0)
    when = f" in run {top.run}" if top.run is not None else ""
    when = when if top.step is None else f" at step {top.step:,}"
    title = f"peak {size(top.bytes)}{when}" + (f" · weights {size(weights)}" if weights else "")
    about = None if top.step is None else ("node", index.rows[top.step].op.node.name)
    where = ", ".join(f"{group} {size(nbytes)}" for group, nbytes in top.groups.items() if group != "weights")
    at = () if top.step is None else (top.step,)
    parts = tuple(_peak_part(top, group, nbytes) for group, nbytes in top.groups.items())
    return Finding("peak", title, top.bytes, at, top.step, about, where, parts=parts, find=partial(_order_cure, other))


def _peak_part(top: Peak, group: str, nbytes: int) -> Part:
    members = sorted((part for part in top.parts if part.group == group), key=lambda part: -part.bytes)
    named = [f"{part.name} {size(part.bytes)}" for part in members[:_NAMES]]
    more = f" and {len(members) - _NAMES:,} more" if len(members) > _NAMES else ""
    return Part(group, nbytes, ", ".join(named) + more)


def _order_cure(other: Callable[[], OtherOrder | None]) -> Cure | None:
    found = other()
    return None if found is None else Cure(found.fix, None, found.bytes, str(found))


def _copied(
    index: Index, past: CacheFinding, groups: Sequence[MissedGroup], warnings: Sequence[CacheWarning]
) -> Finding:
    rows = index.rows
    at = _widest(index, past.steps)
    title = f"{size(past.bytes)} of past copied in {count(past.times, _unit(index))}"
    where = f"{count(len(past.caches), 'cache')} × {count(past.times, _unit(index))}"
    about = ("node", rows[at[0]].op.node.name)
    find, steps = partial(_best, index, at), frozenset(at)
    parts = tuple(_part_of_past(index, group, steps) for group in groups if _copies(group, steps))
    about_caches = [one for one in warnings if one.cache in past.caches]
    if about_caches:
        parts += (Part(count(len(about_caches), "cache warning"), where=about_caches[0].sentence),)
    runs = count(len(index.trace.runs), "run")
    scope = "all runs" if keeps_all(index.trace) else f"all {runs}, steps of {len(kept_runs(index.trace)):,} kept"
    return Finding("copied", title, past.bytes, at, at[0], about, where, past.sentence, scope, parts=parts, find=find)


def _copies(group: MissedGroup, past: frozenset[int]) -> bool:
    return sum(step in past for one in group.entries for step in one.steps) * 2 > group.times


def _part_of_past(index: Index, group: MissedGroup, past: frozenset[int]) -> Part:
    """Bytes copied by a kind of op, which may have been missed at other steps, too."""
    at = tuple(sorted(step for step in _steps([group]) if step in past))
    runs = len({index.frames[index.rows[step].frame].run for step in at})
    parts = [(len(group.layers), "layer"), (runs, _unit(index))]
    if len(at) != max(1, len(group.layers)) * runs:
        parts = [(len(at), "step")]
    where = " ".join(f"× {count(n, word)}" for n, word in parts if n > 1)
    return Part(group.label, sum(index.rows[step].copied for step in at), where, at, group)


def _unit(index: Index) -> str:
    return "token" if decodes(index.trace) else "run"


def _kinds(groups: Iterable[MissedGroup]) -> tuple[Part, ...]:
    return tuple(
        Part(group.label, group.bytes, group.often, tuple(sorted(_steps([group]))), group)
        for group in islice(groups, _PARTS)
    )


def _missed(index: Index, groups: Sequence[MissedGroup], past: frozenset[int]) -> Iterator[Finding]:
    """Missed ops by cause; not those that copied ``past`` rows, which are reported already."""
    others = [group for group in groups if not _copies(group, past)]
    kept = [index.trace.runs[run] for run in kept_runs(index.trace)]
    least = max(sum(run.bytes_allocated for run in kept), sum(run.bytes_copied for run in kept)) * _WORTH
    if sum(group.bytes for group in others) <= least:
        return
    causes: dict[tuple[Any, ...], list[MissedGroup]] = {}
    for group in others[:_LOOKED_AT]:
        causes.setdefault(_cause(index, group), []).append(group)
    found = sorted(causes.items(), key=lambda pair: -sum(group.bytes for group in pair[1]))
    for cause, alike in found[:_CAUSES]:
        yield _miss(index, cause, alike, groups)
    rest = [group for _, alike in found[_CAUSES:] for group in alike] + others[_LOOKED_AT:]
    if rest:
        title, at = f"{count(len(rest), 'more kind')} of missed op", _widest(index, _steps(rest))
        nbytes, about = sum(group.bytes for group in rest), ("node", index.rows[at[0]].op.node.name)
        yield Finding("miss", title, nbytes, at, at[0], about, scope=_scope(index), parts=_kinds(rest))


def _cause(index: Index, group: MissedGroup) -> tuple[Any, ...]:
    """Why a group was missed: the codes against the input nearest to being taken over, and the op that reads it
    last."""
    worst = group.worst
    if worst.clones:
        return ("clones",)
    reasons = in_order(nearest(b for b in worst.blockers if b.code is not BlockerCode.OP_CANNOT))
    read_on = {b.input for b in reasons if b.code is BlockerCode.NOT_LAST_USE}
    frame = index.rows[worst.step].frame
    readers = [(step, node.op_type) for name in read_on for node, step in index.readers(frame, name)]
    return (*dict.fromkeys(b.code for b in reasons), max(readers, default=(0, ""))[1])


def _miss(index: Index, cause: tuple[Any, ...], groups: Sequence[MissedGroup], every: Sequence[MissedGroup]) -> Finding:
    """Groups of missed ops with one cause, and the change that removes most of them, if there is one."""
    first, nbytes = groups[0], sum(group.bytes for group in groups)
    ops = list(dict.fromkeys(group.op_type for group in groups))
    named = " and ".join([", ".join(ops[:-1]), ops[-1]] if 1 < len(ops) < 4 else [ops[0]])
    named += f" and {len(ops) - 1} other ops" if len(ops) > 3 else ""
    at = _widest(index, _steps(groups))
    where = f"{len(groups)} ops {_often(index, groups)}" if len(groups) > 1 else f"{first.label} {first.often}"
    return Finding(
        "miss",
        f"{named} {_why(cause, len(ops))}",
        nbytes,
        at,
        first.worst.step,
        ("node", first.worst.node),
        where.strip(),
        next((f"step {first.worst.step:,}: {b.message}" for b in in_order(nearest(first.worst.blockers))), ""),
        _scope(index),
        reasons=tuple(str(part) for part in cause if isinstance(part, BlockerCode)),
        time=sum(group.time for group in groups),
        parts=_kinds(groups),
        find=partial(_first_best, index, groups if cause != ("clones",) else ()),
        asked=_query(every, groups),
    )


def _often(index: Index, groups: Sequence[MissedGroup]) -> str:
    """``"× 29–30 layers × 7 tokens"`` if every group was missed in all of its layers and runs."""
    if len(alike := {group.often for group in groups}) == 1:
        return alike.pop()
    if not all(group.layers and group.times == len(group.layers) * len(group.runs) for group in groups):
        return f"in {count(sum(group.times for group in groups), 'step')}"
    spans = [(sorted({len(group.layers) for group in groups}), "layer")]
    spans += [(sorted({len(group.runs) for group in groups}), _unit(index))]
    return " ".join(f"× {f'{n[0]:,}–' if len(n) > 1 else ''}{count(n[-1], word)}" for n, word in spans if n[-1] > 1)


def _steps(groups: Iterable[MissedGroup]) -> Iterator[int]:
    return (step for group in groups for entry in group.entries for step in entry.steps)


def _widest(index: Index, at: Iterable[int]) -> tuple[int, ...]:
    steps = np.array(sorted(at))
    return tuple(steps[np.argsort(-index.kinds.spent[steps], kind="stable")].tolist())


def _why(cause: tuple[Any, ...], ops: int) -> str:
    """``"cannot overwrite its input: Mul reads it later"``."""
    if cause == ("clones",):
        return "copied captured values for every iteration"
    codes, reader = cause[:-1], cause[-1]
    phrases = [f"{reader} reads it later" if c is BlockerCode.NOT_LAST_USE and reader else REFUSALS[c] for c in codes]
    verb = "append to" if BlockerCode.NO_CAPACITY in codes else "overwrite"
    return f"cannot {verb} {'its' if ops == 1 else 'their'} input" + (f": {', '.join(phrases)}" if phrases else "")


def _query(every: Sequence[MissedGroup], groups: Sequence[MissedGroup]) -> str:
    """A query for the steps of these groups by op and role; also by layers, if others have the same op and role."""
    roles: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        alike = [g for g in every if (g.op_type, g.role) == (group.op_type, group.role)]
        layers = f"layer:{'|'.join(map(str, group.layers))}" if len(alike) > 1 and group.layers else ""
        roles.setdefault((group.op_type, layers), []).append(f'"{group.role}"')
    tests = [
        f'op="{op}" role={"|".join(dict.fromkeys(names))} {layers}'.strip() for (op, layers), names in roles.items()
    ]
    text = f"decision:missed {tests[0]}"
    if len(tests) > 1:
        text = f"decision:missed ({' or '.join(f'({test})' for test in tests)})"
    # A query cannot quote a quotation mark.
    quotable = not any('"' in group.role + group.op_type for group in groups)
    return text if len(text) <= LONGEST and quotable else ""


def _first_best(index: Index, groups: Sequence[MissedGroup]) -> Cure | None:
    cures = (_best(index, _widest(index, _steps([group]))) for group in groups[:_MOST_KINDS])
    return next((cure for cure in cures if cure is not None), None)


def _best(index: Index, steps: Sequence[int]) -> Cure | None:
    ways: dict[Any, list[tuple[Fix, int]]] = {}
    for step in steps[:_MOST_STEPS]:
        for fix, saved in _ways(index, step):
            ways.setdefault(fix.changes, []).append((fix, saved))
    if not ways:
        return _together(index, steps[:_MOST_STEPS])
    best = max(ways.values(), key=lambda found: sum(saved for _, saved in found))
    return Cure(best[0][0], (sum(saved for _, saved in best), len(best)))


def _together(index: Index, steps: Sequence[int]) -> Cure | None:
    """Changes that help the first step that has several of them, though none does alone."""
    for step in steps:
        fixes = [fix_for(index, step, position) for position, _ in index.rows[step].masks]
        units = list(dict.fromkeys(fix.changes for fix in fixes if fix is not None))
        if len(units) > 1:
            found = together(index, units)
            many = {2: "two", 3: "three"}.get(len(units), len(units))
            return Cure(found[0], about=f"None alone; these {many} together. {found[0].sentence}") if found else None
    return None


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


def _cache(index: Index, one: CacheFinding) -> Finding:
    more = f" and {count(len(one.caches) - 1, 'other cache')}" if len(one.caches) > 1 else ""
    run = index.trace.runs[one.run]
    at = one.steps or ((run.first,) if run.last > run.first else ())
    name = next((cache.name for cache in index.trace.caches if cache.input == one.caches[0]), one.caches[0])
    cost = f", {size(one.bytes)}" if one.bytes else ""
    title = f"{_WORDS.get(one.kind, one.kind)}: {name}{more}{cost}, from run {one.run}"
    where, about = count(len(one.caches), "cache"), ("cache", one.caches[0])
    step = at[0] if at else None

    def cure() -> Cure | None:
        return None if (fix := one.fix) is None else Cure(fix)

    return Finding("cache", title, one.bytes, at, step, about, where, one.sentence, _scope(index), find=cure)


def _held(index: Index, held: Sequence[Held]) -> list[Finding]:
    """Storages that were held too long, by value and reason; those that the caller requested need no action."""
    findings = []
    asked = {one.storage for one in held if one.reason.endswith(ASKED)}
    caches = asked & {run.storage for cache in index.trace.caches for run in cache.runs}
    for group in held_groups(index.trace, held)[:_HELD]:
        worst, many = group[0], f" × {count(len(group), 'storage')}" if len(group) > 1 else ""
        nbytes = sum(one.bytes for one in group)
        cache = worst.storage in caches
        title = f"{short(worst.name)} {'lives on between runs, with' if cache else 'kept'} {size(nbytes)}"
        title += "" if cache else " after its last use"
        about = ("storage", str(worst.storage))
        step = worst.last_use if worst.last_use >= 0 else None
        at = () if step is None else (step,)
        where = f"{buffer(worst.storage)}{many}"
        calm = worst.reason.endswith(ASKED)
        why = "it is a cache: the next run goes on with it" if cache else worst.reason
        findings.append(Finding("held", title, nbytes, at, step, about, where, why, _scope(index), calm))
    return findings


def _nothing(index: Index, groups: Sequence[MissedGroup]) -> Finding:
    rest = sum(group.bytes for group in groups)
    allocated = sum(index.trace.runs[run].bytes_allocated for run in kept_runs(index.trace))
    why = "every op that could run in place did"
    if rest:
        why = f"missed ops spent only {size(rest)} of {size(allocated)} allocated"
    return Finding("nothing", f"nothing to gain: {why}", rest, calm=True)
