"""Reading a saved trace. Nothing in the file is executed, and every index, name and count is checked."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvviz.errors import LoadError
from kvviz.graph.loading.external import ModelFile
from kvviz.graph.model import Graph, Node, Value
from kvviz.trace.file.header_schema import STOP, below, check, check_header
from kvviz.trace.file.packed_file import Columns, Packed, column_members, columns_in, fill
from kvviz.trace.file.trace_check import check_trace
from kvviz.trace.file.trace_writer import FORMAT
from kvviz.trace.guided_tour import Tour
from kvviz.trace.records import Branch, Cache, CacheRun, Rows, Run
from kvviz.trace.schema.declared import Access, Arena, Declared, Free, Mark, Place, Timing
from kvviz.trace.schema.element_types import is_known
from kvviz.trace.schema.events import Bind, FrameEvent, OpNode, Program
from kvviz.trace.schema.log import Log
from kvviz.trace.schema.regions import Region
from kvviz.trace.schema.run_options import from_plain
from kvviz.trace.trace_data import Data, GraphTypes, PolicyFacts, TraceData, TypeFacts
from kvviz.trace.value_summaries import COLUMNS as VALUES
from kvviz.trace.value_summaries import Counted, ValueSummaries, checked

_BEFORE = 11


def load(path: Any, make: Callable[[Graph, PolicyFacts, Log, str], Data]) -> Data:
    """Read a trace that `save` wrote; see `Trace.load`, which is ``make``."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed = Packed(archive, path)
            members = {"header.json": packed.read("header.json")}
            header = json.loads(members["header.json"])
            version = header["format"]
            if version not in (FORMAT, _BEFORE):
                raise LoadError(
                    f"{path} has trace format {str(version)[:40]}; this version reads {FORMAT} and {_BEFORE}"
                )
            columns = {name: packed.read(name) for name in column_members(packed.names, version == _BEFORE)}
            members |= columns
            if header["values"] is not None:
                members |= {f"values.{name}": packed.read(f"values.{name}") for name in VALUES}
            packed.check(members)
        trace = _rebuild(header, columns_in(columns), make)
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
        # A damaged file can fail in many ways, in zlib, in JSON or here; the caller gets one error.
        detail = f"{type(error).__name__}: {error}"[:200]
        raise LoadError(f"{path} is not a trace of kvviz, or it is damaged ({detail})") from None


def _rebuild(header: dict[str, Any], columns: Columns, make: Callable[[Graph, PolicyFacts, Log, str], Data]) -> Data:
    check_header(header)
    graphs: list[Graph] = []
    for graph in header["graphs"]:
        graphs.append(_graph(graph, graphs))
    of_program = [graphs[graph] for graph, _, _ in header["programs"]]
    nodes = [_op_node(of_program[program], *facts) for program, *facts in header["nodes"]]
    programs = [_program(number, header, of_program[number], nodes) for number in range(len(of_program))]
    log = Log()
    log.later.update(header["later"])
    log.grew += map(tuple, header["grew"])
    log.declared = _declared(header["declared"])
    for frame in header["frames"]:
        log.frames.append(_frame(frame, programs, log.frames))
    refusals = [(tuple(taken), _tuples(masks)) for taken, masks in header["refusals"]]
    forms = [_form(*form) for form in header["forms"]]
    fill(log, columns, nodes, refusals, forms)
    log.peak, log.copied, log.written, log.allocated = header["totals"]
    policy = PolicyFacts(*_frozen(header["policy"]))
    begun = log.frames[0].program if log.frames else programs[0]
    trace = make(begun.graph, policy, log, header["title"])
    trace.model = ModelFile(*header["model"])
    trace.options = from_plain(header["options"])
    if header["branch"] is not None:
        trace.branch = Branch(*header["branch"])
        check(trace.branch.step, below(len(log) + 1))
    trace.type_facts = None if header["types"] is None else _types(*header["types"])
    trace.runs = [Run(i, *values) for i, values in enumerate(header["runs"])]
    check([run.last for run in trace.runs], [below(len(log) + 1)])
    for name, past, present, protocol, axis, runs in header["caches"]:
        trace.caches.append(Cache(name, past, present, protocol, axis, [_cache_run(*values) for values in runs]))
    trace.prompt, trace.tokens, trace.words, trace.interrupted = header["tokens"]
    # Files of older versions have no tour.
    if header.get("tour") is not None:
        title, stops = header["tour"]["title"], header["tour"]["stops"]
        trace.tour = Tour(title, [{key: stop[key] for key in STOP} for stop in stops])  # older ones say more
    check_trace(trace)
    return trace


