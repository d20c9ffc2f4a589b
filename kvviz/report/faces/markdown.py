"""A step, or the report on a trace, as Markdown for a GitHub thread."""

from __future__ import annotations

from typing import Any

from kvviz.explain.sentences import ended, rule, sentence
from kvviz.explain.summary import distinct
from kvviz.fixes.fix import Fix
from kvviz.fixes.fix_wording import as_before, caller
from kvviz.report.diagnosis import Diagnosis
from kvviz.report.faces.markdown_text import REPORT, STEP, filled
from kvviz.report.faces.report_text import written_elsewhere
from kvviz.report.finding import Finding, Part
from kvviz.runtimes.named_policies import NAMED
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.trace.units import count, place_of, run_label, size, steps_summary
from kvviz.version import VERSION

# The maximum numbers of tokens of a prompt, findings, and fixes with their code that are shown.
_PROMPT, _FINDINGS, _FIXES = 400, 12, 3
_DIGITS = 16


def to_markdown(report: Diagnosis, step: int | None = None) -> str:
    trace = report.trace
    if step is None:
        return filled(REPORT, {**about(trace), **_report_facts(report), "again": "\n".join(again(trace))})
    return filled(STEP, {**about(trace), **step_facts(report, trace.steps[step])})


def about(trace: Trace) -> dict[str, str]:
    """The footer of shared texts: the model, the version, and the policy."""
    name, digest = trace.model
    version = trace.policy.version
    policy = f"{trace.policy.name}, {version}" if version else trace.policy.name
    return {"file": name, "sha256": digest[:_DIGITS], "version": VERSION, "policy": policy}


def again(trace: Trace, step: str | int | None = None) -> list[str]:
    """Three lines of Python that reproduce the trace and show a step of it, by default its end."""
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
