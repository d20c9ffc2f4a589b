"""The report on a trace as HTML: tables in the notebook's theme, without scripts or network access."""

from __future__ import annotations

from html import escape

from kvviz.explain.peak import GROUPS, Peak, PeakPart
from kvviz.explain.summary import NOT_ASKED
from kvviz.fixes.fix import Fix
from kvviz.report.diagnosis import Diagnosis
from kvviz.report.missed_groups import MissedGroup, best_fixes, hidden_below, ranked, reason_of
from kvviz.report.palette import OWNERS, STATES, Look
from kvviz.report.report_data import before_or_in
from kvviz.report.report_text import kept_part, written_elsewhere
from kvviz.report.retention_groups import HeldGroup, held_groups
from kvviz.trace.kept_runs import keeps_all, steps_summary
from kvviz.trace.recording import Trace
from kvviz.trace.units import buffer, count, short, size, with_short_names

_MISSED, _FIXED, _HELD, _PARTS, _LOOKED_AT = 6, 3, 3, 4, 60
# The look of each group of the peak, with a letter beside its hue.
_LOOKS: dict[str, Look] = {
    "weights": OWNERS["weights"],
    "inputs": OWNERS["caller"],
    "cache": OWNERS["donated"],
    "activations": OWNERS["run"],
    "views": OWNERS["pool"],
    "held too long": STATES["missed"],
    "not recorded": OWNERS["pool"],
}
_LETTERS = dict(zip(GROUPS, "WIKAVHN"))
# JupyterLab right-aligns every cell with a rule that a class cannot override, and strips style sheets without trust.
LEFT = 'style="text-align:left"'

STYLE = """
.kvviz-report{font:13px/1.45 var(--jp-ui-font-family,system-ui,sans-serif);color:var(--jp-ui-font-color1,#1b2430);
background:var(--jp-layout-color1,#fff);max-width:1100px;padding:8px 2px}
.kvviz-report h4{margin:14px 0 4px;font-size:13px}
.kvviz-report p{margin:2px 0}
.kvviz-report .soft{color:var(--jp-ui-font-color2,#5b6675)}
.kvviz-report table{border-collapse:collapse;width:100%;margin:0;table-layout:auto;
font:inherit;color:inherit}
.kvviz-report th,.kvviz-report td{border-bottom:1px solid var(--jp-border-color2,#d5dae1);padding:3px 10px 3px 0;
text-align:left;vertical-align:top;white-space:normal;background:none;color:inherit;overflow-wrap:anywhere}
.kvviz-report td.n,.kvviz-report th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;
overflow-wrap:normal}
.kvviz-report td.g{white-space:nowrap;overflow-wrap:normal}
.kvviz-report code,.kvviz-report pre{font:12px/1.4 var(--jp-code-font-family,ui-monospace,monospace);color:inherit;
background:var(--jp-layout-color2,#eef0f3);border-radius:3px}
.kvviz-report code{padding:0 3px}
.kvviz-report pre{padding:6px 8px;margin:4px 0;white-space:pre-wrap}
.kvviz-report summary{cursor:pointer}
.kvviz-report ul.verdict{margin:6px 0;padding:6px 10px 6px 26px;background:var(--jp-layout-color2,#eef0f3)}
.kvviz-report .bar{display:flex;height:22px;border:1px solid var(--jp-border-color1,#b8c0ca);margin:4px 0}
.kvviz-report .bar span{min-width:3px;overflow:hidden;font-size:11px;line-height:20px;text-align:center;color:#fff;
text-shadow:0 0 2px #000;border-right:1px solid var(--jp-layout-color1,#fff)}
.kvviz-report .key{display:inline-block;width:15px;height:15px;line-height:15px;text-align:center;font-size:10px;
color:#fff;text-shadow:0 0 2px #000;margin-right:4px}
"""


def report_html(found: Diagnosis) -> str:
    """The report as HTML.

    Text and background colours come from the notebook's ``--jp-*`` variables; elsewhere they are those of a light page.
    """
    trace = found.trace
    c = found.counts
    whose = "" if keeps_all(trace) else f"all {count(len(trace.runs), 'run')}: "
    head = (
        f"<p><b>{escape(short(trace.title))}</b> · policy {escape(trace.policy.name)} · "
        f"{steps_summary(trace)} · {whose}peak {size(trace.peak_bytes)} · "
        f"{size(trace.bytes_allocated)} allocated · {size(trace.bytes_copied)} copied</p>"
        f'<p class="soft">{c.in_place:,} ops in place, {count(c.views, "view")}, '
        + (f"{c.missed:,} missed, {c.cannot:,} cannot, which spent " if trace.policy.decides else f"{c.cannot:,} with ")
        + f"{size(c.cannot_bytes)}{'' if trace.policy.decides else ' of new memory'}{kept_part(trace)}"
        + f"{written_elsewhere(c)}</p>"
    )
    parts = [
        head,
        _verdict(found),
        _missed(found),
        _peak(trace, found.peak),
        _order(found),
        _held(found),
        _caches(found),
    ]
    return f'<div class="kvviz-report"><style>{STYLE}</style>{"".join(parts)}</div>'


def _verdict(found: Diagnosis) -> str:
    rows = []
    for one in found.verdict:
        change = f" <b>{escape(one.change)}</b>" if one.change else ""
        rows.append(f'<li class="{one.kind}">{escape(one.text)}{change}</li>')
    return f'<ul class="verdict">{"".join(rows)}</ul>' if rows else ""


