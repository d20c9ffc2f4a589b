"""One run of an onnxruntime session as it reports it: its graph, order, shapes, times, and what each node allocated.

A session writes the graph that it runs (``optimized_model_filepath``), a profile (events of category ``Node`` whose
names end in ``_kernel_time``, in running order), and the bytes that each node took from the arena
(``session.collect_node_memory_stats_to_file``), which the arena rounds up to 256 B.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import onnx

from kvviz.engine.policy import Policy
from kvviz.errors import InputError, KvvizError, LoadError
from kvviz.graph.loading.from_onnx import unique_names, written_node
from kvviz.graph.loading.load import load
from kvviz.graph.model import Graph
from kvviz.runtimes.ort.ort_policy import onnxruntime
from kvviz.text import needed

Layout = tuple[tuple[int, ...], np.dtype]

ARENA = 256
"""onnxruntime's arena rounds requests up to a multiple of so many bytes."""
_KERNEL = "_kernel_time"
_STATISTICS = "session.collect_node_memory_stats_to_file"
_COLUMN = "total_dynamic_sizes"
# Names of element types in a profile that differ from NumPy's.
_TYPES = {"float": "float32", "double": "float64", "string": "object"}


class NodeRun(NamedTuple):
    """One execution of a node.

    ``name``: the node's, or without one its operator and its index in the session.
    ``inputs, outputs``: shape and type of each present one; None for a type that NumPy does not have.
    ``microseconds``: inside the kernel.
    ``start``: in microseconds of the session's clock.
    """

    name: str
    op_type: str
    inputs: tuple[Layout | None, ...]
    outputs: tuple[Layout | None, ...]
    microseconds: float
    start: float = 0.0


class SessionRecord(NamedTuple):
    """One run of a session.

    ``graph``: as the session ran it.
    ``runs``: of its nodes, in running order.
    ``allocated``: bytes by `kvviz.verification.matching.unique_name` of a node, rounded up to 256 B for each output;
      None if not recorded.
    ``version``: of onnxruntime; empty if unknown.
    ``options``: ``onnxruntime.SessionOptions``; None for those of a default session.
    """

    graph: Graph
    runs: tuple[NodeRun, ...]
    allocated: Mapping[str, int] | None
    version: str = ""
    options: Any = None

    @property
    def policy(self) -> Policy:
        reuse, mode = (getattr(self.options, name, True) for name in ("enable_mem_reuse", "execution_mode"))
        return onnxruntime(mem_reuse=reuse, parallel="ORT_PARALLEL" in str(mode))


def observe(graph: Graph, run: Callable[[Any], object], options: Any = None) -> SessionRecord:
    """The record of a session of a model. ``run``: makes all runs of the session. ``options``: the caller's
    ``onnxruntime.SessionOptions``, to which reporting is added. Raises `KvvizError`: without onnxruntime, or if the
    session refuses the model or its inputs."""
    ort = needed("onnxruntime", "")
    options = ort.SessionOptions() if options is None else options
    if not isinstance(options, ort.SessionOptions):
        raise InputError(f"options must be onnxruntime.SessionOptions, not {type(options).__name__}")
    with TemporaryDirectory(prefix="kvviz-") as made:
        statistics, written = os.path.join(made, "memory.csv"), os.path.join(made, "written.onnx")
        options.log_severity_level = 4
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(made, "profile")
        options.optimized_model_filepath = written
        entries = {
            _STATISTICS: statistics,
            # Large weights stay outside of the written file, and are not read here.
            "session.optimized_model_external_initializers_file_name": "weights.bin",
            "session.optimized_model_external_initializers_min_size_in_bytes": "16384",
        }
        model = _opened(graph)
        if graph.folder and isinstance(model, bytes):
            entries["session.model_external_initializers_file_folder_path"] = graph.folder
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        try:
            session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            run(session)
        except KvvizError:
            raise
        except Exception as error:
            raise KvvizError(f"onnxruntime {ort.__version__} refuses: {str(error).splitlines()[0]}") from None
        runs = read_profile(session.end_profiling())
        return SessionRecord(_loaded(written), runs, read_statistics(statistics), ort.__version__, options)


def _opened(graph: Graph) -> str | bytes:
    """The model for onnxruntime: its file, or if nodes have no names of their own, the same with names."""
    proto = graph.proto
    path = os.path.join(graph.folder or "", graph.file.name) if graph.file.name else ""
    if not path:
        # It raises for a model made from shapes, without weights.
        next(iter(graph.weights.values()), None)
    nodes = [] if proto is None else [node for part in _parts(proto.graph) for node in part.node]
    named = len({node.name for node in nodes} - {""}) == len(nodes)
    if named and os.path.isfile(path):
        return path
    if proto is None:
        raise KvvizError("the model has no file that onnxruntime could open: pass its path")
    if not named:
        proto = deepcopy(proto)
        nodes = [node for part in _parts(proto.graph) for node in part.node]
        for node, name in zip(nodes, unique_names([written_node(node, place) for place, node in enumerate(nodes)])):
            node.name = name
    data: bytes = proto.SerializeToString()
    return data


