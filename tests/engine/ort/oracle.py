"""What onnxruntime itself says of a model: its order, which nodes allocated, the shapes that it knew before running."""

import csv
import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.InferenceSession import InferenceSession
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.TensorTypeAndShape import TensorTypeAndShape

from kvviz.graph.model import Graph

Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Observed:
    """One run of a model in onnxruntime, nothing rewritten, one thread.

    ``order``: name and index of every node that ran, bodies included. ``allocated``: bytes that its outputs took anew,
    in whole blocks of the arena. ``made``: bytes of each of its tensors, of the last time that it ran.
    """

    order: tuple[tuple[str, int], ...]
    allocated: dict[str, int]
    made: dict[str, tuple[int, ...]]
    outputs: list[Any]


def options(mem_reuse: bool = True) -> ort.SessionOptions:
    """The session options of every oracle here."""
    chosen = ort.SessionOptions()
    chosen.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    chosen.intra_op_num_threads = chosen.inter_op_num_threads = 1
    chosen.enable_mem_reuse = mem_reuse
    chosen.log_severity_level = 4
    return chosen


def observe(model: onnx.ModelProto, feeds: Feeds, mem_reuse: bool = True) -> Observed:
    """Run a model once and read its profile and its memory statistics.

    Node names must be unique in the whole model, bodies included.
    """
    with tempfile.TemporaryDirectory() as folder:
        chosen = options(mem_reuse)
        chosen.enable_profiling = True
        chosen.profile_file_prefix = f"{folder}/profile"
        chosen.add_session_config_entry("session.collect_node_memory_stats_to_file", f"{folder}/stats.csv")
        session = ort.InferenceSession(model.SerializeToString(), chosen, providers=["CPUExecutionProvider"])
        outputs = session.run(None, dict(feeds))
        profile = json.loads(Path(session.end_profiling()).read_text("utf-8"))
        rows = list(csv.reader(Path(folder, "stats.csv").read_text("utf-8").splitlines()))
    events = [e for e in profile if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    return Observed(
        tuple((e["name"].removesuffix("_kernel_time"), int(e["args"]["node_index"])) for e in events),
        {row[0].rpartition("_")[0]: int(row[3]) for row in rows[1:]},
        {e["name"].removesuffix("_kernel_time"): _bytes(e["args"].get("output_type_shape", [])) for e in events},
        outputs,
    )


def blocks(nbytes: int) -> int:
    """Bytes as onnxruntime's arena counts them."""
    return -(-nbytes // 256) * 256


_WIDTHS = {"float": 4, "double": 8, "float16": 2, "bfloat16": 2, "bool": 1, "string": 32}


def _bytes(types: list[dict[str, list[int]]]) -> tuple[int, ...]:
    return tuple(_width(kind) * math.prod(shape) for entry in types for kind, shape in entry.items())


def _width(kind: str) -> int:
    return _WIDTHS.get(kind) or int(kind.removeprefix("u").removeprefix("int")) // 8


TENSOR, VALUE = 1, 1  # of fbs.TypeInfoValue and fbs.DimensionValueType
Known = tuple[int, "tuple[int | str | None, ...] | None"]


def inferred(model: onnx.ModelProto, graph: Graph) -> dict[Graph, dict[str, Known]]:
    """Element type and shape of every tensor of a model and its bodies, as onnxruntime knows them before a run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ort")
        chosen = options()
        chosen.add_session_config_entry("session.save_model_format", "ORT")
        chosen.optimized_model_filepath = str(path)
        ort.InferenceSession(model.SerializeToString(), chosen, providers=["CPUExecutionProvider"])
        saved = InferenceSession.GetRootAs(path.read_bytes(), 0)
    found: dict[Graph, dict[str, Known]] = {}
    _read(saved.Model().Graph(), graph, found)
    return found


def _read(saved: Any, graph: Graph, found: dict[Graph, dict[str, Known]]) -> None:
    arguments = (saved.NodeArgs(i) for i in range(saved.NodeArgsLength()))
    found[graph] = {a.Name().decode(): known for a in arguments if (known := _type(a.Type())) is not None}
    # onnxruntime numbers the nodes that are left once Constants are weights, by their place in the model.
    proto = graph.proto.graph if isinstance(graph.proto, onnx.ModelProto) else graph.proto
    places = [i for i, node in enumerate(proto.node) if node.op_type != "Constant"]
    by_place = {node.index: node for node in graph.nodes}
    for i in range(saved.NodesLength()):
        node = saved.Nodes(i)
        for j in range(node.AttributesLength()):
            attribute = node.Attributes(j)
            if attribute.G() is not None:
                _read(attribute.G(), by_place[places[node.Index()]].subgraphs[attribute.Name().decode()], found)


def _type(info: Any) -> Known | None:
    if info is None or info.ValueType() != TENSOR:
        return None
    tensor = TensorTypeAndShape()
    tensor.Init(info.Value().Bytes, info.Value().Pos)
    shape = tensor.Shape()
    if shape is None:
        return tensor.ElemType(), None
    dims = [shape.Dim(i).Value() for i in range(shape.DimLength())]
    return tensor.ElemType(), tuple(
        d.DimValue() if d.DimType() == VALUE else (d.DimParam() or b"").decode() or None for d in dims
    )
