"""The shapes that onnxruntime inferred, read from the model that it saves in its own format."""

import tempfile
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.InferenceSession import InferenceSession
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.TensorTypeAndShape import TensorTypeAndShape

from kvviz.graph.model import Graph
from tests.engine.ort.oracle import options

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