def _parts(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.HasField("g"):
            yield from _parts(attribute.g)


def _loaded(path: str) -> Graph:
    """The graph that a session wrote. It writes some weights of bodies twice, and some constants also as weights."""
    proto = onnx.load(path, load_external_data=False)
    for part in _parts(proto.graph):
        made = {name for node in part.node for name in node.output}
        once = {weight.name: weight for weight in part.initializer if weight.name not in made}
        if len(once) < len(part.initializer):
            del part.initializer[:]
            part.initializer.extend(once.values())
    onnx.save(proto, path)
    return load(path)


def read_profile(path: str | os.PathLike[str], last: bool = False) -> tuple[NodeRun, ...]:
    """The node runs of a profile, in running order; ``last``: those of the last run alone. Raises `LoadError` if there
    is none."""
    try:
        with open(path, encoding="utf-8") as file:
            events = json.load(file)
        ends = [at for at, event in enumerate(events) if event.get("name") == "model_run"]
        if last and len(ends) > 1:
            # A run is reported when it ends, after its nodes.
            events = events[ends[-2] + 1 : ends[-1]]
        runs = tuple(
            NodeRun(
                event["name"].removesuffix(_KERNEL),
                str(event["args"].get("op_name", "")),
                tuple(map(_layout, event["args"].get("input_type_shape", ()))),
                tuple(map(_layout, event["args"].get("output_type_shape", ()))),
                float(event.get("dur", 0)),
                float(event.get("ts", 0)),
            )
            for event in events
            if event.get("cat") == "Node" and str(event.get("name", "")).endswith(_KERNEL)
        )
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise LoadError(f"{path} is no profile of onnxruntime: {error}") from None
    if not runs:
        raise LoadError(
            "the profile has no node: all became weights, the session ran nothing, or another program wrote it"
        )
    return runs


def read_statistics(path: str | os.PathLike[str]) -> dict[str, int]:
    """Bytes that each node allocated, by its unique name; raises `LoadError` if the file has no such column."""
    try:
        with open(path, encoding="utf-8") as file:
            head, rows = file.readline().strip().split(","), file.read()
        place = head.index(_COLUMN)
        # A name may contain a comma or a line end, and nothing is quoted.
        row = re.compile(r"(.+?)" + r",(\d+)" * (len(head) - 1) + r"(?:\n|$)", re.DOTALL)
        return {found[1]: int(found[place + 1]) for found in row.finditer(rows)}
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} has no statistics as {_STATISTICS} writes them: {error}") from None


def _layout(entry: Mapping[str, Iterable[int]]) -> Layout | None:
    for name, shape in entry.items():
        try:
            return tuple(int(n) for n in shape), np.dtype(_TYPES.get(name, name))
        except TypeError:
            return None
    return None


def session_of(model: str | bytes, order: str = "DEFAULT") -> Any:
    """A session in one thread; weights in a file are mapped.

    ``order``: ``"DEFAULT"`` or ``"PRIORITY_BASED"``, ONNX Runtime's execution orders.
    """
    ort = needed("onnxruntime", "ort")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")  # it would copy the weights
    options.execution_order = getattr(ort.ExecutionOrder, order)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_bound(
    proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], bound: Mapping[str, str], order: str = "DEFAULT"
) -> dict[str, np.ndarray]:
    """Run a model with outputs in the buffers of inputs, which ONNX Runtime does not check, and return all outputs.

    It is the counterpart of a policy of `kvviz.engine.sessions.io_binding.bind`. ``bound``: input by output.
    """
    session = session_of(proto.SerializeToString(), order)
    # An OrtValue does not keep the array that it was made from.
    buffers = {name: array.copy() for name, array in feeds.items()}
    return {name: value.numpy().copy() for name, value in bound_values(session, buffers, bound).items()}


def bound_values(session: Any, feeds: Mapping[str, Any], bound: Mapping[str, str]) -> dict[str, Any]:
    """Run a session with IO binding, and return all outputs as OrtValues. ``feeds``: arrays, whose memory is used
    directly and must be kept alive, or OrtValues. ``bound``: input by output."""
    make = needed("onnxruntime", "ort").OrtValue.ortvalue_from_numpy
    values = {name: make(value) if isinstance(value, np.ndarray) else value for name, value in feeds.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    names = [output.name for output in session.get_outputs()]
    for name in names:
        if name in bound:
            binding.bind_ortvalue_output(name, values[bound[name]])
        else:
            binding.bind_output(name)
    session.run_with_iobinding(binding)
    return dict(zip(names, binding.get_outputs(), strict=True))
