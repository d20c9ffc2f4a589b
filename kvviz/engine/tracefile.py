"""Writing a trace to one file: a zip with a JSON header (graphs without weights, frames, runs) and integer columns.

The header has ``graphs`` (inner ones first), ``plans`` (which nodes of a graph ran, in which order), ``frames``,
``storages``, ``runs`` and ``caches``; the columns hold the rows, ten numbers a step and lists of varying length.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np

from kvviz.engine.packed_file import write_packed
from kvviz.engine.reasons import offset_of
from kvviz.engine.trace import Trace
from kvviz.graph.model import Graph, Node, Value

FORMAT = 5
COLUMNS = ("step", "taken", "masks", "placed", "freed")


def save(trace: Trace, path: Any) -> None:
    """Write a trace to a file; see `Trace.save`."""
    frames = trace.recorder.frames
    plans = list({id(frame.plan): frame.plan for frame in frames}.values())
    number = {id(plan): i for i, plan in enumerate(plans)}
    graphs: dict[int, int] = {}
    described: list[dict[str, Any]] = []
    for plan in plans:
        _add_graph(plan.graph, graphs, described)
    header = {
        "format": FORMAT,
        "title": trace.title,
        "policy": [
            *(trace.policy.name, trace.policy.about, trace.policy.version),
            *(list(trace.policy.rules), trace.policy.homes is not None),
        ],
        "graphs": described,
        "plans": [_plan(plan, graphs) for plan in plans],
        "frames": [_frame(frame, number) for frame in frames],
        "storages": [[s.capacity, s.origin, s.owned] for s in trace.recorder.ledger.storages],
        "later": sorted(trace.recorder.later),
        "grew": [[step, storage.id, more] for step, storage, more in trace.recorder.grew],
        "runs": [
            [
                *(r.first, r.last, r.token, r.text),
                *(r.peak_bytes, r.bytes_copied, r.bytes_written, r.bytes_allocated, r.bytes_moved_outside),
            ]
            for r in trace.runs
        ],
        "caches": [_cache(cache) for cache in trace.caches],
        "totals": [trace.peak_bytes, trace.bytes_copied, trace.bytes_written, trace.bytes_allocated],
        "tokens": [trace.prompt, trace.tokens, trace.words, trace.interrupted],
    }
    strings: dict[str, int] = {}
    columns = _columns(trace, strings)
    header["strings"] = list(strings)
    numbers = {f"{name}.i64": np.array(columns[name], "<i8").tobytes() for name in COLUMNS}
    write_packed(path, {"header.json": json.dumps(header).encode(), **numbers})


def _columns(trace: Trace, strings: dict[str, int]) -> dict[str, list[int]]:
    columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
    for index, row in enumerate(trace.recorder.rows):
        frame, planned, taken, masks, placed, freed, allocated, copied, written, live = row
        outputs = len(planned.node.outputs)
        counts = (len(taken), len(masks), outputs, len(freed))
        columns["step"] += (frame, planned.position, allocated, copied, written, live, *counts)
        columns["taken"] += taken
        columns["freed"] += freed
        for mask in masks:
            columns["masks"] += mask
        for where in (*placed, *(None,) * (outputs - len(placed))):
            if where is not None and where[5] is None:
                where = (*where[:5], offset_of(trace, index), *where[6:])
            columns["placed"] += _pack(where, strings)
    return columns


def _pack(where: tuple | None, strings: dict[str, int]) -> list[int]:
    if where is None:
        return [-1]
    storage, generation, how, shape, dtype, offset, strides = where
    name = strings.setdefault(str(dtype), len(strings))
    shaped = [-1] if shape is None else [len(shape), *shape]
    strided = [-1] if strides is None else [len(strides), *strides]
    return [storage, generation, how, name, offset, *shaped, *strided]


def _add_graph(graph: Graph, numbers: dict[int, int], described: list[dict[str, Any]]) -> int:
    """Number of a graph in the file; it is described after the ones inside it."""
    if id(graph) in numbers:
        return numbers[id(graph)]
    nodes = [_node(node, numbers, described) for node in graph.nodes]
    described.append(
        {
            "name": graph.name,
            "inputs": [_value(value) for value in graph.inputs],
            "outputs": [_value(value) for value in graph.outputs],
            "weights": list(graph.weights),
            "nodes": nodes,
        }
    )
    numbers[id(graph)] = len(described) - 1
    return len(described) - 1


def _node(node: Node, numbers: dict[int, int], described: list[dict[str, Any]]) -> list[Any]:
    return [
        node.name,
        node.op_type,
        node.domain,
        node.inputs,
        node.outputs,
        node.index,
        node.captures,
        node.opset,
        node.scope,
        [[name, _add_graph(graph, numbers, described)] for name, graph in node.subgraphs.items()],
        None if node.function is None else _add_graph(node.function, numbers, described),
        # Of the attributes, what says which values a body carries on, and whether a view is laid out as what it views.
        node.attributes.get("num_scan_inputs") if node.qualified_op == "Scan" else None,
        node.attributes.get("perm") if node.qualified_op == "Transpose" else None,
    ]


def _value(value: Value) -> list[Any]:
    return [value.name, None if value.dtype is None else str(value.dtype), value.shape, value.kind]


def _plan(plan: Any, graphs: dict[int, int]) -> list[Any]:
    places = {id(node): i for i, node in enumerate(plan.graph.nodes)}
    names = {slot: name for name, slot in plan.slots.items()}
    order = [[places[id(p.node)], p.control, p.foreign, p.views] for p in plan.order]
    return [graphs[id(plan.graph)], order, [names[slot] for slot in plan.outputs]]


def _frame(frame: Any, plans: dict[int, int]) -> list[Any]:
    caller = frame.caller.position if frame.caller else None
    bindings = [[b[0], b[1], b[2], b[3], b[4], str(b[5]), b[6]] for b in frame.bindings]
    where = [plans[id(frame.plan)], frame.parent, caller]
    return [*where, frame.attribute, frame.iteration, frame.run, frame.opened, bindings]


def _cache(cache: Any) -> list[Any]:
    runs = [[getattr(run, field.name) for field in fields(run)] for run in cache.runs]
    return [cache.name, cache.input, cache.output, cache.protocol, cache.axis, runs]
