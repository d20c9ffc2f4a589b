"""The report on a trace on one screen of text.

Invariant: the text depends only on the report, and the report only on what was recorded.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from kvviz.explain.retention import Peak, PeakPart
from kvviz.explain.summary import Counts
from kvviz.report.diagnosis import Diagnosis
from kvviz.report.faces.report_data import before_or_in, model_facts, moved_outside, totals
from kvviz.report.faces.steps_table import Table
from kvviz.report.finding import Finding
from kvviz.report.finding_groups import by_time
from kvviz.trace.recording import Trace
from kvviz.trace.records import Run
from kvviz.trace.units import (
    buffer,
    count,
    in_kept_runs,
    keeps_all,
    kept_runs,
    run_label,
    short,
    size,
    steps_summary,
    with_short_names,
)

# Numbers of entries that fit on one screen; the data has everything.
_RUNS, _PARTS, _FINDINGS, _EXAMPLES, _CACHES = 3, 3, 8, 3, 2
_LINES, _WIDTH = 48, 118
CURED = 4
"""The text shows fixes of this many findings; those of others are searched for when they are read."""
# Of many runs with steps, this many from the start are shown, and the last one.
_KEPT = 4
_INDENT = " " * 12


def report_text(found: Diagnosis) -> str:
    trace = found.trace
    blocks = [
        [_model_line(trace), *_totals(trace), _numbers(found)],
        _finding_lines(found),
        _runs(trace),
        _peak_lines(trace, found.peak),
        [],
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


def spent_on(found: Diagnosis) -> str:
    """Bytes spent by ops that did not run in place; empty if none."""
    c = found.counts
    spent = [f"missed ops spent {size(c.missed_bytes)}"] if c.missed_bytes else []
    if c.cannot_bytes and found.trace.policy.decides:
        spent.append(f"ops that cannot by kind spent {size(c.cannot_bytes)}")
    return f"{'; '.join(spent)}{kept_part(found.trace)}" if spent else ""


def _finding_lines(found: Diagnosis) -> list[str]:
    """The first findings: bytes, title, place and change, and of the first also an example."""
    spent = spent_on(found)
    head = f"findings{by_time(found.groups)}"
    lines = [f"{head}: {spent}" if spent else head]
    shown = found.findings[:_FINDINGS]
    for rank, one in enumerate(shown, 1):
        lines += _wrapped(one.title, _INDENT, f"{rank:>3}  {size(one.bytes) if one.bytes else '':>8}  ")
        # Fixes of later ones take as long to find, and gain less.
        fix = f"fix: {one.change}" if rank <= CURED and one.change else ""
        about = "; ".join(part for part in (one.where, fix) if part)
        if about:
            lines += _wrapped(about, _INDENT, _INDENT)
        if fix and one.cure is not None:
            lines += _wrapped(one.cure.about, _INDENT, _INDENT)
        if one.example and (rank <= _EXAMPLES or one.kind == "held"):
            lines += _example(one)
    rest = found.findings[_FINDINGS:]
    return lines + ([f"{_INDENT}{count(len(rest), 'more finding')} and all fixes: report.findings"] if rest else [])


def _example(one: Finding) -> list[str]:
    """The example of a finding on one line, first with shortened names, then wrapped if it is still too long."""
    cut = one.example
    names = [word.strip(",:;()") for word in one.example.split()]
    for limit in (60, 40, 28):
        cut = with_short_names(one.example, names, limit)
        if len(_INDENT) + len(cut) <= _WIDTH:
            break
    return _wrapped(cut, _INDENT, _INDENT)


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


def _cache_lines(trace: Trace, limit: int) -> list[str]:
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