def _values(trace: TraceData, saved: list[Any], kept: dict[str, bytes]) -> ValueSummaries:
    budget, counted, missing, first = saved
    columns = checked(kept, len(trace.log), len(trace.runs) + 1, len(trace.caches))
    keys = {kind: (at, slot) for kind, (at, slot) in first}
    named = [*keys.values(), *zip(columns["at"].tolist(), columns["slot"].tolist())]
    mains = {frame.run: frame for frame in reversed(trace.log.frames) if frame.parent is None}
    for at, slot in named:
        # The bindings of a run, or the outputs of a step, are there.
        there = mains[-1 - at].bindings if at < 0 else trace.log[at].op.node.outputs
        check(slot, below(len(there)))
    return ValueSummaries(budget, Counted(*counted), missing, keys, columns)


def _cache_run(*values: Any) -> CacheRun:
    *numbers, items = values
    return replace(CacheRun(*numbers), items=tuple(_rows_of_item(*item) for item in items))


def _rows_of_item(held: Any, wrote: Any, read: Any, lost: int, notes: Any = (), owners: Any = ()) -> Rows:
    read = None if read is None else _tuples(read)
    owned = tuple((start, stop, tuple(map(int, sequences)), str(state)) for start, stop, sequences, state in owners)
    return Rows(_tuples(held), _tuples(wrote), read, lost, _tuples(notes), owned)


def _tuples(lists: list[list[int]]) -> tuple[Any, ...]:
    return tuple(map(tuple, lists))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _graph(saved: dict[str, Any], inner: list[Graph]) -> Graph:
    nodes = []
    for name, op, domain, inputs, outputs, index, captures, opset, scope, subgraphs, function, kept in saved["nodes"]:
        bodies = {attribute: inner[number] for attribute, number in subgraphs}
        body = None if function is None else inner[function]
        inputs, outputs, captures, scope = (tuple(names) for names in (inputs, outputs, captures, scope))
        attributes = {key: _attribute(value) for key, value in kept.items()}
        nodes.append(Node(name, op, domain, inputs, outputs, index, attributes, bodies, captures, opset, body, scope))
    ends = [tuple(_value(*value) for value in saved[key]) for key in ("inputs", "outputs")]
    # Of most weights only the names were kept.
    weights = {name: np.empty(0) for name in saved["weights"]}
    for name, dtype, values, *shape in saved["constants"]:
        weights[name] = _tensor(dtype, values, *shape)
    facts = {"opsets": saved["opsets"], "captures": tuple(saved["captures"]), "path": _tuples(saved["path"])}
    return Graph(saved["name"], ends[0], ends[1], tuple(nodes), weights, **facts)


def _attribute(value: Any) -> Any:
    if isinstance(value, dict):
        return _tensor(*value["tensor"])
    return tuple(value) if isinstance(value, list) else value


def _tensor(dtype: str, values: list[Any], shape: Sequence[int] = (-1,)) -> np.ndarray:
    return np.array(values, _dtype(dtype, ())).reshape(shape)


def _types(dims: Any, graphs: Any) -> TypeFacts:
    found = []
    for path, *types, nodes in graphs:
        known, fixed = (tuple(_value(*value) for value in values) for values in types)
        found.append(GraphTypes(_frozen(path), known, fixed, _frozen(nodes)))
    return TypeFacts(_frozen(dims), tuple(found))


def _value(name: str, dtype: str | None, shape: list[Any] | None, kind: str) -> Value:
    return Value(name, None if dtype is None else np.dtype(dtype), None if shape is None else tuple(shape), kind)


