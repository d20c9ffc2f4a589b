"""Reading a saved trace. Nothing in the file is executed, and every index, name and count is checked."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvviz.engine.packed_file import Packed
from kvviz.engine.policy import Policy
from kvviz.engine.records import Cache, CacheRun, Rows, Run
from kvviz.engine.rows import HOW, FrameRow, Recorder
from kvviz.engine.trace import Trace
from kvviz.engine.tracecheck import check_trace
from kvviz.engine.tracefile import COLUMNS, FORMAT
from kvviz.engine.traceshape import below, check, check_header
from kvviz.errors import KvvizError, LoadError
from kvviz.graph.model import Graph, Node, Value
from kvviz.memory.storage import Storage


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
        named = (name for node in graph.nodes for name in (*node.inputs, *node.outputs))
        self.slots = {name: name for name in (*named, *outputs)}
        self.is_output = frozenset(outputs)


def load(path: Any) -> Trace:
    """Read a trace that `save` wrote; see `Trace.load`."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed = Packed(archive, path)
            members = {"header.json": packed.read("header.json")}
            header = json.loads(members["header.json"])
            if header["format"] != FORMAT:
                raise LoadError(f"{path} has trace format {str(header['format'])[:40]}; this version reads {FORMAT}")
            members |= {f"{name}.i64": packed.read(f"{name}.i64") for name in COLUMNS}
            packed.check(members)
        return _rebuild(header, {name: np.frombuffer(members[f"{name}.i64"], "<i8").tolist() for name in COLUMNS})
    except FileNotFoundError:
        raise LoadError(f"there is no file {path}") from None
    except LoadError:
        raise
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise LoadError(f"{path} needs more memory than there is") from None
    except Exception as error:
        # A damaged file can fail in dozens of ways, in zlib, in JSON or here; to the reader they are all one.
        detail = f"{type(error).__name__}: {error}"[:200]
        raise LoadError(f"{path} is not a trace of kvviz, or it is damaged ({detail})") from None


def _rebuild(header: dict[str, Any], columns: dict[str, list[int]]) -> Trace:
    check_header(header)
    graphs: list[Graph] = []
    for graph in header["graphs"]:
        graphs.append(_graph(graph, graphs))
    plans = [_plan(graphs[graph], order, outputs) for graph, order, outputs in header["plans"]]
    recorder = Recorder()
    recorder.later.update(header["later"])
    for capacity, origin, owned in header["storages"]:
        recorder.ledger.storages.append(Storage(len(recorder.ledger.storages), capacity, None, origin, owned))
    recorder.grew += [(step, recorder.ledger.storages[storage], more) for step, storage, more in header["grew"]]
    for frame in header["frames"]:
        recorder.frames.append(_frame(frame, plans, recorder.frames))
    for row in _rows(columns, header["strings"], recorder):
        recorder.rows.append(row)
    peak, recorder.copied, recorder.written, recorder.allocated = header["totals"]
    recorder.ledger.peak_here = peak
    name, about, version, rules, places = header["policy"]
    policy = Policy(name, about, version, rules=tuple(rules), homes=_recorded if places else None)
    trace = Trace(recorder.frames[0].plan.graph, policy, recorder, header["title"])
    trace.runs = [Run(i, *values) for i, values in enumerate(header["runs"])]
    check([run.last for run in trace.runs], [below(len(recorder.rows) + 1)])
    for name, past, present, protocol, axis, runs in header["caches"]:
        trace.caches.append(Cache(name, past, present, protocol, axis, [_cache_run(*values) for values in runs]))
    trace.prompt, trace.tokens, trace.words, trace.interrupted = header["tokens"]
    check_trace(trace)
    return trace


def _recorded(*_: Any) -> Any:
    """Stands for the rule that placed the outputs: a trace from a file is not run on."""
    raise KvvizError("this trace was loaded from a file; run the model again to run it on")


def _cache_run(*values: Any) -> CacheRun:
    *numbers, items = values
    return replace(CacheRun(*numbers), items=tuple(_rows_of_item(*item) for item in items))


def _rows_of_item(held: Any, wrote: Any, read: Any, lost: int) -> Rows:
    return Rows(_tuples(held), _tuples(wrote), None if read is None else _tuples(read), lost)


def _tuples(lists: list[list[int]]) -> tuple[Any, ...]:
    return tuple(map(tuple, lists))