def _missed(found: Diagnosis) -> str:
    trace, groups = found.trace, found.groups
    if not trace.policy.decides:
        return f"<h4>Missed in place</h4><p>{NOT_ASKED.capitalize()}.</p>"
    if not groups:
        return "<h4>Missed in place</h4><p>Nothing: every op that could run in place did, or had nothing to spare.</p>"
    kinds = f"{count(len(groups), 'kind')} of op, {count(len(found.missed), 'node')}"
    total = f"{size(sum(group.bytes for group in groups))} in {kinds}{ranked(groups)}{kept_part(trace)}"
    least = hidden_below(groups)
    large = [group for group in groups if group.bytes >= least]
    fixed = best_fixes([group.worst for group in large[_MISSED:_LOOKED_AT]], _FIXED)
    shown = [*large[:_MISSED], *(group for group in large[_MISSED:] if group.worst in fixed)]
    rows = "".join(map(_missed_row, shown))
    rest, hidden = len(large) - len(shown), len(groups) - len(large)
    parts = [f"{count(rest, 'more kind')}: see <code>report.groups</code>"] if rest else []
    parts += [f"{count(hidden, 'kind')} below {size(least)}"] if hidden else []
    more = f'<p class="soft">and {", ".join(parts)}</p>' if parts else ""
    texts = f"<th {LEFT}>op</th><th {LEFT}>why, and what to change</th>"
    head = f'<tr><th class="n">bytes</th>{texts}</tr>'
    return f"<h4>Missed in place: {total}</h4><table><thead>{head}</thead><tbody>{rows}</tbody></table>{more}"


def _missed_row(group: MissedGroup) -> str:
    reason = reason_of(group.worst)
    why = "" if reason is None else escape(with_short_names(reason.message, (reason.input, reason.culprit), 60))
    times = f' <span class="soft">{group.often}</span>' if group.often else ""
    change = "" if reason is None or reason.fix is None else _fix(reason.fix)
    name = f"<b>{escape(group.op_type)}</b> {escape(short(group.label, 80))}"
    return f'<tr><td class="n">{size(group.bytes)}</td><td {LEFT}>{name}{times}</td><td {LEFT}>{why}{change}</td></tr>'


def _fix(fix: Fix) -> str:
    return (
        f"<details><summary>fix: {escape(short(fix.label, 80))}</summary><p>{escape(fix.sentence)}</p>"
        f"<pre>{escape(fix.code)}</pre></details>"
    )


def _peak(trace: Trace, top: Peak) -> str:
    if not top.bytes:
        return ""
    groups = top.groups
    bar = "".join(
        f'<span style="flex:{nbytes};background:{_LOOKS[group].light}" title="{group} {size(nbytes)}">'
        f"{_LETTERS[group] if nbytes > top.bytes * 0.04 else ''}</span>"
        for group, nbytes in groups.items()
    )
    rows = []
    for group, nbytes in groups.items():
        members = [part for part in top.parts if part.group == group]
        names = ", ".join(_named(part) for part in members[:_PARTS])
        more = f" and {len(members) - _PARTS:,} more" if len(members) > _PARTS else ""
        key = f'<span class="key" style="background:{_LOOKS[group].light}">{_LETTERS[group]}</span>'
        rows.append(
            f'<tr><td class="n">{size(nbytes)}</td><td class="g" {LEFT}>{key} {group}</td>'
            f'<td class="soft" {LEFT}>{escape(names)}{escape(more)}</td></tr>'
        )
    when = "" if top.run is None else f" {before_or_in(trace, top.run)}"
    when = when if top.step is None else f" at step {top.step:,}"
    return (
        f'<h4>Peak: {size(top.bytes)}{when}</h4><div class="bar">{bar}</div>'
        f"<table><tbody>{''.join(rows)}</tbody></table>"
    )


def _named(part: PeakPart) -> str:
    return part.name if part.storage is None else f"{buffer(part.storage)} {short(part.name, 40)} {size(part.bytes)}"


def _order(found: Diagnosis) -> str:
    other = found.other_order
    if other is None:
        return ""
    return f"<p>{escape(str(other))}</p>{_fix(other.fix)}"


def _held(found: Diagnosis) -> str:
    held = found.held_too_long
    if not held:
        return ""
    groups, rest = held_groups(found.trace, held)
    rows = "".join(map(_held_row, groups[:_HELD]))
    others = sum(group.times for group in groups[_HELD:])
    more = [f"{others:,} more: see <code>report.held_too_long</code>"] if others else []
    more += [str(rest)] if rest is not None else []
    foot = f'<p class="soft">and {"; ".join(more)}</p>' if more else ""
    last = f'<th class="n">steps</th><th {LEFT}>kept because</th>'
    head = f'<tr><th class="n">bytes</th><th {LEFT}>buffer</th>{last}</tr>'
    title = f"<h4>Held too long: {count(len(held), 'storage')}{kept_part(found.trace)}</h4>"
    return f"{title}<table><thead>{head}</thead><tbody>{rows}</tbody></table>{foot}" if rows else title + foot


def _held_row(group: HeldGroup) -> str:
    one = group.worst
    layers = f" in {group.layers:,} layers" if group.layers > 1 else ""
    times = f' <span class="soft">and {group.times - 1:,} more{layers}</span>' if group.times > 1 else ""
    return (
        f'<tr><td class="n">{size(one.bytes)}</td><td {LEFT}>{buffer(one.storage)} {escape(short(one.name, 40))}'
        f'{times}</td><td class="n">{one.last_use:,} → {"end" if one.freed is None else f"{one.freed:,}"}</td>'
        f"<td {LEFT}>{escape(one.reason)}</td></tr>"
    )


def _caches(found: Diagnosis) -> str:
    if not found.caches:
        return ""
    paragraphs = "".join(
        f"<p>{escape(one.sentence)}</p>{_fix(one.fix) if one.fix is not None else ''}" for one in found.caches
    )
    return f"<h4>Caches</h4>{paragraphs}"
