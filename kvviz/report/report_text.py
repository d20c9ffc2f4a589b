"""The report on a trace on one screen of text.

Invariant: the text depends only on the report, and the report only on what was recorded.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from kvviz.explain.peak import Peak, PeakPart
from kvviz.explain.sentences import ended
from kvviz.explain.summary import NOT_ASKED, Counts
from kvviz.report.diagnosis import Diagnosis
from kvviz.report.missed_groups import MissedGroup, best_fixes, hidden_below, ranked, reason_of
from kvviz.report.report_data import before_or_in, model_facts, moved_outside, totals
from kvviz.report.retention_groups import held_groups
from kvviz.report.steps_table import Table
from kvviz.trace.blockers import Blocker
from kvviz.trace.kept_runs import in_kept_runs, keeps_all, kept_runs, steps_summary
from kvviz.trace.recording import Trace
from kvviz.trace.records import Run, Step
from kvviz.trace.run_labels import run_label
from kvviz.trace.units import buffer, count, short, size, with_short_names

# What fits on one screen; the data has everything.
_RUNS, _MISSED, _MORE, _PARTS, _HELD, _FINDINGS, _CACHES = 3, 3, 2, 3, 3, 3, 2
_LINES, _WIDTH = 48, 118
# Among this many kinds, those with a fix are searched for.
_LOOKED_AT = 60
# Of many runs with steps, this many from the start are shown, and the last one.
_KEPT = 4
_INDENT = " " * 12


def report_text(found: Diagnosis) -> str:
    """The model, its runs, how its ops ran, what was missed, the peak, what was held too long, and the caches."""
    trace = found.trace
    blocks = [
        [_model_line(trace), *_totals(trace), _numbers(found)],
        _verdict_lines(found),
        _runs(trace),
        _missed_lines(found),
        [*_peak_lines(trace, found.peak), *_order_lines(found), *_held_lines(found)],
        _findings(found),
    ]
    used = sum(len(lines) + 1 for lines in blocks if lines)
    blocks[-1] += _cache_lines(trace, max(_CACHES, _LINES - used))
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _model_line(trace: Trace) -> str:
    facts = model_facts(trace)
    nodes = count(facts["nodes"], "node")
    if facts["nodes_with_bodies"] > facts["nodes"]:
        nodes += f" ({facts['nodes_with_bodies']:,} with those of bodies)"
    opsets = ", ".join(str(v) if d == "ai.onnx" else f"{d} {v}" for d, v in facts["opsets"].items())
    parts = [nodes, f"{count(facts['weights'], 'weight')} of {size(facts['weight_bytes'])}"]
    parts += [f"opset {opsets}"] if opsets else []
    return f"{short(facts['title'])}: {', '.join(parts)}; policy {trace.policy.name}"


def _totals(trace: Trace) -> list[str]:
    figures = [f"{size(value)} {key.split('_')[1]}" for key, value in totals(trace).items() if key != "peak_bytes"]
    # Steps may have been kept for only some runs; the bytes are those of all.
    whose = "" if keeps_all(trace) else f"; all {count(len(trace.runs), 'run')}"
    line = f"{steps_summary(trace)}{whose}: peak {size(trace.peak_bytes)}, "
    figures += [f"{size(moved_outside(trace))} moved outside the graph"] if moved_outside(trace) else []
    return [line + ", ".join(figures)] + (
        ["stopped from the keyboard: only what ran is counted"] if trace.interrupted else []
    )


def _numbers(found: Diagnosis) -> str:
    c = found.counts
    parts = [f"{c.in_place:,} in place", count(c.views, "view")]
    parts += (
        [f"{c.missed:,} missed", f"{c.cannot:,} cannot"]
        if found.trace.policy.decides
        else [f"{c.cannot:,} with new memory"]
    )
    parts += [count(c.bodies, "control node")] if c.bodies else []
    return f"ops: {', '.join(parts)}{kept_part(found.trace)}{written_elsewhere(c)}"


def written_elsewhere(c: Counts) -> str:
    """The steps that were called in place and wrote to other memory, as a suffix."""
    copied = f", copied {size(c.elsewhere_copied)}" if c.elsewhere_copied else ""
    return f"; {c.elsewhere:,} called in place wrote elsewhere{copied}" if c.elsewhere else ""


def kept_part(trace: Trace) -> str:
    """A suffix for sums over steps that names their runs, if these are not all."""
    return "" if keeps_all(trace) else f", {in_kept_runs(trace)}"


def _runs(trace: Trace) -> list[str]:
    """Lines of runs; of many, the first and last ones. If only some runs have steps, those come first."""
    if len(trace.runs) < 2:
        return []
    keys = ["run", "token", "steps", "peak", "allocated", "written", "copied"]
    if all(run.token is None for run in trace.runs):
        keys.remove("token")
    keys += ["moved outside"] if moved_outside(trace) else []
    if keeps_all(trace):
        rows = [_run_row(trace, [run], short(run_label(trace, run.index), 32)) for run in trace.runs]
        return _lines(rows, keys, {"run", "token"}, _RUNS)
    kept = [trace.runs[run] for run in kept_runs(trace)]
    ends = [*kept[:_KEPT], *kept[max(_KEPT, len(kept) - 1) :]]
    ends += [] if trace.runs[-1] in kept else [trace.runs[-1]]
    rest = [run for run in trace.runs if run not in kept and run not in ends]
    rows = [_run_row(trace, [run], short(run_label(trace, run.index), 32)) for run in ends]
    rows += [_run_row(trace, rest, count(len(rest), "other"))] if rest else []
    lines = _lines(rows, keys, {"run", "token"}, len(rows))
    if len(kept) > _KEPT + 1:
        lines.insert(1 + _KEPT, f"… {len(kept) - _KEPT - 1:,} more with steps …")
    return lines


def _run_row(trace: Trace, runs: Sequence[Run], label: str) -> dict[str, str]:
    """The figures of one or several runs: the largest peak, and sums of bytes."""
    steps = sum(run.last - run.first for run in runs)
    return {
        "run": label,
        "token": " ".join(short(part, 24) for part in _token_text(runs[0])) if len(runs) == 1 else "",
        "steps": f"{steps:,}" if steps or keeps_all(trace) else "not kept",
        "peak": size(max(run.peak_bytes for run in runs)),
        "allocated": size(sum(run.bytes_allocated for run in runs)),
        "written": size(sum(run.bytes_written for run in runs)),
        "copied": size(sum(run.bytes_copied for run in runs)),
        "moved outside": size(sum(run.bytes_moved_outside for run in runs)),
    }


def _token_text(run: Run) -> list[str]:
    if run.token is None:
        return []
    return [str(run.token)] if run.text in ("", str(run.token)) else [str(run.token), repr(run.text)]


def _verdict_lines(found: Diagnosis) -> list[str]:
    head, rest = "verdict: ", " " * 9
    return [line for i, one in enumerate(found.verdict) for line in _wrapped(str(one), rest, rest if i else head)]


def _missed_lines(report: Diagnosis) -> list[str]:
    """The kinds of ops that spent most, each with its reason; then a sum of the others, and a count of small ones."""
    trace, least = report.trace, hidden_below(report.groups)
    found = [group for group in report.groups if group.bytes >= least]
    cannot = report.counts.cannot_bytes
    if not trace.policy.decides:
        return [f"missed in place: {NOT_ASKED}"]
    others = f"; ops that cannot by kind spent {size(cannot)}" if cannot else ""
    if not report.missed:
        return [
            f"nothing missed: every op that could run in place did, or had nothing to spare{others}{kept_part(trace)}"
        ]
    total = sum(entry.bytes for entry in report.missed)
    kinds = f"{count(len(report.groups), 'kind')} of op, {count(len(report.missed), 'node')}"
    lines = [f"missed in place: {size(total)} in {kinds}{ranked(report.groups)}{others}{kept_part(trace)}"]
    for group in found[:_MISSED]:
        lines.append(_missed_line(group))
        reason = reason_of(group.worst)
        if reason is not None:
            lines += _message(trace.steps[group.worst.step], reason)
    rest = found[_MISSED:]
    fixed = best_fixes([group.worst for group in rest[:_LOOKED_AT]], _MORE)
    chosen = [group for group in rest if group.worst in fixed]
    chosen += [group for group in rest if group not in chosen][: _MORE - len(chosen)]
    lines += [_missed_line(group) for group in rest if group in chosen]
    left = [group for group in rest if group not in chosen]
    if left:
        lines.append(f"  {size(sum(group.bytes for group in left)):>8}  in {count(len(left), 'more kind')}")
    small = [group for group in report.groups if group.bytes < least]
    if small:
        spent = size(sum(group.bytes for group in small))
        lines.append(f"{_INDENT}hidden: {count(len(small), 'kind')} below {size(least)}, {spent} in all")
    return lines


def _missed_line(group: MissedGroup) -> str:
    """Bytes, op, role, how often, and the fix in a few words."""
    head = f"  {size(group.bytes):>8}  {group.op_type} "
    tail = f" {group.often}" if group.often else ""
    fix = group.fix
    vain = fix is not None and fix.saves <= 0
    if fix is not None:
        tail += f"; fix: {short(fix.label, 50)}" + (" (saves nothing at this step)" if vain else "")
    return head + short(group.label, max(_WIDTH - len(head) - len(tail), 16)) + tail


def _message(step: Step, blocker: Blocker) -> list[str]:
    """A blocker's sentence, and the outcome of the step if it differs from its call."""
    called = f", {ended(step).partition(':')[0]}" if step.outcome == "elsewhere" else ""
    return _reason(f"step {step.index:,}{called}: {blocker.message}", (blocker.input, blocker.culprit), _INDENT)