def _graph(saved: dict[str, Any], inner: list[Graph]) -> Graph:
    nodes = []
    for name, op, domain, inputs, outputs, index, captures, opset, scope, subgraphs, function, scanned, perm in saved[
        "nodes"
    ]:
        bodies = {attribute: inner[number] for attribute, number in subgraphs}
        body = None if function is None else inner[function]
        inputs, outputs, captures, scope = (tuple(names) for names in (inputs, outputs, captures, scope))
        attributes = {key: value for key, value in (("num_scan_inputs", scanned), ("perm", perm)) if value is not None}
        nodes.append(Node(name, op, domain, inputs, outputs, index, attributes, bodies, captures, opset, body, scope))
    ends = [tuple(_value(*value) for value in saved[key]) for key in ("inputs", "outputs")]
    # Of the weights only the names were kept.
    weights = {name: np.empty(0) for name in saved["weights"]}
    return Graph(saved["name"], ends[0], ends[1], tuple(nodes), weights)


def _value(name: str, dtype: str | None, shape: list[Any] | None, kind: str) -> Value:
    return Value(name, None if dtype is None else np.dtype(dtype), None if shape is None else tuple(shape), kind)


def _plan(graph: Graph, order: list[Any], outputs: list[str]) -> SavedPlan:
    planned = []
    for position, (place, control, foreign, views) in enumerate(order):
        check(place, below(len(graph.nodes)))
        node = graph.nodes[place]
        check(views, [below(len(node.inputs))])
        # A function that has a kernel of ours is no control node, as some operators with a body are none.
        entered = "function" if node.function is not None else node.op_type if node.subgraphs else ""
        must = node.subgraphs and node.op_type in ("If", "Loop", "Scan") and not node.domain
        check(control, ((entered,) if must else ("", entered)).__contains__)
        planned.append(SavedNode(graph.nodes[place], position, control, foreign, views))
    return SavedPlan(graph, planned, outputs)


def _frame(saved: list[Any], plans: list[SavedPlan], before: list[FrameRow]) -> FrameRow:
    plan, parent, caller, attribute, iteration, run, opened, bindings = saved
    calling = None
    if parent is not None:
        check(parent, below(len(before)))
        check(caller, below(len(before[parent].plan.order)))
        calling = before[parent].plan.order[caller]
    frame = FrameRow(plans[plan], parent, calling, attribute, iteration, run, opened)
    frame.bindings = tuple(_bound(*bound) for bound in bindings)
    return frame


def _bound(name: str, storage: int, generation: int, how: str, shape: Any, dtype: str, offset: int) -> tuple:
    shape = None if shape is None else tuple(shape)
    return name, storage, generation, how, shape, _dtype(dtype, shape), offset


def _dtype(name: str, shape: tuple[int, ...] | None) -> str:
    """The name of an element type, checked; what has no shape is a sequence or an optional, with any name."""
    if shape is not None:
        # NumPy takes many abbreviations and descriptions; what was written is the name of one type.
        check(name, lambda name: len(name) > 2 and str(np.dtype(name)) == name)
    return name


def _rows(columns: dict[str, list[int]], strings: list[str], recorder: Recorder) -> Iterator[tuple]:
    step, rest = columns["step"], {name: iter(values) for name, values in columns.items()}
    storages = len(recorder.ledger.storages)
    for at in range(0, len(step), 10):
        frame, position, allocated, copied, written, live, *counts = step[at : at + 10]
        check((frame, *counts), lambda numbers: min(numbers) >= 0)
        order = recorder.frames[frame].plan.order
        check(position, below(len(order)))
        node = order[position].node
        taken = tuple(next(rest["taken"]) for _ in range(counts[0]))
        masks = tuple((next(rest["masks"]), next(rest["masks"])) for _ in range(counts[1]))
        placed = tuple(_unpack(rest["placed"], strings, storages) for _ in range(counts[2]))
        freed = tuple(next(rest["freed"]) for _ in range(counts[3]))
        check([*taken, *(position for position, _ in masks)], [below(len(node.inputs))])
        check([mask for _, mask in masks], [lambda mask: mask >= 0])
        check([*freed], [below(storages)])
        check(counts[2], range(len(node.outputs), len(node.outputs) + 1).__contains__)
        yield frame, order[position], taken, masks, placed, freed, allocated, copied, written, live
    for name in COLUMNS[1:]:
        check(next(rest[name], None), lambda left: left is None)


def _unpack(numbers: Iterator[int], strings: list[str], storages: int) -> tuple | None:
    storage = next(numbers)
    if storage < 0:
        return None
    generation, how, name, offset = (next(numbers) for _ in range(4))
    shape, strides = (_unpack_list(numbers) for _ in range(2))
    check(storage, below(storages))
    check(generation, below(1 << 31))
    check(how, below(len(HOW)))
    check(name, below(len(strings)))
    check(list(shape or ()), [lambda length: length >= 0])
    return storage, generation, how, shape, _dtype(strings[name], shape), offset, strides


def _unpack_list(numbers: Iterator[int]) -> tuple[int, ...] | None:
    size = next(numbers)
    return None if size < 0 else tuple(next(numbers) for _ in range(size))
