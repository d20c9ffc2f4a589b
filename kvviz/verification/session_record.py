"""One run of an onnxruntime session as it reports it: its graph, order, shapes, times, and what each node allocated.

A session writes the graph that it runs (``optimized_model_filepath``), a profile (events of category ``Node`` whose
names end in ``_kernel_time``, in the order of running), and the bytes that each node took from the arena
(``session.collect_node_memory_stats_to_file``), which the arena rounds up to 256 B.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import onnx

from kvviz.errors import InputError, KvvizError, LoadError
from kvviz.graph.load import load
from kvviz.graph.model import Graph

Layout = tuple[tuple[int, ...], np.dtype]

ARENA = 256
"""Bytes to a multiple of which onnxruntime's arena rounds what it is asked for."""
_KERNEL = "_kernel_time"
_STATISTICS = "session.collect_node_memory_stats_to_file"
_COLUMN = "total_dynamic_sizes"
# Names of element types in a profile, where NumPy has another one.
_TYPES = {"float": "float32", "double": "float64", "string": "object"}


class NodeRun(NamedTuple):
    """One execution of a node.

    ``name``: the node's, or for a node without one its operator and its index in the session.
    ``inputs, outputs``: shape and type of each that is not absent; None for a type that NumPy does not have.
    ``microseconds``: inside the kernel.
    ``start``: when that began, in microseconds of the session's clock.
    """

    name: str
    op_type: str
    inputs: tuple[Layout | None, ...]
    outputs: tuple[Layout | None, ...]
    microseconds: float
    start: float = 0.0


class SessionRecord(NamedTuple):
    """What a session did in one run.

    ``graph``: as the session ran it.
    ``runs``: of its nodes, in the order of running.
    ``allocated``: bytes by `kvviz.verification.matching.unique_name` of a node, rounded up to 256 B for each output;
    None where that was not recorded.
    ``version``: of onnxruntime; empty where it is not known.
    """

    graph: Graph
    runs: tuple[NodeRun, ...]
    allocated: Mapping[str, int] | None
    version: str = ""


def observe(
    model: str | bytes,
    feeds: Mapping[str, Any],
    options: Any = None,
    folder: str | None = None,
    loop: Callable[[Any], None] | None = None,
) -> SessionRecord:
    """Run a model once in a session that reports on itself.

    ``model``: path, or the bytes of a model file.
    ``folder``: where the external data of such bytes lies.
    ``options``: ``onnxruntime.SessionOptions`` of the caller's own; what reports is added to them.
    ``loop``: makes all runs of the session, in place of one run with the feeds.

    Raises `KvvizError`: without onnxruntime, or where the session refuses the model or its inputs.
    """
    ort = _onnxruntime()
    options = ort.SessionOptions() if options is None else options
    with TemporaryDirectory(prefix="kvviz-") as made:
        statistics, written = os.path.join(made, "memory.csv"), os.path.join(made, "written.onnx")
        options.log_severity_level = 4
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(made, "profile")
        options.optimized_model_filepath = written
        options.add_session_config_entry(_STATISTICS, statistics)
        # Large weights stay outside of the written file, and are not read here.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "16384")
        if folder and isinstance(model, bytes):
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        try:
            session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            if loop is not None:
                loop(session)
            else:
                session.run(None, {one.name: np.asarray(feeds[one.name]) for one in session.get_inputs()})
        except KvvizError:
            raise
        except KeyError as error:
            raise InputError(f"the session wants the input {error.args[0]!r}: give it in inputs") from None
        except Exception as error:
            raise KvvizError(f"onnxruntime {ort.__version__} refuses: {str(error).splitlines()[0]}") from None
        runs = read_profile(session.end_profiling())
        return SessionRecord(_loaded(written), runs, read_statistics(statistics), ort.__version__)


def parts(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A GraphProto and its bodies."""
    yield graph
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.HasField("g"):
            yield from parts(attribute.g)


def _loaded(path: str) -> Graph:
    """The graph that a session wrote. It writes some weights of bodies twice, and some constants as weights, too."""
    proto = onnx.load(path, load_external_data=False)
    for part in parts(proto.graph):
        made = {name for node in part.node for name in node.output}
        once = {weight.name: weight for weight in part.initializer if weight.name not in made}
        if len(once) < len(part.initializer):
            del part.initializer[:]
            part.initializer.extend(once.values())
    onnx.save(proto, path)
    return load(path)


def read_profile(path: str | os.PathLike[str], last: bool = False) -> tuple[NodeRun, ...]:
    """The nodes that a profile has, in the order of running; ``last``: those of the last run alone.

    Raises `LoadError`: if it is no profile, or has no node.
    """
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
        raise LoadError("the profile has no node: it was written by a session that ran nothing, or by something else")
    return runs


def read_statistics(path: str | os.PathLike[str]) -> dict[str, int]:
    """Bytes that each node allocated, by its unique name.

    Raises `LoadError`: if the file has no such column.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        place = head.index(_COLUMN)
        return {row[0]: int(row[place]) for row in rows if row}
    except (OSError, ValueError, IndexError) as error:
        raise LoadError(f"{path} has no statistics as {_STATISTICS} writes them: {error}") from None


def _layout(entry: Mapping[str, Iterable[int]]) -> Layout | None:
    for name, shape in entry.items():
        try:
            return tuple(int(n) for n in shape), np.dtype(_TYPES.get(name, name))
        except TypeError:
            return None
    return None


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise KvvizError(
            "verify runs the model in onnxruntime, which is not installed: pip install onnxruntime"
        ) from None
    return onnxruntime
