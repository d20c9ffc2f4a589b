"""An audit as Markdown for a pull request, as JUnit's XML, as SARIF, and as one HTML page that needs no network."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from html import escape
from typing import Any
from xml.sax.saxutils import quoteattr

from kvviz.audit.audit_rows import AuditRow, ModelChange
from kvviz.report.faces.markdown_text import code, text
from kvviz.report.faces.report_data import sarif_log
from kvviz.trace.units import count, size

_FIGURES = ("peak", "allocated", "copied", "missed")
_CHANGES, _ROWS = 30, 150  # changes and models that a comment shows; GitHub refuses one of more than 65,536 characters
Exceeded = Sequence[tuple[str, str]]


def audit_markdown(
    rows: Sequence[AuditRow], changes: Sequence[ModelChange], passed: Exceeded, summary: str, versions: str
) -> str:
    """A comment: exceeded limits, changed models, and all figures folded away."""
    lines = [f"### kvviz audit: {text(summary)}", ""]
    lines += [f"- ❌ {code(name)}: {text(sentence)}" for name, sentence in passed]
    failed = {name for name, _ in passed}
    lines += [f"- ⚠️ {code(row.name)}: {text(row.note)}" for row in rows if not row.done and row.name not in failed]
    lines += [versions] if versions else []
    different = [change for change in changes if change.state != "same"]
    if different:
        lines += ["", f"**{count(len(different), 'difference')} from the baseline**", ""]
        lines += ["| model | policy | peak | copied | findings |", "| --- | --- | ---: | ---: | --- |"]
        lines += [_change_line(change) for change in different[:_CHANGES]]
        lines += [f"| … {len(different) - _CHANGES} more | | | | |"] if len(different) > _CHANGES else []
        lines += ["", *(_detail(change) for change in different[:_CHANGES] if change.after)]
    elif changes:
        lines += ["", "Nothing changed since the baseline."]
    lines += ["", f"<details><summary>all {len(rows)} models</summary>", ""]
    lines += [f"| model | policy | {' | '.join(_FIGURES)} |", "| --- | --- |" + " ---: |" * len(_FIGURES)]
    for row in rows[:_ROWS]:
        for policy, found in row.policies.items():
            figures = " | ".join(size(found["figures"][name]) for name in _FIGURES)
            lines.append(f"| {code(row.name)} | {policy} | {figures} |")
    rest = [f"| … {len(rows) - _ROWS} more | |{' |' * len(_FIGURES)}"] if len(rows) > _ROWS else []
    return "\n".join([*lines, *rest, "", "</details>", ""])


def _change_line(change: ModelChange) -> str:
    if not change.after:
        return f"| {code(change.name)} | {text(change.state)} | | | |"
    parts = [
        f"{len(found)} {word}"
        for word, found in (("new", change.appeared), ("gone", change.vanished), ("larger", change.larger))
        if found
    ]
    figures = f"{change.grown('peak')} | {change.grown('copied')}"
    return f"| {code(change.name)} | {change.policy} | {figures} | {', '.join(parts)} |"


def _detail(change: ModelChange) -> str:
    lines = [f"<details><summary>{escape(change.name)}, {change.policy}</summary>", ""]
    for word, found in (("new", change.appeared), ("gone", change.vanished)):
        lines += [f"- {word}: {text(one['title'])} ({size(one['bytes'])}){_fix(one)}" for one in found]
    for one, before in change.larger:
        lines.append(f"- larger: {text(one['title'])} ({size(before)} → {size(one['bytes'])}){_fix(one)}")
    lines += [f"- first op that differs: {text(change.first_op)}"] if change.first_op else []
    return "\n".join([*lines, "", "</details>"])


def _fix(finding: dict[str, Any]) -> str:
    return f"; fix: {text(finding['fix'])}" if finding.get("fix") else ""


def audit_junit(rows: Sequence[AuditRow], passed: Exceeded) -> str:
    """A test case for each model; exceeded limits are failures, models that are not done are errors."""
    failed = {name for name, _ in passed}
    broken = sum(not row.done for row in rows)
    failures = sum(row.done and row.name in failed for row in rows)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(f'<testsuite name="kvviz audit" tests="{len(rows)}" failures="{failures}" errors="{broken}">')
    for row in rows:
        lines.append(f'<testcase classname="kvviz.audit" name={_attribute(row.name)} time="{row.seconds:.3f}">')
        if not row.done:
            lines.append(f"<error type={_attribute(row.state)} message={_attribute(row.error)}/>")
        else:
            lines += [f"<failure message={_attribute(text)}/>" for name, text in passed if name == row.name]
        lines.append("</testcase>")
    return "\n".join([*lines, "</testsuite>", ""])


def _attribute(raw: str) -> str:
    """A quoted attribute of XML, without control characters."""
    return quoteattr("".join(sign if sign.isprintable() else " " for sign in raw))


def audit_sarif(rows: Sequence[AuditRow]) -> dict[str, Any]:
    return sarif_log(
        {
            "ruleId": one["reasons"][0] if one["reasons"] else one["kind"],
            "level": "warning" if one.get("fix") else "note",
            "message": {"text": f"{one['title']} under {policy} ({one['where']}). {one['example']}".strip()},
            "locations": [
                {
                    "physicalLocation": {"artifactLocation": {"uri": row.path.replace("\\", "/")}},
                    "logicalLocations": [{"name": one["node"], "kind": "member"}] if one["node"] else [],
                }
            ],
            "partialFingerprints": {"finding/v1": one["key"]},
            "properties": {"bytes": one["bytes"], "steps": one["steps"], "policy": policy},
        }
        for row in rows
        for policy, found in row.policies.items()
        for one in found["findings"]
    )


_COLUMNS = (
    ("model", False),
    ("policy", False),
    ("live bytes", False),
    ("peak", True),
    ("since baseline", True),
    ("allocated", True),
    ("copied", True),
    ("missed", True),
    ("findings", True),
    ("note", False),
)
_STYLE = """
:root{color-scheme:light dark;--ink:#1b2430;--soft:#5b6675;--line:#d5dae1;--pane:#fff;--ground:#f5f6f8;--accent:#1f5fbf;
--bad:#b3261e;--good:#1b6e3c}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#a3adba;--line:#3a424d;--pane:#1c2128;--ground:#14181d;
--accent:#7db1ff;--bad:#ff8a80;--good:#6fd08c}}
body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--ground);margin:0;padding:20px 24px}
h1{font-size:19px;margin:0 0 2px}p{margin:2px 0 12px;color:var(--soft)}
input{font:inherit;padding:5px 9px;width:min(420px,90%);border:1px solid var(--line);border-radius:4px;
background:var(--pane);color:var(--ink);margin-bottom:10px}
.wide{overflow-x:auto;border:1px solid var(--line);border-radius:4px;background:var(--pane)}
table{border-collapse:collapse;width:100%}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{position:sticky;top:0;background:var(--pane);white-space:nowrap}
th button{font:inherit;font-weight:600;border:0;background:none;color:inherit;padding:0;cursor:pointer}
th[aria-sort=ascending] button:after{content:" ▲"}th[aria-sort=descending] button:after{content:" ▼"}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
a{color:var(--accent)}svg{width:110px;height:24px;display:block}path{fill:none;stroke:var(--accent);stroke-width:1.5}
.up{color:var(--bad)}.down{color:var(--good)}
ul{margin:4px 0;padding-left:18px;width:44ch;text-align:left;white-space:normal}summary{cursor:pointer}
td:first-child{overflow-wrap:anywhere;min-width:24ch}td:last-child{overflow-wrap:anywhere;min-width:24ch}
"""
_SCRIPT = """
const body=document.querySelector('tbody'),field=document.querySelector('input')
const heads=[...document.querySelectorAll('th')],text=node=>node.textContent.toLowerCase()
const value=(row,i)=>row.cells[i].dataset.value?+row.cells[i].dataset.value:text(row.cells[i])
heads.forEach((head,i)=>head.querySelector('button').onclick=()=>{
  const up=head.getAttribute('aria-sort')==='descending'||!head.hasAttribute('aria-sort')&&!head.classList.contains('n')
  heads.forEach(other=>other.removeAttribute('aria-sort'))
  head.setAttribute('aria-sort',up?'ascending':'descending')
  const rank=(a,b)=>a===b?0:typeof a!==typeof b?(typeof a==='number'?1:-1):a<b?-1:1
  body.append(...[...body.rows].sort((a,b)=>(up?1:-1)*rank(value(a,i),value(b,i))))})
