"""Reading a saved trace. Nothing in the file is executed, and every index, name and count is checked."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvviz.errors import LoadError
from kvviz.graph.model import Graph, Node
from kvviz.trace.file.header_schema import below, read, read_header
from kvviz.trace.file.packed_file import Columns, Packed, bindings, column_members, columns_in, fill
from kvviz.trace.file.trace_check import check_trace
from kvviz.trace.file.trace_writer import FORMAT
from kvviz.trace.records import Run
from kvviz.trace.schema.declared import Declared, Place, Timing
from kvviz.trace.schema.events import Bind, FrameEvent, OpNode, Program
from kvviz.trace.schema.log import Log
from kvviz.trace.schema.regions import Region
from kvviz.trace.trace_data import Data, PolicyFacts, TraceData
from kvviz.trace.value_summaries import COLUMNS as VALUES
from kvviz.trace.value_summaries import Counted, ValueSummaries, checked, from_columns

_BEFORE = (12, 11)


def load(path: Any, make: Callable[[Graph, PolicyFacts, Log, str], Data]) -> Data:
    try:
        with zipfile.ZipFile(path) as archive:
            packed = Packed(archive, path)
            members = {"header.json": packed.read("header.json")}
            header = json.loads(members["header.json"])
            version = header["format"]
            if version not in (FORMAT, *_BEFORE):
                known = f"{FORMAT}, {' and '.join(map(str, _BEFORE))}"
                raise LoadError(f"{path} has trace format {str(version)[:40]}; this version reads {known}")
            columns = {name: packed.read(name) for name in column_members(packed.names, version)}
            members |= columns
            if header["values"] is not None:
                members |= {f"values.{name}": packed.read(f"values.{name}") for name in VALUES}
            packed.check(members)
        found = columns_in(columns)
        if version in _BEFORE:
            found["frame.bind"] = _bound_by_number(header)
        trace = _rebuild(header, found, make)
        if header["values"] is not None:
            kept = {name: members[f"values.{name}"] for name in VALUES}
            trace.value_summaries = _values(trace, header["values"], kept)
        return trace
    except FileNotFoundError:
        raise LoadError(f"there is no file {path}") from None
    except LoadError:
        raise
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise LoadError(f"{path} needs more memory than there is") from None
    except Exception as error:
        # A damaged file can fail in zlib, in JSON or here; the caller gets one error.
        detail = f"{type(error).__name__}: {error}"[:200]
        raise LoadError(f"{path} is not a trace of kvviz, or it is damaged ({detail})") from None


def _rebuild(saved: dict[str, Any], columns: Columns, make: Callable[[Graph, PolicyFacts, Log, str], Data]) -> Data:
    header = read_header(saved)
    graphs: list[Graph] = []
    for graph in header["graphs"]:
        graphs.append(_graph(graph, graphs))
    of_program = [graphs[graph] for graph, _, _ in header["programs"]]
    nodes = [_op_node(of_program[program], *facts) for program, *facts in header["nodes"]]
    programs = [_program(number, header, of_program[number], nodes) for number in range(len(of_program))]
    log = Log()
    log.later.update(header["later"])
    log.grew += header["grew"]
    log.declared = _declared(header["declared"])
    begun = bindings(columns, header["binds"], [frame[-1] for frame in header["frames"]])
    for frame, bound in zip(header["frames"], begun, strict=True):
        log.frames.append(_frame(frame, programs, log.frames, bound))
    fill(log, columns, nodes, header["refusals"], header["forms"])
    log.peak, log.copied, log.written, log.allocated = header["totals"]
    first = log.frames[0].program if log.frames else programs[0]
    trace = make(first.graph, header["policy"], log, header["title"])
    trace.model, trace.options = header["model"], header["options"]
    trace.branch, trace.type_facts, trace.tour = header["branch"], header["types"], header["tour"]
    if trace.branch is not None:
        read(trace.branch.step, below(len(log) + 1))
    trace.runs = [Run(i, *values) for i, values in enumerate(header["runs"])]
    read([run.last for run in trace.runs], [below(len(log) + 1)])
    trace.caches += header["caches"]
    prompt, tokens, words, trace.interrupted = header["tokens"]
    trace.prompt, trace.tokens, trace.words = list(prompt), list(tokens), None if words is None else list(words)
    check_trace(trace)
    return trace


def _values(trace: TraceData, saved: list[Any], kept: dict[str, bytes]) -> ValueSummaries:
    budget, counted, missing, first = saved
    values, attention = from_columns(checked(kept, len(trace.log), len(trace.runs) + 1, len(trace.caches)))
    keys = {kind: (at, slot) for kind, (at, slot) in first}
    mains = {frame.run: frame for frame in reversed(trace.log.frames) if frame.parent is None}
    for at, slot in (*keys.values(), *values):
        # The bindings of a run, or the outputs of a step, are known here.
        there = mains[-1 - at].bindings if at < 0 else trace.log[at].op.node.outputs
        read(slot, below(len(there)))
    return ValueSummaries(budget, Counted(*counted), missing, keys, values, attention)


def _graph(saved: dict[str, Any], inner: list[Graph]) -> Graph:
    nodes = []
    for name, op, domain, inputs, outputs, index, captures, opset, scope, subgraphs, function, kept in saved["nodes"]:
        bodies = {attribute: inner[number] for attribute, number in subgraphs}
        body = None if function is None else inner[function]
        nodes.append(Node(name, op, domain, inputs, outputs, index, kept, bodies, captures, opset, body, scope))
    # Only the names of most weights were kept.
    weights = {name: np.empty(0) for name in saved["weights"]}
    weights.update(saved["constants"])
    facts = {key: saved[key] for key in ("opsets", "captures", "path")}
    return Graph(saved["name"], saved["inputs"], saved["outputs"], tuple(nodes), weights, **facts)


def _op_node(graph: Graph, place: int, *facts: Any) -> OpNode:
    read(place, below(len(graph.nodes)))
    op = OpNode(graph.nodes[place], *facts)
    node = op.node
    read([*op.views, *op.overwrites, *op.unread, *(grow.input for grow in op.grows)], [below(len(node.inputs))])
    read([grow.output for grow in op.grows], [below(len(node.outputs))])
    # A function with a NumPy kernel of its own is no control node, like some operators with a body.
    entered = "function" if node.function is not None else node.op_type if node.subgraphs else ""
    must = node.subgraphs and node.op_type in ("If", "Loop", "Scan") and not node.domain
    read(op.control, ((entered,) if must else ("", entered)).__contains__)
    return op


def _program(number: int, header: dict[str, Any], graph: Graph, nodes: list[OpNode]) -> Program:
    _, order, outputs = header["programs"][number]
    read([header["nodes"][node][0] for node in order], [lambda program: program == number])
    read([nodes[node].position for node in order], lambda positions: positions == list(range(len(order))))
    return Program(graph, [nodes[node] for node in order], outputs)


def _bound_by_number(header: dict[str, Any]) -> np.ndarray:
    """Put bindings of frames into a table, as files have it since format 13; returns the numbers."""
    known: dict[str, int] = {}
    numbers = []
    for frame in header["frames"]:
        numbers += [known.setdefault(json.dumps(bind), len(known)) for bind in frame[7]]
        frame[7] = len(frame[7])
    header["binds"] = [json.loads(bind) for bind in known]
    return np.array(numbers, np.int64)


def _frame(
    saved: Sequence[Any], programs: list[Program], before: list[FrameEvent], bound: tuple[Bind, ...]
) -> FrameEvent:
    program, parent, caller, attribute, iteration, run, opened, _ = saved
    calling = None
    if parent is not None:
        read(parent, below(len(before)))
        read(caller, below(len(before[parent].program.order)))
        calling = before[parent].program.order[caller]
    return FrameEvent(programs[program], parent, calling, attribute, iteration, run, opened, bound)


def _declared(saved: dict[str, Any]) -> Declared:
    return Declared(
        dict(saved["accesses"]),
        _written(saved["written"], saved["kinds"]),
        {op: Timing(*timing) for op, *timing in saved["times"]},
        {storage: Place(*place) for storage, *place in saved["places"]},
        *(list(saved[part]) for part in ("frees", "marks", "arenas")),
    )


def _written(saved: Sequence[Any], kinds: Sequence[Region]) -> dict[int, tuple[tuple[int, Region], ...]]:
    parts: dict[int, tuple[tuple[int, Region], ...]] = {}
    for op, output, offset, kind, rows in saved:
        read(kind, below(len(kinds)))
        part = kinds[kind]._replace(offset=offset, rows=rows)
        parts[op] = (*parts.get(op, ()), (output, part))
    return parts