def _reason(text: str, names: Sequence[str], first: str) -> list[str]:
    """A sentence on one line. If it is too long, names are shortened, and then it is wrapped."""
    cut = text
    for limit in (60, 40, 28):
        cut = with_short_names(text, names, limit)
        if len(first) + len(cut) <= _WIDTH:
            break
    return _wrapped(cut, _INDENT, first)


def _wrapped(text: str, indent: str, first: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=indent)


def _where(frame: tuple[str, ...], node: str) -> str:
    return " › ".join([*(short(part, 32) for part in frame), short(node)])


def _peak_lines(trace: Trace, top: Peak) -> list[str]:
    if top.step is not None:
        when = _at_step(trace, top.step)
    elif top.run is not None:
        when = before_or_in(trace, top.run)
    else:
        when = "of nothing"
    lines = [f"peak: {size(top.bytes)} {when}"]
    if top.parts:
        lines.append("  " + ", ".join(f"{group} {size(nbytes)}" for group, nbytes in top.groups.items()))
    if "not recorded" in top.groups and len(trace.log):
        rows = trace.log
        highest = max(range(len(rows)), key=lambda step: rows[step].live)
        return [*lines, f"  of the steps that were kept: {size(rows[highest].live)} {_at_step(trace, highest)}"]
    others = [part for part in top.parts if part.group != "weights"]
    lines += [f"  {size(part.bytes):>8}  {_part(part)}" for part in others[:_PARTS]]
    rest = others[_PARTS:]
    return lines + ([f"  {size(sum(part.bytes for part in rest)):>8}  {len(rest):,} more"] if rest else [])