field.oninput=()=>{const words=field.value.toLowerCase().split(/\\s+/)
  for(const row of body.rows)row.hidden=!words.every(word=>text(row).includes(word))}
"""


def page_name(name: str) -> str:
    """File name of a model's page: readable, and unique for every model."""
    return f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)[-80:]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.html"


def audit_page(rows: Sequence[AuditRow], changes: Sequence[ModelChange], summary: str, versions: str) -> str:
    """The page; without a baseline, ``changes`` is empty."""
    changed = {(change.name, change.policy): change for change in changes}
    head = "".join(f'<th scope="col"{_number(n)}><button>{escape(text)}</button></th>' for text, n in _COLUMNS)
    body = "".join(line for row in rows for line in _lines(row, changed))
    gone = [change.name for change in changes if change.state == "gone"]
    notes = [summary, versions, f"No longer there: {', '.join(gone)}." if gone else ""]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>kvviz audit</title><style>{_STYLE}</style><h1>kvviz audit</h1>"
        f"<p>{escape(' '.join(note for note in notes if note))}</p>"
        '<input type="search" placeholder="search models, policies, findings" aria-label="Search">'
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f"<script>{_SCRIPT}</script></html>\n"
    )


def _lines(row: AuditRow, changed: dict[tuple[str, str], ModelChange]) -> list[str]:
    name = escape(row.name)
    link = f'<a href="pages/{escape(page_name(row.name))}">{name}</a>' if row.page else name
    if not row.done:
        return [f"<tr><td>{link}</td>{'<td></td>' * (len(_COLUMNS) - 2)}<td class='up'>{escape(row.note)}</td></tr>"]
    lines = []
    for policy, found in row.policies.items():
        figures, change = found["figures"], changed.get((row.name, policy))
        cells = [f"<td>{link}</td>", f"<td>{escape(policy)}</td>", f"<td>{_sparkline(found['curve'])}</td>"]
        cells.append(_bytes(figures["peak"]))
        cells.append(_growth(change, new=(row.name, "") in changed))
        cells += [_bytes(figures[key]) for key in ("allocated", "copied", "missed")]
        items = "".join(f"<li>{escape(one['title'])}</li>" for one in found["findings"])
        many = len(found["findings"])
        listed = f"<details><summary>{many}</summary><ul>{items}</ul></details>" if many else "0"
        cells += [f'<td class="n" data-value="{many}">{listed}</td>', f"<td>{_note(row, change)}</td>"]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return lines