def _op_node(
    graph: Graph,
    place: int,
    position: int,
    control: str,
    foreign: bool,
    views: Any,
    overwrites: Any,
    grows: Any,
    unread: Any,
    note: str,
) -> OpNode:
    check(place, below(len(graph.nodes)))
    node = graph.nodes[place]
    check([*views, *overwrites, *unread], [below(len(node.inputs))])
    check(grows, [(below(len(node.inputs)), below(len(node.outputs)), bool)])
    # A function that has a kernel of ours is no control node, as some operators with a body are none.
    entered = "function" if node.function is not None else node.op_type if node.subgraphs else ""
    must = node.subgraphs and node.op_type in ("If", "Loop", "Scan") and not node.domain
    check(control, ((entered,) if must else ("", entered)).__contains__)
    return OpNode(node, position, control, foreign, views, overwrites, grows, unread, note)


def _program(number: int, header: dict[str, Any], graph: Graph, nodes: list[OpNode]) -> Program:
    _, order, outputs = header["programs"][number]
    check([header["nodes"][node][0] for node in order], [lambda program: program == number])
    check([nodes[node].position for node in order], lambda positions: positions == list(range(len(order))))
    return Program(graph, [nodes[node] for node in order], outputs)


def _form(shape: Any, dtype: str | None, strides: Any) -> tuple[Any, Any, Any]:
    shape = None if shape is None else tuple(shape)
    return shape, None if dtype is None else _dtype(dtype, shape), None if strides is None else tuple(strides)


def _frame(saved: list[Any], programs: list[Program], before: list[FrameEvent]) -> FrameEvent:
    program, parent, caller, attribute, iteration, run, opened, bindings = saved
    calling = None
    if parent is not None:
        check(parent, below(len(before)))
        check(caller, below(len(before[parent].program.order)))
        calling = before[parent].program.order[caller]
    frame = FrameEvent(programs[program], parent, calling, attribute, iteration, run, opened)
    frame.bindings = tuple(_bound(*bound) for bound in bindings)
    return frame


def _bound(name: str, storage: int, generation: int, how: str, shape: Any, dtype: str, offset: int) -> Bind:
    shape = None if shape is None else tuple(shape)
    return Bind(name, storage, generation, how, shape, _dtype(dtype, shape), offset)


def _declared(saved: dict[str, list[Any]]) -> Declared:
    return Declared(
        {op: tuple(_access(*access) for access in accesses) for op, accesses in saved["accesses"]},
        _written(saved["written"], [_kind(*kind) for kind in saved["kinds"]]),
        {op: Timing(*timing) for op, *timing in saved["times"]},
        {storage: Place(*place) for storage, *place in saved["places"]},
        [Free(*free) for free in saved["frees"]],
        [Mark(*mark)._replace(counts=tuple(mark[6])) for mark in saved["marks"]],
        [Arena(*arena) for arena in saved["arenas"]],
    )


def _kind(shape: list[int], strides: list[int], dtype: str) -> Region:
    return Region(0, tuple(shape), tuple(strides), _dtype(dtype, ()))


def _written(saved: list[Any], kinds: list[Region]) -> dict[int, tuple[tuple[int, Region], ...]]:
    parts: dict[int, tuple[tuple[int, Region], ...]] = {}
    for op, output, offset, kind, rows in saved:
        check(kind, below(len(kinds)))
        part = kinds[kind]._replace(offset=offset, rows=None if rows is None else tuple(rows))
        parts[op] = (*parts.get(op, ()), (output, part))
    return parts


def _access(storage: int, writes: bool, value: str, saved: list[Any]) -> Access:
    offset, shape, strides, dtype, rows, *known = saved
    shape, strides, rows = tuple(shape), tuple(strides), None if rows is None else tuple(rows)
    return Access(storage, writes, value, Region(offset, shape, strides, _dtype(dtype, shape), rows, *known))


def _dtype(name: str, shape: tuple[int, ...] | None) -> str:
    """The name of an element type, checked; what has no shape is a sequence or an optional, with any name."""
    if shape is not None:
        # NumPy takes many abbreviations and descriptions; what was written is the name of one type.
        check(name, lambda name: len(name) > 2 and is_known(name))
    return name
