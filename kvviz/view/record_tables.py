"""How a step and a cache are displayed: a few lines of text, and a table in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.explain.sentences import sentence
from kvviz.report.faces.steps_table import Table
from kvviz.trace.records import Step
from kvviz.trace.units import buffer, count, short, size

_NAME, _TEXT = 48, 400
_FACTS = (("what", "", False, 12), ("is", "", False, _TEXT))
_CACHES = (
    ("name", "cache", False, 28),
    ("protocol", "protocol", False, 9),
    ("input", "input", False, 36),
    ("output", "output", False, 36),
    ("runs", "runs", True, 7),
    ("valid", "valid", True, 9),
    ("capacity", "capacity", True, 9),
    ("copied", "copied", True, 12),
    ("written", "written", True, 12),
)
_CACHE_RUNS = (
    ("run", "run", True, 7),
    ("valid", "valid", True, 9),
    ("capacity", "capacity", True, 9),
    ("rows_written", "rows written", True, 12),
    ("rows_read", "rows read", True, 12),
    ("copied", "copied", True, 12),
    ("written", "written", True, 12),
    ("buffer", "buffer", False, 12),
)


def step_text(step: Step) -> str:
    """A step in a few lines."""
    head, *rest = _step_facts(step)
    return "\n".join([f"{head[0]}: {head[1]}", *(f"  {what}: {fact}" for what, fact in rest)])


def step_table(step: Step) -> Table:
    """A step as a table of two columns."""
    return Table([{"what": what, "is": fact} for what, fact in _step_facts(step)], _FACTS)


def cache_text(cache: Any) -> str:
    """A cache in one line."""
    row = _cache_row(cache)
    axis = "" if cache.axis is None else f", axis {cache.axis}"
    rows = f"{row['valid']:,} of {row['capacity']:,} rows valid, " if cache.runs and cache.axis is not None else ""
    moved = f"{size(row['copied'])} copied, {size(row['written'])} written"
    runs = f"{count(len(cache.runs), 'run')}: {rows}{moved}" if cache.runs else "no run yet"
    carried = f"{short(cache.input, _NAME)} → {short(cache.output, _NAME)}"
    return f"<Cache {short(cache.name, _NAME)!r} ({cache.protocol}{axis}): {carried}; {runs}>"


def cache_table(cache: Any) -> Table:
    """A cache as a table, one row for each run."""
    rows = [
        {
            "run": number,
            "valid": run.valid,
            "capacity": run.capacity,
            "rows_written": run.rows_written,
            "rows_read": run.rows_read,
            "copied": run.bytes_copied,
            "written": run.bytes_written,
            "buffer": "" if run.storage < 0 else buffer(run.storage),
        }
        for number, run in enumerate(cache.runs)
    ]
    return Table(rows, _CACHE_RUNS, f"cache {cache.name} ({cache.protocol})")


def caches_table(caches: Sequence[Any]) -> Table:
    """Caches as a table, one row for each: rows after the last run, bytes of all runs."""
    return Table([_cache_row(cache) for cache in caches], _CACHES)


def _step_facts(step: Step) -> list[tuple[str, str]]:
    where = f" in {' › '.join(step.frame)}" if step.frame else ""
    facts = [(f"step {step.index:,}", f"{step.op_type} {short(step.node, _NAME)}, run {step.run}{where}")]
    facts.append(("reads", ", ".join(short(name, _NAME) for name in step.inputs if name) or "nothing"))
    facts += [("makes", _output(out)) for out in step.outs]
    facts.append(("memory", sentence(step)))
    totals = (("allocated", step.allocated), ("copied", step.copied), ("written", step.written))
    facts.append(("bytes", f"{', '.join(f'{size(n)} {what}' for what, n in totals)}; {size(step.live_bytes)} live"))
    if step.freed:
        facts.append(("frees", short(", ".join(buffer(storage) for storage in step.freed), _TEXT)))
    return facts


def _output(out: Any) -> str:
    form = out.dtype if out.shape is None else f"{out.dtype}{list(out.shape)}"
    return f"{short(out.name, _NAME)} {form} in {out.label} ({out.how})"


def _cache_row(cache: Any) -> dict[str, Any]:
    last = cache.runs[-1] if cache.runs else None
    return {
        "name": cache.name,
        "protocol": cache.protocol,
        "input": cache.input,
        "output": cache.output,
        "runs": len(cache.runs),
        "valid": last.valid if last else 0,
        "capacity": last.capacity if last else 0,
        "copied": sum(run.bytes_copied for run in cache.runs),
        "written": sum(run.bytes_written for run in cache.runs),
    }
