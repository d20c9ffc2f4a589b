"""The report on a trace as HTML: tables in the notebook's theme, without scripts or network access."""

from __future__ import annotations

from html import escape

from kvviz.explain.retention import GROUPS, Peak, PeakPart
from kvviz.fixes.fix import Fix
from kvviz.report.diagnosis import Diagnosis
from kvviz.report.faces.report_data import before_or_in
from kvviz.report.faces.report_text import kept_part, spent_on, written_elsewhere
from kvviz.report.finding import Finding
from kvviz.report.finding_groups import by_time
from kvviz.report.palette import OWNERS, STATES, Look
from kvviz.trace.recording import Trace
from kvviz.trace.units import buffer, count, keeps_all, short, size, steps_summary, with_short_names

_FINDINGS, _PARTS = 12, 4
# The look of each group of the peak, with a letter besides its hue.
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
.kvviz-report .bar{display:flex;height:22px;border:1px solid var(--jp-border-color1,#b8c0ca);margin:4px 0}
.kvviz-report .bar span{min-width:3px;overflow:hidden;font-size:11px;line-height:20px;text-align:center;color:#fff;
text-shadow:0 0 2px #000;border-right:1px solid var(--jp-layout-color1,#fff)}
.kvviz-report .key{display:inline-block;width:15px;height:15px;line-height:15px;text-align:center;font-size:10px;
color:#fff;text-shadow:0 0 2px #000;margin-right:4px}
"""


def report_html(found: Diagnosis) -> str:
    """The report as HTML. Colours come from the notebook's ``--jp-*`` variables; elsewhere they are those of a light
    page."""
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
        _findings(found),
        _peak(trace, found.peak),
    ]
    return f'<div class="kvviz-report"><style>{STYLE}</style>{"".join(parts)}</div>'


def _findings(found: Diagnosis) -> str:
    shown, rest = found.findings[:_FINDINGS], found.findings[_FINDINGS:]
    rows = "".join(_finding(rank, one) for rank, one in enumerate(shown, 1))
    texts = f'<th {LEFT} width="50%">finding</th><th {LEFT}>what to change</th>'
    head = f'<tr><th class="n"></th><th class="n">bytes</th>{texts}</tr>'
    more = f'<p class="soft">{count(len(rest), "more finding")}: see <code>report.findings</code></p>' if rest else ""
    title = f"Findings{by_time(found.groups)}" + (f": {spent}" if (spent := spent_on(found)) else "")
    return f"<h4>{title}</h4><table><thead>{head}</thead><tbody>{rows}</tbody></table>{more}"


def _finding(rank: int, one: Finding) -> str:
    example = with_short_names(one.example, one.example.split(), 60)
    soft = "".join(f'<div class="soft">{escape(text)}</div>' for text in (one.where, example) if text)
    cure = "" if one.fix is None else f"<b>{escape(one.change)}</b>{_fix(one.fix)}"
    nbytes = size(one.bytes) if one.bytes else ""
    return (
        f'<tr class="{one.kind}"><td class="n">{rank}</td><td class="n">{nbytes}</td>'
        f"<td {LEFT}>{escape(one.title)}{soft}</td><td {LEFT}>{cure}</td></tr>"
    )


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