def _note(row: AuditRow, change: ModelChange | None) -> str:
    """Notable facts: a dry run, findings that are new, gone or larger, and the first op that differs."""
    notes = [row.note] if row.note else []
    if change is not None and change.state == "changed":
        notes += [f"new: {one['title']}" for one in change.appeared]
        notes += [f"gone: {one['title']}" for one in change.vanished]
        notes += [f"larger: {one['title']}" for one, _ in change.larger]
        notes += [f"first op that differs: {change.first_op}"] if change.first_op else []
    return "<br>".join(map(escape, notes))


def _growth(change: ModelChange | None, new: bool) -> str:
    if change is None:
        return f"<td class=n>{'new' if new else ''}</td>"
    grown = change.after["peak"] - change.before["peak"]
    if not grown:
        return '<td class="n" data-value="0">=</td>'
    sign = "+" if grown > 0 else "−"
    return f'<td class="n {"up" if grown > 0 else "down"}" data-value="{grown}">{sign}{size(abs(grown))}</td>'


def _bytes(number: float) -> str:
    return f'<td class="n" data-value="{number}">{size(number)}</td>'


def _number(numeric: bool) -> str:
    return ' class="n"' if numeric else ""


def _sparkline(curve: Sequence[int]) -> str:
    """The curve between its minimum and maximum: weights, which are always alive, would flatten it."""
    low, top, last = min(curve, default=0), max(curve, default=0), max(len(curve) - 1, 1)
    heights = (23 - 22 * (value - low) / ((top - low) or 1) for value in curve)
    points = " ".join(f"{100 * at / last:.1f},{height:.1f}" for at, height in enumerate(heights))
    box = 'viewBox="0 0 100 24" preserveAspectRatio="none" role="img"'
    about = f"live bytes over the steps, from {size(low)} to {size(top)}"
    return f'<svg {box} aria-label="{about}"><title>{about}</title><path d="M{points}"/></svg>'
