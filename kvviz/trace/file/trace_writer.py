"""Writing a trace to one file: a zip with a JSON header (graphs without weights, frames, runs) and integer columns.

The header has ``graphs`` (inner ones first), ``nodes`` (facts about each that was to run), ``programs`` (which of them,
in which order), ``frames``, ``runs``, ``caches``, and the tables that the columns refer to. Every run begins with the
same weights, so frames refer to ``binds`` by number. The columns are those of `kvviz.trace.file.packed_file`, written
one at a time, so that saving a long trace takes little memory.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from kvviz.graph.model import Graph, Node
from kvviz.trace.file.packed_file import LogMembers, write_packed
from kvviz.trace.records import meter_in_turn
from kvviz.trace.schema.events import OpNode, Program
from kvviz.trace.schema.log import Table
from kvviz.trace.schema.run_options import RunOptions
from kvviz.trace.trace_data import TraceData
from kvviz.trace.value_summaries import COLUMNS as VALUES
from kvviz.trace.value_summaries import ValueSummaries

FORMAT = 13
# Elements of the longest attribute that is kept: it says how an op works; weights are longer.
_LONGEST = 64


def save(trace: TraceData, path: Any) -> None:
    log = trace.log
    meter_in_turn(trace.caches)
    programs = list({id(frame.program): frame.program for frame in log.frames}.values())
    if not programs:
        # Nothing has run: the graph is all that there is.
        programs.append(Program(trace.graph, (), ()))
    number = {id(program): i for i, program in enumerate(programs)}
    graphs: dict[int, int] = {}
    described: list[dict[str, Any]] = []
    for program in programs:
        _add_graph(program.graph, graphs, described)
    nodes = {id(op): (op, number[id(program)]) for program in programs for op in program.order}
    numbers = {key: i for i, key in enumerate(nodes)}
    log.settle()
    binds = Table()
    bound = [binds[bind] for frame in log.frames for bind in frame.bindings]
    members = LogMembers(log, numbers, bound)
    header = {
        "format": FORMAT,
        "title": trace.title,
        "model": trace.model,
        "policy": trace.policy,
        "options": _options(trace.options),
        "types": trace.type_facts if trace.types_of is None else trace.types_of(trace),
        "graphs": described,
        "programs": [_program(program, graphs, numbers) for program in programs],
        "nodes": [_op_node(op, programs[program], program) for op, program in nodes.values()],
        "refusals": log.refusals.entries,
        "forms": log.forms.entries,
        "frames": [_frame(frame, number) for frame in log.frames],
        "binds": binds.entries,
        "later": sorted(log.later),
        "grew": log.grew,
        "runs": [_plain(run)[1:] for run in trace.runs],
        "declared": log.declared.as_lists(),
        "caches": trace.caches,
        "totals": [trace.peak_bytes, trace.bytes_copied, trace.bytes_written, trace.bytes_allocated],
        "branch": trace.branch,
        "tokens": [trace.prompt, trace.known("tokens"), trace.words, trace.interrupted],
        "values": _values(trace.value_summaries),
        "tour": None if trace.tour is None else trace.tour.to_plain(),
    }
    members["header.json"] = _text(header)
    if trace.value_summaries is not None:
        kept = trace.value_summaries.columns
        for name, (dtype, _) in VALUES.items():
            members[f"values.{name}"] = kept[name].astype(dtype).tobytes()
    write_packed(path, members)


def _text(header: dict[str, Any]) -> memoryview:
    """A header as JSON, some entries of a list at a time: its pieces take ten times the memory of the text."""
    encode = json.JSONEncoder(default=_plain).encode
    found = bytearray()
    for name, value in header.items():
        found += f"{', ' if found else '{'}{encode(name)}: ".encode()
        if not isinstance(value, list):
            found += encode(value).encode()
            continue
        size = 1 if name == "caches" else 256
        some = (encode(value[at : at + size])[1:-1] for at in range(0, len(value), size))
        found += f"[{', '.join(some)}]".encode()
    found += b"}"
    return memoryview(found)


def _plain(value: Any) -> Any:
    """The JSON form of records (lists of their fields) and of element types (names)."""
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    return sorted(value) if isinstance(value, frozenset) else str(value)


# The trace itself shows when a decode stops and what it keeps.
_NOT_SAVED = ("stop_tokens", "detail")


def _options(options: RunOptions) -> list[Any]:
    saved: Any = options.given
    if saved is not None:
        saved = [saved.names, [[name, *_plain(spot)] for name, spot in saved.layouts.items()], saved.alike]
    listed: list[Any] = _plain(replace(options, given=saved))
    return listed[: -len(_NOT_SAVED)]


def _values(kept: ValueSummaries | None) -> list[Any] | None:
    return None if kept is None else [kept.budget, kept.counted, kept.missing, list(kept.first.items())]


def _program(program: Program, graphs: dict[int, int], numbers: dict[int, int]) -> list[Any]:
    return [graphs[id(program.graph)], [numbers[id(op)] for op in program.order], program.outputs]


def _op_node(op: OpNode, program: Program, number: int) -> list[Any]:
    place = next(i for i, node in enumerate(program.graph.nodes) if node is op.node)
    facts = [op.position, op.control, op.foreign, op.views, op.overwrites, op.grows, op.unread, op.note]
    return [number, place, *facts]


def _add_graph(graph: Graph, numbers: dict[int, int], described: list[dict[str, Any]]) -> int:
    """Number of a graph in the file; it is described after its inner graphs."""
    if id(graph) in numbers:
        return numbers[id(graph)]
    nodes = [_node(node, numbers, described) for node in graph.nodes]
    described.append(
        {
            "name": graph.name,
            "inputs": graph.inputs,
            "outputs": graph.outputs,
            "weights": list(graph.weights),
            "constants": _constants(graph),
            "captures": graph.captures,
            "opsets": dict(graph.opsets),
            "path": graph.path,
            "nodes": nodes,
        }
    )
    numbers[id(graph)] = len(described) - 1
    return len(described) - 1


def _constants(graph: Graph) -> list[Any]:
    """Small integer weights (shapes, axes, steps), which say how an op works, as attributes do elsewhere."""
    small = [(name, graph.weights[name]) for name in graph.weights if _is_small(graph, name)]
    return [[name, *_tensor(value)] for name, value in small]


def _tensor(value: Any) -> list[Any]:
    number = float if value.dtype.kind == "f" else int
    return [str(value.dtype), list(map(number, value.ravel())), list(value.shape)]


def _is_small(graph: Graph, name: str) -> bool:
    declared = getattr(graph.weights, "declared", None)
    value = graph.weights[name] if declared is None else declared(name)
    whole = value.dtype is not None and value.dtype.kind in "iub" and value.dtype.isbuiltin == 1
    return bool(whole and value.shape is not None and math.prod(value.shape) <= _LONGEST)


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
        {name: _attribute(value) for name, value in node.attributes.items() if _is_plain(value)},
    ]


def _attribute(value: Any) -> Any:
    return {"tensor": _tensor(value)} if isinstance(value, np.ndarray) else value


def _is_plain(value: Any) -> bool:
    """Whether an attribute can be written as text; large ones are left out."""
    if isinstance(value, np.ndarray):
        return value.size <= _LONGEST and value.dtype.kind in "iubf" and value.dtype.isbuiltin == 1
    if isinstance(value, tuple):
        return len(value) <= _LONGEST and all(isinstance(part, (int, float, str)) for part in value)
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= _LONGEST)


def _frame(frame: Any, programs: dict[int, int]) -> list[Any]:
    caller = frame.caller.position if frame.caller else None
    where = [programs[id(frame.program)], frame.parent, caller]
    return [*where, frame.attribute, frame.iteration, frame.run, frame.opened, len(frame.bindings)]
