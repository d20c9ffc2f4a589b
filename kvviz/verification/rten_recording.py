"""A recording of rten, compared with the policy ``rten``: order, dispatch and memory of every op.

A modified executor of rten writes a recording, one JSON object per line; `tests/data/rten` describes it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from kvviz.decode.run_sessions import SingleRun
from kvviz.errors import InputError, LoadError
from kvviz.graph.model import Graph, GraphPath, graphs_of
from kvviz.memory.ghosts import ghost, with_room
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.rten.rten_policy import VERSION, rten
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.verification.matching import ProfileAnswers, Ran
from kvviz.verification.session_record import NodeRun
from kvviz.verification.verified import Verification, VerifiedOp, verified_op

Record = dict[str, Any]

_ELEMENT = 4  # rten holds everything in elements of four bytes


@dataclass(frozen=True, slots=True, repr=False)
class RtenRun:
    run: int
    mode: str
    outputs: tuple[str, ...]
    records: tuple[Record, ...]

    @property
    def ops(self) -> list[Record]:
        return self.of("op")

    def of(self, kind: str) -> list[Record]:
        return [record for record in self.records if record["t"] == kind]

    @property
    def inputs(self) -> list[Record]:
        given: list[Record] = self.of("graph")[0]["inputs"]
        return given


def read_recording(path: str | os.PathLike[str]) -> tuple[RtenRun, ...]:
    """The runs of a recording, which may be compressed with gzip; raises `LoadError` if it is none, or has no run."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        lines = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode().splitlines()
        records = [record for line in lines if line and "run" in (record := json.loads(line))]
        groups = [tuple(mine) for _, mine in groupby(records, key=lambda record: (record["run"], record["mode"]))]
        found = tuple(RtenRun(one[0]["run"], one[0]["mode"], tuple(one[0]["outputs"]), one) for one in groups)
    except (OSError, ValueError, TypeError, KeyError, EOFError) as error:
        raise LoadError(f"{path} is no recording of rten: {error}") from None
    if not found:
        raise LoadError(f"{path} has no run of rten")
    return found


def has_scratch(op: Record) -> bool:
    """Whether a kernel used the pool for more than its outputs: from then on the pool depends on the kernels."""
    asked = sum(event[0] == "a" for event in op["pool"])
    pooled = sum(bool(out) and out["how"].startswith("pool") for out in op["out"])
    return op["dispatch"] != "subgraph" and asked != pooled


def room(item: Record) -> int | None:
    """Rows that a donated input has room for along axis 2; None if it has none or is borrowed."""
    size = prod(item["shape"])
    if not item["owned"] or not size or item["cap"] <= size:
        return None
    rows: int = item["cap"] * item["shape"][2] // size
    return rows


def verify_recording(graph: Graph, runs: tuple[RtenRun, ...], feeds: Mapping[str, Any]) -> Verification:
    """The first run that differs from its prediction, or else the first of all; the others are counted in the notes.
    ``feeds``: inputs whose values matter; the recording has the shapes of the others."""
    try:
        found = [_verified_run(graph, run, feeds) for run in runs]
    except KeyError as error:
        raise LoadError(f"the recording of rten is not complete: a record has no {error}") from None
    shown = next((one for one in found if one.differences), found[0])
    others = [f"{one.notes[0]}: {one.agree:,} of {one.total:,} ops as predicted" for one in found if one is not shown]
    return replace(shown, notes=(*shown.notes, *others))


def _verified_run(graph: Graph, run: RtenRun, feeds: Mapping[str, Any]) -> Verification:
    trace = _predicted(graph, run, feeds)
    steps = {("/".join(("main", *step.frame)), step.node_index): step for step in trace.steps}
    scratch = next((place for place, op in enumerate(run.ops) if has_scratch(op)), len(run.ops))
    ran = [(op, steps.pop((op["path"], op["node_index"]), None)) for op in run.ops]
    rows = [_row(trace, step, op, at, at < scratch) for at, (op, step) in enumerate(ran) if step is not None]
    rows.sort(key=lambda row: row.agrees)
    unknown = [op["name"] for op, step in ran if step is None] + [step.node for step in steps.values()]
    notes = [f"run {run.run} ({run.mode})"]
    if scratch < len(run.ops):
        notes.append(f"from op {scratch} on its kernels took scratch from the pool, too: what it holds is not compared")
    return Verification(tuple(rows), trace, "rten", VERSION, tuple(notes), tuple(unknown))


