"""Fact by fact: what a trace of kvviz and a recording of rten say about the same run."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from kvviz import Trace
from kvviz.engine.plan import KEEP, PIN
from kvviz.engine.planning import plan_for
from kvviz.trace.reasons import placed_before
from kvviz.trace.records import Placed, Step, TraceFrame
from kvviz.verification.rten_recording import Record, has_scratch
from tests.engine.rten.records import Recording

SUBGRAPHS = ("If", "Loop")

# What the tests insist on, and what is compared beside it.
CORE = ("order", "dispatch", "taken", "identity")
BESIDES = ("sequence", "uses", "captures", "reasons", "pool", "pool*", "freed", "result", "values")


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that both sides say: of which kind (of `CORE` or `BESIDES`), about what, and what each says."""

    kind: str
    about: str
    rten: Any
    ours: Any
    why: str = ""

    @property
    def agrees(self) -> bool:
        """Both sides say the same."""
        return self.rten == self.ours

    def __str__(self) -> str:
        rten, ours = ("nobody" if side is None else side for side in (self.rten, self.ours))
        return f"{self.kind} of {self.about}: {rten} in rten, {ours} here; {self.why}"


_READS = {"NOT_LAST_USE", "REQUESTED_OUTPUT", "SAME_OP_TWICE"}
_OWNERS = {
    "view_input": "BORROWED_INPUT",
    "constant": "CONSTANT",
    "capture_constant": "CONSTANT",
    "capture_by_ref": "CAPTURED_BY_REFERENCE",
}


def compare(trace: Trace, recording: Recording, feeds: Mapping[str, np.ndarray]) -> list[Fact]:
    """Everything that the two say differently; ``feeds`` are the arrays that the trace was given."""
    return [fact for fact in facts(trace, recording, feeds) if not fact.agrees]


def facts(trace: Trace, recording: Recording, feeds: Mapping[str, np.ndarray]) -> Iterator[Fact]:
    """Everything that both sides say about a run, op by op."""
    steps = {(path_of(step.frame), step.node_index): step for step in trace.steps}
    frames = {path_of(frame.path): frame for frame in trace.frames}
    placeholders: dict[str, list[str]] = {}
    released = {r["path"]: set(r["released_captures"]) for r in recording.of("result")}
    scratch, position = False, 0
    for record in recording.records:
        path = record.get("path", "")
        if record["t"] == "graph":
            body = re.sub(r"\[body:\d+]", "[body]", path)
            if record["captures"] is not None:
                placeholders[body] = record["captures"]
            yield from _order(frames.get(path), record)
            yield from _captures(frames.get(path), record, placeholders.get(body, []))
        elif record["t"] == "refcounts":
            yield from _uses(trace, frames.get(path), record)
        elif record["t"] == "op":
            where = f"{path} #{record['step']}, {record['name']} ({record['op']})"
            step = steps.pop((path, record["node_index"]), None)
            if step is None:
                yield Fact("dispatch", where, record["dispatch"], "not run")
                continue
            scratch = scratch or has_scratch(record)
            yield Fact("sequence", where, position, step.index)
            position += 1
            yield from _op(trace, step, record, where, scratch)
            if record["op"] not in SUBGRAPHS:
                yield Fact("freed", where, *_freed(trace, step, record, released[path]))
    for (path, _), step in steps.items():
        yield Fact("dispatch", f"{path}, {step.node} ({step.op_type})", "not run", step.decision.dispatch)
    yield from _results(trace, recording, feeds)


def path_of(frame: tuple[str, ...]) -> str:
    """A frame's path as rten writes it."""
    return "/".join(("main", *frame))


def _order(frame: TraceFrame | None, graph: Record) -> Iterator[Fact]:
    ours = [] if frame is None else [next(filter(None, node.outputs), "") for node in frame.order]
    if graph["plan"] is not None:
        for position, (theirs, mine) in enumerate(zip_longest(graph["plan"], ours)):
            yield Fact("order", f"{graph['path']} #{position}", theirs, mine)


def _captures(frame: TraceFrame | None, graph: Record, names: list[str]) -> Iterator[Fact]:
    ways = {"captured by value": "value", "captured by reference": "reference"}
    bound = {} if frame is None else {b.name: ways[b.how] for b in frame.bindings if b.how in ways}
    moved = {captured["n"] for captured in graph["captures_by_value"]}
    for name in names:
        if name in bound or name in moved:
            theirs = "value" if name in moved else "reference"
            yield Fact("captures", f"{graph['path']}, {name}", theirs, bound.get(name))


def _uses(trace: Trace, frame: TraceFrame | None, counts: Record) -> Iterator[Fact]:
    if frame is None:
        return
    program = trace.log.frames[frame.id].program
    plan = plan_for(program.graph, program.outputs, trace.replayer.policy)
    for name, count in counts["rc"].items():
        uses = plan.uses[plan.slots[name]] if name in plan.slots else KEEP
        if uses < KEEP >> 1:
            yield Fact("uses", f"{counts['path']}, {name}", count, uses % PIN)