def _at_step(trace: Trace, number: int) -> str:
    step = trace.steps[number]
    label, place = short(run_label(trace, step.run), 32), _where(step.frame, step.node)
    return f"at step {number:,} of {len(trace.steps):,} ({label}, {step.op_type} {place})"


def _part(part: PeakPart) -> str:
    if part.storage is None:
        return part.name
    why = {"caller": "borrowed from the caller", "donated": "donated by the caller"}.get(part.origin, "")
    if part.group in ("views", "held too long"):
        why = "kept by views" if part.group == "views" else "held too long"
    return f"{buffer(part.storage)} {short(part.name)}" + (f", {why}" if why else "")


def _order_lines(found: Diagnosis) -> list[str]:
    other = found.other_order
    if other is None:
        return []
    return _wrapped(f"  {str(other).rstrip('.')}; fix: {other.fix.label}", _INDENT, "")


def _held_lines(found: Diagnosis) -> list[str]:
    held = found.held_too_long
    if not held:
        return []
    lines = [f"held too long: {count(len(held), 'storage')}{kept_part(found.trace)}"]
    groups, rest = held_groups(found.trace, held)
    for group in groups[:_HELD]:
        one = group.worst
        until = "the end" if one.freed is None else f"{one.freed:,}"
        when = f"steps {one.last_use:,} to {until}" + (f", and {group.times - 1:,} more" if group.times > 1 else "")
        many = f", in {count(group.layers, 'layer')}" if group.layers > 1 else ""
        line = f"{buffer(one.storage)} {when}{many}: {one.reason}"
        lines += _reason(line, (one.name, short(one.name)), f"  {size(one.bytes):>8}  ")
    others = groups[_HELD:]
    if others:
        total, times = sum(group.bytes for group in others), sum(group.times for group in others)
        lines.append(f"  {size(total):>8}  in {count(times, 'other')}")
    return [*lines, f"{_INDENT}{rest}"] if rest is not None else lines


def _findings(found: Diagnosis) -> list[str]:
    lines: list[str] = []
    for one in found.caches[:_FINDINGS]:
        fix = f"; fix: {one.fix.label}" if one.fix is not None else ""
        head = "caches: " if one.caches else ""
        lines += _wrapped(f"{head}{one.sentence}{fix}", _INDENT, "")
    return lines


def _cache_lines(trace: Trace, limit: int) -> list[str]:
    """Caches with their first and last run; copied and written are bytes of that run."""
    rows = []
    for cache in trace.caches:
        if cache.runs:
            first, last = cache.runs[0], cache.runs[-1]
            alone = len(cache.runs) == 1
            rows.append(
                {
                    "cache": short(cache.name, 32),
                    "protocol": cache.protocol,
                    "capacity": f"{last.capacity:,}",
                    "valid": _ends(f"{first.valid:,}", f"{last.valid:,}", alone),
                    "copied a run": _ends(size(first.bytes_copied), size(last.bytes_copied), alone),
                    "written a run": _ends(size(first.bytes_written), size(last.bytes_written), alone),
                }
            )
    return _lines(rows, list(rows[0]), {"cache", "protocol"}, limit) if rows else []


def _ends(first: str, last: str, alone: bool) -> str:
    return last if alone else f"{first} … {last}"


def _lines(rows: list[dict[str, str]], keys: Sequence[str], words: set[str], limit: int) -> list[str]:
    columns = tuple((key, key, key not in words, 60) for key in keys)
    # Leaving out a single row would save nothing.
    return Table(rows, columns).text(limit if len(rows) > limit + 1 else len(rows)).split("\n")
