"""A step, or the report on a trace, as Markdown for a GitHub thread, from templates. The page fills in the same ones,
which are part of the payload's table of codes.

A template is a list of blocks ``[each, head, lines]``. A placeholder is ``{name}`` for text, ``{name|code}`` for a
name, ``{name|raw}`` inside a fence. Without ``each``, a line is left out if a fact of it is empty, and a block if none
of its lines is left; else the lines are repeated for every entry of the fact ``each``.

Invariant: no name from a model becomes markup, breaks out of a table cell, or mentions a GitHub user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvviz.explain.sentences import ended, rule, sentence
from kvviz.explain.summary import distinct
from kvviz.fixes.fix import Fix
from kvviz.fixes.fix_wording import as_before, caller
from kvviz.report.diagnosis import Diagnosis
from kvviz.report.faces.report_text import written_elsewhere
from kvviz.report.finding import Finding, Part
from kvviz.runtimes.named_policies import NAMED
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.trace.units import count, place_of, run_label, size, steps_summary, visible
from kvviz.version import VERSION

FIGURES: dict[str, tuple[str, str]] = {
    "live": ("live while the op ran", "bytes alive while this op ran: what it reads, makes, and what others hold"),
    "held": ("held after", "bytes still alive when this op was over, and what it was the last to need was freed"),
    "peak": ("peak", "the largest number of bytes alive while any op ran"),
    "allocated": ("allocated", "bytes of new capacity"),
    "copied": ("copied", "the part of what was written that existed before and was only moved"),
    "written": ("written", "bytes that kernels stored"),
    "missed": ("missed", "bytes that ops spent which could have run in place, or have been views"),
}
"""By key: the name, and what it counts. Weights and arrays of the caller count as alive."""


Template = Sequence[tuple[str, Sequence[str], Sequence[str]]]

_MODEL = ("| model | {file|code} |", "| SHA-256 of the file | {sha256|code} |", "| kvviz | {version} |")
_POLICY = "| policy | {policy} |"
_AGAIN: Template = [("", ["To see it again:", "", "```python"], ["{again|raw}\n```"])]
_FIX = ("fixes", (), ("**Fix: {label}.** {of}{sentence}\n\n```python\n{code|raw}\n```",))
_TABLE = ("| | |", "| --- | --- |")

STEP: Template = [
    ("", (), ("### Step {step}: {op}",)),
    ("", (), ("{sentence}",)),
    (
        "",
        _TABLE,
        (
            "| node | {node|code} |",
            "| where | {where} |",
            "| decision | {decision} |",
            "| rule | {rule} |",
            f"| {FIGURES['allocated'][0]} | {{allocated}} |",
            f"| {FIGURES['copied'][0]} | {{copied}} |",
            f"| {FIGURES['written'][0]} | {{written}} |",
            f"| {FIGURES['live'][0]} | {{live}} |",
            f"| {FIGURES['held'][0]} | {{held}} |",
            "| the same miss | {repeated} |",
            *_MODEL,
            _POLICY,
        ),
    ),
    (
        "blockers",
        ("| blocked by | input | reason |", "| --- | --- | --- |"),
        ("| {code|code} | {input|code} | {message} |",),
    ),
    _FIX,
    *_AGAIN,
]
STORAGE: Template = [
    ("", (), ("### Buffer {buffer}: {size}",)),
    (
        "",
        _TABLE,
        (
            "| first value | {name|code} |",
            "| owner | {owner} |",
            "| made | {made} |",
            "| freed | {freed} |",
            "| held too long | {reason} |",
            *_MODEL,
            _POLICY,
        ),
    ),
    *_AGAIN,
]
CACHE: Template = [
    ("", (), ("### Cache {name|code}",)),
    (
        "",
        _TABLE,
        (
            "| protocol | {protocol} |",
            "| in | {where} |",
            "| valid rows | {valid} |",
            "| reserved rows | {capacity} |",
            "| copied | {copied} |",
            "| written | {written} |",
            *_MODEL,
            _POLICY,
        ),
    ),
    *_AGAIN,
]
REPORT: Template = [
    ("", (), ("### {title}",)),
    (
        "",
        _TABLE,
        (
            "| steps | {steps} |",
            "| peak | {peak} |",
            "| allocated | {allocated} |",
            "| copied | {copied} |",
            "| ran in place | {in_place} |",
            "| missed | {missed} |",
            "| caches | {without} |",
            *_MODEL,
            _POLICY,
        ),
    ),
    (
        "findings",
        ("| bytes | finding | where | fix |", "| ---: | --- | --- | --- |"),
        ("| {bytes} | {title} | {where} | {change} |",),
    ),
    _FIX,
    *_AGAIN,
]
# What the page fills in itself.
TEMPLATES: dict[str, Template] = {"step": STEP, "storage": STORAGE, "cache": CACHE}

_PLACE = re.compile(r"\{(\w+)(?:\|(\w+))?\}")
# An underscore within a word is no markup.
_SIGNS = re.compile(r"([\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_]))")
# GitHub would notify a user, or link an issue.
_CALLS = re.compile(r"@(?=\w)|#(?=\d)")


def text(raw: str) -> str:
    """Text escaped for Markdown.

    Examples
    --------
    >>> text("a|b_c <b> @me #1")
    'a\\\\|b_c \\\\<b\\\\> @<!-- -->me #<!-- -->1'
    """
    return _CALLS.sub(r"\g<0><!-- -->", _SIGNS.sub(r"\\\1", visible(raw)))


def code(raw: str) -> str:
    """A name between backticks, with more of them if the name contains some; empty for an empty name.

    Examples
    --------
    >>> code("a|b"), code("a`b"), code("")
    ('`a\\\\|b`', '``a`b``', '')
    """
    if not raw:
        return ""
    shown = visible(raw)
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    room = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{room}{shown}{room}{fence}".replace("|", "\\|")


def filled(template: Template, facts: Mapping[str, Any]) -> str:
    """The text of a template; ``facts``: strings, and under an ``each`` a list of such mappings."""
    blocks = []
    for each, head, lines in template:
        filled_lines = (
            [_line(line, entry) for entry in facts.get(each, ()) for line in lines] if each else _known(lines, facts)
        )
        if filled_lines:
            blocks.append("\n".join([*head, *filled_lines]) if head or not each else "\n\n".join(filled_lines))
    return "\n\n".join(blocks) + "\n"


def _known(lines: Sequence[str], facts: Mapping[str, Any]) -> list[str]:
    return [_line(line, facts) for line in lines if all(facts.get(name) for name, _ in _PLACE.findall(line))]


def _line(line: str, facts: Mapping[str, Any]) -> str:
    ways: dict[str, Callable[[str], str]] = {"": text, "code": code, "raw": str}
    return _PLACE.sub(lambda place: ways[place[2] or ""](str(facts.get(place[1], ""))), line)


# -- facts ------------------------------------------------------------------------------------------------------------
# What the templates are filled with.


# How many tokens of a prompt, findings, and fixes with their code are shown.
_PROMPT, _FINDINGS, _FIXES = 400, 12, 3
_DIGITS = 16


def to_markdown(report: Diagnosis, step: int | None = None) -> str:
    """See `Report.to_markdown`."""
    trace = report.trace
    if step is None:
        return filled(REPORT, {**about(trace), **_report_facts(report), "again": "\n".join(again(trace))})
    return filled(STEP, {**about(trace), **step_facts(report, trace.steps[step])})


def about(trace: Trace) -> dict[str, str]:
    """The footer of everything that is shared: the model, the version, and the policy."""
    name, digest = trace.model
    version = trace.policy.version
    policy = f"{trace.policy.name}, {version}" if version else trace.policy.name
    return {"file": name, "sha256": digest[:_DIGITS], "version": VERSION, "policy": policy}


def again(trace: Trace, step: str | int | None = None) -> list[str]:
    """Three lines of Python that reproduce the trace and show a step of it.

    ``step``: its number; by default the debugger opens at the end of the trace.
    """
    shown = "trace" if step is None else f"trace, step={step}"
    return ["import kvviz", f"trace = {_call(trace)}", f"kvviz.debug({shown})"]


def _call(trace: Trace) -> str:
    options, known = trace.options, trace.policy.base in NAMED
    if not (known and trace.policy.decides) or options.kind == "stream":
        return 'kvviz.Trace.load("trace.kvviz")'
    graph = f"kvviz.load({trace.model.name or 'model.onnx'!r})"
    name, given = caller(trace)
    if options.kind == "decode" and not options.dry:
        prompt = trace.prompt if len(trace.prompt) <= _PROMPT and len(trace.batch_tokens) < 2 else None
        given = ["prompt" if prompt is None else repr(list(prompt))]
    parts = [graph, *given, *(part for part in as_before(trace, set()) if not part.startswith("tokenizer="))]
    return f"kvviz.{name}({', '.join(parts)})"


def step_facts(report: Diagnosis, step: Step) -> dict[str, Any]:
    """The values for the template of a step."""
    trace = report.trace
    part = _part_of(report, step)
    blockers = distinct(step.decision.blockers)
    scope = "/".join(step.graph_node.scope)
    where = [run_label(trace, step.run), *step.frame, *([scope] if scope else [])]
    return {
        "step": f"{step.index:,}",
        "op": step.graph_node.qualified_op,
        "sentence": sentence(step, trace),
        "node": step.node,
        "where": " · ".join(where),
        "decision": ended(step),
        "rule": rule(step) if trace.policy.decides else "",
        "allocated": size(step.allocated),
        "copied": size(step.copied),
        "written": size(step.written),
        "live": size(step.live_bytes),
        "held": size(held_after(trace, step)),
        "repeated": "" if part is None else str(part),
        "blockers": [{"code": str(b.code), "input": b.input, "message": b.message} for b in blockers],
        "fixes": [] if part is None or part.fix is None else [_fix(part.fix, of_step(part, step.index))],
        "again": "\n".join(again(trace, step.index)),
    }


def held_after(trace: Trace, step: Step) -> int:
    """Bytes alive after a step: those while it ran, less what it used last."""
    storages, later = trace.log.storages, trace.log.later
    return int(step.live_bytes - sum(storages[s].capacity for s in step.freed if s not in later))


def _part_of(report: Diagnosis, step: Step) -> Part | None:
    """The part of a finding that a missed step belongs to, else one with the same role and op type."""
    if not any(step.index in entry.steps for entry in report.missed):
        return None
    parts = [part for one in report.findings for part in one.parts]
    kind = place_of(report.trace, report.trace.log[step.index]).role, step.op_type
    alike = (part for part in parts if part.group is not None and (part.name, part.group.op_type) == kind)
    return next((part for part in parts if step.index in part.at), next(alike, None))


def of_step(part: Part, step: int) -> str:
    """A prefix for a fix that names the step of its bytes; empty if it is the step shown."""
    worst = step if part.group is None else part.group.worst.step
    return "" if worst == step else f"For step {worst:,}, where this kind of op spent most: "


def _fix(fix: Fix, of: str = "") -> dict[str, str]:
    return {"label": fix.label, "of": of, "sentence": fix.sentence, "code": fix.code}


def _report_facts(report: Diagnosis) -> dict[str, Any]:
    trace, counts, found = report.trace, report.counts, report.findings[:_FINDINGS]
    fixes = {one.fix.label: one.fix for one in reversed(found) if one.fix is not None}
    return {
        "title": trace.title,
        "steps": steps_summary(trace),
        "without": next((one.sentence for one in report.caches if not one.caches), ""),
        "peak": size(trace.peak_bytes),
        "allocated": size(trace.bytes_allocated),
        "copied": size(trace.bytes_copied),
        "in_place": f"{count(counts.in_place, 'step')}{written_elsewhere(counts)}",
        "missed": f"{count(counts.missed, 'step')}, {size(counts.missed_bytes)}",
        "findings": [_finding(one) for one in found],
        "fixes": [_fix(fix) for fix in list(fixes.values())[::-1][:_FIXES]],
    }


def _finding(one: Finding) -> dict[str, str]:
    nbytes = size(one.bytes) if one.bytes else ""
    return {"bytes": nbytes, "title": one.title, "where": one.where, "change": one.change}
