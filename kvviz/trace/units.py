"""Wording of sizes, buffers, counts, runs and layers that every sentence, table and picture shares.

Invariant: the same number is written the same way everywhere. Totals and meters are of all runs, everything else is of
those whose steps were kept; if all were kept, the words do not mention it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Any

from kvviz.graph.layers import Place, inside, places
from kvviz.trace.recording import Trace
from kvviz.trace.schema.element_types import dims as dims

_UNITS = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9))


def size(nbytes: float) -> str:
    """Bytes for a reader: exact below 10,000, then three digits and a decimal unit, as the page writes them.

    Examples
    --------
    >>> size(256), size(2176), size(12345), size(2306867)
    ('256 B', '2,176 B', '12.3 kB', '2.31 MB')
    """
    if abs(nbytes) < 10_000:
        return f"{int(nbytes):,} B"
    unit, scale = next(((u, s) for u, s in _UNITS if abs(nbytes) < 999.5 * s), _UNITS[-1])
    amount = nbytes / scale
    digits = 2 if abs(amount) < 9.995 else 1 if abs(amount) < 99.95 else 0
    return f"{amount:,.{digits}f} {unit}"


def size_of(part: float, whole: float) -> str:
    """Part of a whole in bytes; a common unit is written once: ``0 of 2,176 B``."""
    first, second = size(part), size(whole)
    number, _, unit = first.partition(" ")
    return f"{number if unit == second.partition(' ')[2] else first} of {second}"


def buffer(storage: int, generation: int = 0) -> str:
    """Name of a storage: ``B12``, and ``B12.3`` after it was overwritten in place three times."""
    return f"B{storage}.{generation}" if generation else f"B{storage}"


def count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def short(text: str, limit: int = 60) -> str:
    """Text cut in the middle to at most ``limit`` characters, control characters made visible."""
    clean = visible(text)
    if len(clean) <= limit:
        return clean
    head = (limit - 1) * 2 // 3
    return f"{clean[:head]}…{clean[len(clean) - (limit - 1 - head) :]}"


def visible(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else "·" for c in text)


def unused(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it if it is taken: ``ideal (2)``."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name} ({number})"
    return found


def with_short_names(text: str, names: Iterable[str], limit: int) -> str:
    """A sentence in which long names are cut; its own words never are.

    Examples
    --------
    >>> with_short_names("Add cannot overwrite /layers.0/input: Neg still reads it", ["/layers.0/input"], 12)
    'Add cannot overwrite /layers…nput: Neg still reads it'
    """
    for name in sorted(set(names), key=len, reverse=True):
        if len(name) > limit:
            text = text.replace(name, short(name, limit))
    return visible(text)


def decodes(trace: Trace) -> bool:
    """Whether its runs generate tokens, which a dry run does not know."""
    return bool(trace.prompt) or trace.options.kind == "decode"


def weight_bytes(trace: Trace) -> int:
    """Bytes of the storages that hold weights."""
    return sum(storage.capacity for storage in trace.log.storages if storage.origin == "weights")


def run_label(trace: Trace, run: int) -> str:
    """``"prefill"``, ``"decode 3"``; ``"run"`` or ``"run 3"`` without tokens; or the producer's name for it. If several
    runs read the prompt, the later ones are ``"prefill 1"`` and so on."""
    if trace.prompt:
        # The last run of the prefill gives the first token.
        prefill = next((one.index for one in trace.runs if one.token is not None), run)
        if run > prefill:
            return f"decode {run - prefill}"
        return f"prefill {run}" if run else "prefill"
    named = trace.runs[run] if run < len(trace.runs) else None
    if named is not None and named.text and named.token is None:
        return str(named.text)
    return f"run {run}" if len(trace.runs) > 1 else "run"


def kept_runs(trace: Trace) -> tuple[int, ...]:
    """Runs whose steps were kept, including one that has only begun."""
    begun = len(trace.runs) - 1 if trace.live is not None or trace.interrupted else -1
    return tuple(run.index for run in trace.runs if run.last > run.first or run.index == begun)


def keeps_all(trace: Trace) -> bool:
    """Whether every run has its steps, or nothing was recorded and none has."""
    return len(kept_runs(trace)) == len(trace.runs) or not trace.log


def not_searched(trace: Trace) -> str:
    """Runs whose steps no query can search, and how to record them; empty if all steps were kept. Their steps were not
    counted."""
    if keeps_all(trace):
        return ""
    kept = set(kept_runs(trace))
    gone = [run for run in range(len(trace.runs)) if run not in kept]
    # Consecutive numbers have the same distance from their places.
    spans = [[n for _, n in span] for _, span in groupby(enumerate(gone), lambda pair: pair[1] - pair[0])]
    named = ", ".join(f"{span[0]}" if len(span) == 1 else f"{span[0]}..{span[-1]}" for span in spans)
    detail = f"range({gone[0]}, {gone[-1] + 1})" if len(spans) == 1 else f"[{gone[0]}]"
    said = f"{'run' if len(gone) == 1 else 'runs'} {named} kept no steps and could not be searched"
    return f"{said}; to keep {'them' if len(spans) == 1 else 'one'}, decode again with detail={detail}"


def steps_summary(trace: Trace) -> str:
    """``6,400 steps in 16 runs``, or ``13,640 steps of 8 of 512 runs were kept``."""
    steps, runs = count(len(trace.steps), "step"), count(len(trace.runs), "run")
    if keeps_all(trace):
        return f"{steps} in {runs}"
    return f"{steps} of {len(kept_runs(trace)):,} of {runs} were kept"


def in_kept_runs(trace: Trace) -> str:
    """The qualification of a sum over steps: empty, or ``in the 8 runs whose steps were kept``."""
    if keeps_all(trace):
        return ""
    runs = len(kept_runs(trace))
    return f"in the {count(runs, 'run')} whose steps were kept" if runs > 1 else "in the run whose steps were kept"


def place_of(trace: Trace, row: Any) -> Place:
    """Layer and role of a step; one in a body has the role of the node that has the body."""
    return place_in(trace.log.frames, row.frame, row.op.node.index)


def place_in(frames: Any, number: int, node: int) -> Place:
    """Layer and role of a node, by its index in the graph of a frame."""
    frame = frames[number]
    own = places(frame.program.graph)[node]
    if frame.parent is None:
        return own
    outer = place_in(frames, frame.parent, frame.control_node.index)
    return inside(outer, frames[frame.parent].program.graph, frame.attribute, own)