def _predicted(graph: Graph, run: RtenRun, feeds: Mapping[str, Any]) -> Trace:
    types = {part.path: known(part).types for part in graphs_of(graph)}
    paths = dict(_paths(graph))
    nodes = {(part.path, node.index): node for part, node in graph.walk()}
    recorded: list[Ran] = []
    for op in run.ops:
        path = paths.get(re.sub(r":\d+]", "]", op["path"]))
        node = None if path is None else nodes.get((path, op["node_index"]))
        if path is None or node is None or not {out["n"] for out in op["out"] if out} <= {*node.outputs}:
            raise InputError(f"the recording is of another model than {graph.name!r}, which has no node {op['name']!r}")
        outs = tuple((tuple(o["shape"]), _dtype(types[path], o)) for o in op["out"] if o)
        recorded.append((path, node, NodeRun(node.name, node.op_type, (), outs, 0.0)))
    inputs = {}
    for item in run.inputs:
        array = feeds.get(item["n"], ghost(item["shape"], _dtype(types[()], item)))
        rows = room(item)
        inputs[item["n"]] = array if rows is None else with_room(array, 2, rows)
    donate = [item["n"] for item in run.inputs if item["owned"]]
    session = SingleRun(graph, inputs, run.outputs, donate, rten, dry=ProfileAnswers(graph, recorded))
    return session.run_to_end()


def _row(trace: Trace, step: Step, op: Record, place: int, pool: bool) -> VerifiedOp:
    """``pool``: whether the contents of rten's pool can be known."""
    placed = {out.name: out for out in step.outs}
    predicted = observed = 0
    causes = [f"rten completed it as op {place}, and the policy as op {step.index}"] * (place != step.index)
    control = op["dispatch"] == "subgraph"
    dispatch = "run" if control else op["dispatch"]
    if dispatch != step.decision.dispatch:
        causes.append(f"rten dispatched it as {dispatch}, and the policy as {step.decision.dispatch}")
    for out in op["out"]:
        mine = placed.get(out["n"]) if out else None
        if mine is None or out["buf"] is None or control:
            continue
        shared, taken = out["same_buffer_as"], (step.decision.shares or {}).get(out["n"])
        if shared != taken:
            causes.append(f"{out['n']!r} lies in the buffer of {shared or 'nobody'}, and here of {taken or 'nobody'}")
            continue
        theirs, ours = out["how"] not in ("same", "pool_hit"), mine.how == "new"
        observed += out["cap"] * _ELEMENT * theirs
        if ours:
            # The policy may count in bytes of the model's types; the number of elements is the same.
            wide = max(np.dtype(mine.dtype).itemsize, _ELEMENT)
            predicted += max(trace.storages[mine.storage].capacity // wide, prod(mine.shape or ())) * _ELEMENT
        if pool and theirs != ours and out["how"] != "same":
            causes.append(f"{out['n']!r} is {'new' if theirs else 'from the pool'} in rten")
    return verified_op(trace, (step.index,), predicted, observed, "; ".join(causes))


def _dtype(types: Mapping[str, Any], item: Record) -> np.dtype:
    value = types.get(item["n"])
    if value is not None and value.dtype is not None:
        return value.dtype
    return np.dtype(np.int64 if item.get("dtype") == "tensor(i32)" else np.float32)


def _paths(graph: Graph, path: str = "main") -> Iterator[tuple[str, GraphPath]]:
    """Path of every graph as rten writes it, without iterations, and kvviz's path."""
    yield path, graph.path
    for node in graph.nodes:
        for attribute, body in node.subgraphs.items():
            yield from _paths(body, f"{path}/{node.name}[{attribute}]")
