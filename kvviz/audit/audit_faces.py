"""An audit as Markdown for a pull request, as JUnit's XML, and as SARIF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from kvviz.audit.audit_rows import AuditRow, ModelChange
from kvviz.report.faces.markdown_text import code, text
from kvviz.report.faces.sarif import sarif_log
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
    """A quoted attribute of XML, which has no control characters."""
    return quoteattr("".join(sign if sign.isprintable() else " " for sign in raw))


def audit_sarif(rows: Sequence[AuditRow]) -> dict[str, Any]:
    """One result for each finding of each model and policy."""
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
