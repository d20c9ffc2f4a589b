"""A trace in one file: a zip with a JSON header (graphs without weights, frames, runs) and integer columns.

Nothing in it is executed when it is read, and every index is checked.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np

from kvviz.engine.policy import Policy
from kvviz.engine.records import Cache, CacheRun, Run
from kvviz.engine.rows import FrameRow, Recorder
from kvviz.engine.trace import Trace
from kvviz.errors import LoadError
from kvviz.graph.model import Graph, Node, Value
from kvviz.memory.storage import Storage

FORMAT = 1


class SavedNode:
    """What a row needs to know of a planned node, when the plan itself is gone."""

    __slots__ = ("control", "foreign", "node", "position", "views")

    def __init__(self, node: Node, position: int, control: str, foreign: bool, views: Sequence[int]) -> None:
        self.node = node
        self.position = position
        self.control = control
        self.foreign = foreign
        self.views = tuple(views)


class SavedPlan:
    """What a frame needs to know of its plan, when the plan itself is gone."""

    __slots__ = ("graph", "is_output", "order", "outputs", "slots")

    def __init__(self, graph: Graph, order: Sequence[SavedNode], outputs: Sequence[str]) -> None:
        self.graph = graph
        self.order = tuple(order)
        self.outputs = tuple(outputs)
        self.slots = {name: name for node in graph.nodes for name in (*node.inputs, *node.outputs)}
        self.is_output = frozenset(outputs)


def save(trace: Trace, path: Any) -> None:
    """Write a trace to a file; see `Trace.save`."""
    rows, frames = trace.recorder.rows, trace.recorder.frames
    plans = list({id(frame.plan): frame.plan for frame in frames}.values())
    number = {id(plan): i for i, plan in enumerate(plans)}
    strings: dict[str, int] = {}
    header = {
        "format": FORMAT,
        "title": trace.title,
        "policy": [trace.policy.name, trace.policy.about, trace.policy.version],
        "plans": [_plan(plan) for plan in plans],
        "frames": [
            [
                number[id(f.plan)],
                f.parent,
                f.caller.position if f.caller else None,
                f.attribute,
                f.iteration,
                f.run,
                [[b[0], b[1], b[2], b[3], b[4], str(b[5]), b[6]] for b in f.bindings],
            ]
            for f in frames
        ],
        "storages": [[s.capacity, s.origin, s.owned] for s in trace.recorder.ledger.storages],
        "runs": [
            [r.first, r.last, r.token, r.text, r.peak_bytes, r.bytes_copied, r.bytes_written, r.bytes_allocated]
            for r in trace.runs
        ],
        "caches": [
            [
                c.name,
                c.input,
                c.output,
                c.protocol,
                c.axis,
                [[r.capacity, r.valid, r.bytes_copied, r.bytes_written, r.storage] for r in c.runs],
            ]
            for c in trace.caches
        ],
        "totals": [trace.peak_bytes, trace.bytes_copied, trace.bytes_written, trace.bytes_allocated],
        "tokens": [trace.prompt, trace.tokens, trace.words, trace.interrupted],
    }
    columns: dict[str, list[int]] = {"step": [], "taken": [], "masks": [], "placed": [], "freed": []}
    for frame, planned, taken, masks, placed, freed, allocated, copied, written, live in rows:
        columns["step"] += (
            frame,
            planned.position,
            allocated,
            copied,
            written,
            live,
            len(taken),
            len(masks),
            len(placed),
            len(freed),
        )
        columns["taken"] += taken
        columns["freed"] += freed
        for mask in masks:
            columns["masks"] += mask
        for where in placed:
            columns["placed"] += _pack(where, strings)
    header["strings"] = list(strings)
    arrays = {name: np.array(values, np.int64) for name, values in columns.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(header))
        for name, array in arrays.items():
            buffer = BytesIO()
            np.save(buffer, array)
            archive.writestr(f"{name}.npy", buffer.getvalue())


def load(path: Any) -> Trace:
    """Read a trace that `save` wrote; see `Trace.load`."""
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("header.json"))
            columns = {
                name: np.load(BytesIO(archive.read(f"{name}.npy")), allow_pickle=False).tolist()
                for name in ("step", "taken", "masks", "placed", "freed")
            }
        if header["format"] != FORMAT:
            raise LoadError(f"{path} has trace format {header['format']}; this version reads {FORMAT}")
        return _rebuild(header, columns)
    except (zipfile.BadZipFile, KeyError, IndexError, TypeError, ValueError) as error:
        raise LoadError(f"{path} is not a trace of kvviz, or it is damaged ({type(error).__name__}: {error})") from None


def _plan(plan: Any) -> dict[str, Any]:
    graph = plan.graph
    outputs = [next(n for n, s in plan.slots.items() if s == slot) for slot in plan.outputs]
    return {
        "name": graph.name,
        "inputs": [v.name for v in graph.inputs],
        "outputs": outputs,
        "weights": list(graph.weights),
        "order": [
            [
                p.node.name,
                p.node.op_type,
                p.node.domain,
                list(p.node.inputs),
                list(p.node.outputs),
                p.node.index,
                list(p.node.captures),
                p.node.opset,
                list(p.node.scope),
                p.control,
                p.foreign,
                list(p.views),
            ]
            for p in plan.order
        ],
    }


def _pack(where: tuple | None, strings: dict[str, int]) -> list[int]:
    if where is None:
        return [-1]
    storage, generation, how, shape, dtype, offset, strides = where
    name = strings.setdefault(str(dtype), len(strings))
    shaped = [-1] if shape is None else [len(shape), *shape]
    strided = [-1] if strides is None else [len(strides), *strides]
    return [storage, generation, how, name, offset, *shaped, *strided]


def _rebuild(header: dict[str, Any], columns: dict[str, list[int]]) -> Trace:
    plans = [_load_plan(plan) for plan in header["plans"]]
    recorder = Recorder()
    for plan, parent, caller, attribute, iteration, run, bindings in header["frames"]:
        calling = None if caller is None else recorder.frames[parent].plan.order[caller]
        opened = FrameRow(plans[plan], parent, calling, attribute, iteration, run)
        opened.bindings = tuple(
            (b[0], b[1], b[2], b[3], None if b[4] is None else tuple(b[4]), b[5], b[6]) for b in bindings
        )
        recorder.frames.append(opened)
    for capacity, origin, owned in header["storages"]:
        recorder.ledger.storages.append(Storage(len(recorder.ledger.storages), capacity, None, origin, owned))
    placed_at = iter(columns["placed"])
    taken_at, masks_at, freed_at = iter(columns["taken"]), iter(columns["masks"]), iter(columns["freed"])
    step = columns["step"]
    for i in range(0, len(step), 10):
        frame, position, allocated, copied, written, live, n_taken, n_masks, n_placed, n_freed = step[i : i + 10]
        recorder.rows.append(
            (
                frame,
                recorder.frames[frame].plan.order[position],
                tuple(next(taken_at) for _ in range(n_taken)),
                tuple((next(masks_at), next(masks_at)) for _ in range(n_masks)),
                tuple(_unpack(placed_at, header["strings"]) for _ in range(n_placed)),
                tuple(next(freed_at) for _ in range(n_freed)),
                allocated,
                copied,
                written,
                live,
            )
        )
    peak, recorder.copied, recorder.written, recorder.allocated = header["totals"]
    recorder.ledger.peak_here = peak
    name, about, version = header["policy"]
    trace = Trace(plans[header["frames"][0][0]].graph, Policy(name, about, version), recorder, header["title"])
    trace.runs = [Run(i, *values) for i, values in enumerate(header["runs"])]
    for name, past, present, protocol, axis, runs in header["caches"]:
        trace.caches.append(Cache(name, past, present, protocol, axis, [CacheRun(*values) for values in runs]))
    trace.prompt, trace.tokens, trace.words, trace.interrupted = header["tokens"]
    return trace


def _load_plan(saved: dict[str, Any]) -> SavedPlan:
    nodes, order = [], []
    for position, (
        name,
        op,
        domain,
        inputs,
        outputs,
        index,
        captures,
        opset,
        scope,
        control,
        foreign,
        views,
    ) in enumerate(saved["order"]):
        node = Node(
            name, op, domain, tuple(inputs), tuple(outputs), index, {}, {}, tuple(captures), opset, None, tuple(scope)
        )
        nodes.append(node)
        order.append(SavedNode(node, position, control, foreign, views))
    weights = {name: np.empty(0) for name in saved["weights"]}
    values = [tuple(Value(n) for n in saved[key]) for key in ("inputs", "outputs")]
    graph = Graph(saved["name"], values[0], values[1], tuple(nodes), weights)
    return SavedPlan(graph, order, saved["outputs"])


def _unpack(numbers: Any, strings: list[str]) -> tuple | None:
    storage = next(numbers)
    if storage < 0:
        return None
    generation, how, name, offset = (next(numbers) for _ in range(4))
    shape, strides = (_unpack_list(numbers) for _ in range(2))
    return storage, generation, how, shape, strings[name], offset, strides


def _unpack_list(numbers: Any) -> tuple[int, ...] | None:
    size = next(numbers)
    return None if size < 0 else tuple(next(numbers) for _ in range(size))