def _op(trace: Trace, step: Step, op: Record, where: str, scratch: bool) -> Iterator[Fact]:
    candidates = " ".join(
        f"{c['n']}@{c['pos']}:{c['src']},rc={c['rc']},{'takeable' if c['takeable'] else 'not takeable'}"
        for c in op["cand"]
    )
    stated = " ".join(f"{b.input}@{b.position}:{b.code}" for b in step.decision.blockers)
    why = f"rten examined [{candidates}]; here [{stated}]"
    theirs = "run" if op["dispatch"] == "subgraph" else op["dispatch"]
    yield Fact("dispatch", where, theirs, step.decision.dispatch, why)
    yield Fact("taken", where, op["taken"], list(trace.log[step.index].taken), why)
    placed = dict(zip((name for name in step.outputs if name), step.outs))
    for out in op["out"]:
        if out and out["buf"] is not None:
            yield from _output(trace, step, op, out, placed.get(out["n"]), where, scratch)
    yield from _reasons(step, op, where, why)


def _output(
    trace: Trace, step: Step, op: Record, out: Record, placed: Placed | None, where: str, scratch: bool
) -> Iterator[Fact]:
    name = out["n"]
    mine = (step.decision.shares or {}).get(name)
    shapes = " ".join(f"{i['n']}{i['shape']}" for i in op["in"] if i)
    how = "absent" if placed is None else placed.how
    told = f"how {out['how']} in rten, {how} here; taken {op['taken']}; {shapes} -> {out['shape']}"
    yield Fact("identity", f"{where}, {name}", out["same_buffer_as"], mine, told)
    if op["op"] not in SUBGRAPHS and out["how"] != "same" and placed is not None and mine is None:
        theirs, ours = "pool" if out["how"] == "pool_hit" else "new", how
        if theirs == ours == "pool" and out["dtype"] == "tensor(f32)":
            theirs, ours = f"pool, {out['cap']} elements", f"pool, {_elements(trace, placed.storage)} elements"
        yield Fact("pool*" if scratch else "pool", f"{where}, {name}", theirs, ours)


def _elements(trace: Trace, storage: int) -> int:
    """Four-byte elements of a storage: as many as it has of the type that it was made for, if that is a wider one."""
    bound = (b for frame in trace.frames for b in frame.bindings)
    made = (out for step in trace.steps for out in step.outs)
    first = next(value for value in (*bound, *made) if value.storage == storage)
    return trace.storages[storage].capacity // max(np.dtype(first.dtype).itemsize, 4)


def _reasons(step: Step, op: Record, where: str, why: str) -> Iterator[Fact]:
    """Each input that rten examined and did not take has reasons of the same kinds here: who owns it, who reads it.

    A use that only rten counts (a capture named twice, a count that stays at 255) is a reason of the policy.
    """
    if op["dispatch"] != "run":
        return
    for candidate in op["cand"]:
        stated = {str(b.code) for b in step.decision.blockers if b.position == candidate["pos"]}
        owner = _OWNERS.get(candidate["src"], "OTHER_INPUT_BUSY" if candidate["takeable"] else "")
        if owner == "BORROWED_INPUT" and op["path"] != "main":
            owner = "CAPTURED_BY_REFERENCE"  # what a loop lends to its body
        used = candidate["rc"] > 1 and owner != "CONSTANT"
        reads = bool(stated & _READS) or (used and "POLICY" in stated)
        theirs = [owner] * bool(owner) + ["a later use"] * used
        ours = [owner] * (owner in stated) + ["a later use"] * (reads and owner != "CONSTANT")
        told = " and ".join(ours) or " and ".join(sorted(stated)) or "none"
        yield Fact("reasons", f"{where}, {candidate['n']}", " and ".join(theirs), told, why)


def _freed(trace: Trace, step: Step, op: Record, released: set[str]) -> tuple[list[str], list[str]]:
    """Inputs and outputs whose memory died: returned to the pool by rten, or handed over and dropped by the op.

    What a body releases when it ends is noted here with the last op before; ``released`` are its captures.
    """
    inputs = {item["n"]: item["buf"] for item in op["in"] if item and item["buf"] is not None}
    kept = {out["buf"] for out in op["out"] if out}
    handed = {op["in"][position]["n"] for position in op["taken"]}
    theirs = {name for name in inputs if name in op["freed"] or (name in handed and inputs[name] not in kept)}
    homes = {name: placed_before(trace, step.frame_id, name, step.index) for name in {*inputs} & {*step.inputs}}
    mine = {name for name, home in homes.items() if home and home.storage in step.freed and name not in released}
    mine.update(out.name for out in step.outs if out.storage in step.freed)
    return sorted(theirs), sorted(mine)


def _results(trace: Trace, recording: Recording, feeds: Mapping[str, np.ndarray]) -> Iterator[Fact]:
    end = next(record for record in reversed(recording.records) if record["t"] == "result")
    for result in end["out"]:
        have = trace.outputs.get(result["n"])
        if result["buf"] is not None and isinstance(have, np.ndarray):
            mine = next((n for n, array in feeds.items() if np.may_share_memory(array, have)), None)
            yield Fact("result", result["n"], result["same_buffer_as"], mine)
    for name, want in recording.results.items():
        yield Fact("values", name, "equal", _difference(trace.outputs.get(name), want))


def _difference(have: Any, want: np.ndarray) -> str:
    if have is None or have.shape != want.shape:
        return f"shape {getattr(have, 'shape', None)} for {want.shape}"
    close = np.allclose(have, want, rtol=2e-4, atol=2e-4)
    return "equal" if close else f"differs by up to {np.abs(np.subtract(have, want, dtype=np.float64)).max():.3g}"
