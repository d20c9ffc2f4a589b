"""Read an ONNX model from a path, bytes or objects, and refuse what cannot be trusted or understood."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnx

from kvviz.errors import LoadError, quoted
from kvviz.graph.loading.external import DEFAULT_LIMIT, LFS, ModelFile, Source
from kvviz.graph.loading.from_onnx import Reader, read_opsets
from kvviz.graph.loading.model_folder import beside, find_model
from kvviz.graph.model import Graph
from kvviz.other_names import with_other_names
from kvviz.text.companions import Companions

if TYPE_CHECKING:
    import onnx_ir

OPSETS = (1, 28)
"""Oldest and newest version of the ONNX operator set that is read."""

_LOG = logging.getLogger(__name__)
_PROTOBUF_LIMIT = 2 << 30
# Files passed by mistake, by their first bytes.
_OTHER_FILES = (
    (b"GGUF", "a GGUF file; pass its path, not its contents"),
    (b"PK\x03\x04", "a zip archive: export a PyTorch checkpoint to ONNX first; a saved trace like this is cut short"),
    (LFS, "a Git LFS pointer, not the model; run git lfs pull"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first, or open a ggml recording with kvviz.ggml.load"),
    (b"<", "a text file (HTML or XML); the download probably failed"),
    (b"{", "a text file (JSON); pass the binary .onnx file, or open a ggml recording with kvviz.ggml.load"),
    (b"digraph", "a DOT file; open what ggml_graph_dump_dot wrote with kvviz.ggml.load"),
)


@with_other_names
def load(
    model: str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto | onnx_ir.Model | Any,
    *,
    name: str | None = None,
    tensor_limit: int = DEFAULT_LIMIT,
    graph: str | None = None,
) -> Graph:
    """Read a model.

    Weights, external data too, are read when they are first used, and then kept. Nothing is executed or written, and
    external data is only read from the model's own folder. A model whose data files are missing can be run dry; reading
    one of its weights raises an error that names it.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto, onnx_ir.Model, or an object with ``.model_proto``
        What to read: an ``.onnx`` file, a folder as optimum, onnxruntime-genai or transformers.js lay it out, a GGUF
        file of the Llama family (its weights are expanded in memory), or an object, as torch's ``ONNXProgram``. It is
        not changed. Tokenizer, chat template and end-of-text tokens beside a file become ``Graph.companions``.
    name : str, optional
        Name of the graph; the model's own by default.
    tensor_limit : int
        Largest size of one tensor, in bytes; 8 GiB by default.
    graph : str, optional
        Which file of a folder to read; needed if the folder has several different graphs.

    Returns
    -------
    Graph

    Raises
    ------
    LoadError
        Not an ONNX model, a damaged file, damaged or unsafe external data, or an opset outside 1 to 28.
    LimitError
        A tensor is larger than ``tensor_limit``.
    GraphError
        The graph cannot be run: a cycle, an undefined value, a name used twice.

    Examples
    --------
    >>> graph = load("model.onnx")                                      # doctest: +SKIP
    >>> graph.nodes[0].name, graph.inputs[0].shape                      # doctest: +SKIP
    ('/model/embed_tokens/Gather', ('batch_size', 'sequence_length'))
    """
    label = "the model"
    companions = None
    try:
        if isinstance(model, (str, os.PathLike)):
            if holds_trace(model):
                path = quoted(os.fsdecode(model), 1000)
                raise LoadError(f"{path} is a saved trace, not a model; open it with kvviz.Trace.load({path})")
            model, companions = _placed(os.fsdecode(model), graph)
        elif graph is not None:
            raise LoadError("graph= chooses among the files of a folder; this model is not a folder")
        if isinstance(model, str) and _is_gguf(model):
            proto, source, companions = _from_gguf(model, tensor_limit)
        else:
            proto, source = _proto(model, tensor_limit)
        label = source.label
        graph_read = replace(_read(proto, source, name), companions=companions)
        _LOG.info("read %s: %d nodes", label, len(graph_read.nodes))
        return graph_read
    except RecursionError:
        raise LoadError(f"{label} nests its subgraphs too deeply to be read") from None
    except UnicodeDecodeError:
        # protobuf decodes names lazily, so damage to them shows only here.
        raise LoadError(
            f"{label} holds a name that is not UTF-8: the file is damaged, get or export it again"
        ) from None


def holds_trace(path: str | os.PathLike[str]) -> bool:
    if "\0" in os.fsdecode(path) or not os.path.isfile(path):
        return False  # opening a pipe would wait for ever
    try:
        with zipfile.ZipFile(path) as archive:
            return "header.json" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def _read(proto: Any, source: Source, name: str | None) -> Graph:
    if not proto.HasField("graph"):
        raise LoadError(f"{source.label} has no graph: it is empty, cut short or not an ONNX model")
    opsets = read_opsets(proto.opset_import)
    low, high = OPSETS
    if not low <= opsets.get("", low) <= high:
        raise LoadError(
            f"{source.label} uses version {opsets['']} of the ONNX operators; kvviz reads {low} to {high}, "
            "so convert it with onnx.version_converter"
        )
    graph = Reader(source, proto.functions).main(proto, opsets)
    return graph if name is None else replace(graph, name=name)


def _proto(model: Any, limit: int) -> tuple[Any, Source]:
    if isinstance(model, onnx.ModelProto):
        return model, Source("the given ModelProto", limit=limit)
    # torch's ONNXProgram has both: its own object keeps the weights where they are, and the other is a copy.
    inner = getattr(model, "model", None)
    if _is_ir(inner):
        return _from_ir(inner, limit)
    if isinstance(proto := getattr(model, "model_proto", None), onnx.ModelProto):
        return proto, Source(f"the given {type(model).__name__}", limit=limit)
    if _is_ir(model):
        return _from_ir(model, limit)
    if isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model)
        source = Source(f"the given {type(model).__name__}", limit=limit, file=_file("", data))
        return _parse(data, source), source
    if isinstance(model, (str, os.PathLike)):
        path = os.fsdecode(model)
        data = _contents(path)
        folder, real = os.path.dirname(path), os.path.dirname(os.path.realpath(path))
        source = Source(quoted(path, 1000), folder, real, limit, file=_file(os.path.basename(path), data))
        return _parse(data, source), source
    raise LoadError(
        "a model is given as a path, bytes, onnx.ModelProto, onnx_ir.Model or something with .model_proto, "
        f"not as {type(model).__name__}"
    )


def _is_ir(model: Any) -> bool:
    # Such a model exists only if onnx_ir is imported.
    library = sys.modules.get("onnx_ir")
    return library is not None and isinstance(model, library.Model)


def _placed(path: str, graph: str | None) -> tuple[str, Companions]:
    if "\0" not in path and os.path.isdir(path):
        return find_model(path, graph)
    if graph is not None:
        raise LoadError(f"graph= chooses among the files of a folder; {quoted(path, 1000)} is not a folder")
    return path, beside(path)


def _is_gguf(path: str) -> bool:
    if "\0" in path or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def _from_gguf(path: str, limit: int) -> tuple[Any, Source, Companions]:
    from kvviz.smollm2.gguf_to_onnx import carried_tokenizer, open_gguf

    model, arrays, checkpoint = open_gguf(path)
    source = Source(quoted(path, 1000), os.path.dirname(path), limit=limit, held=arrays)
    return model, source, Companions((os.path.dirname(path) or os.curdir,), made=lambda: carried_tokenizer(checkpoint))


def assembled(proto: onnx.ModelProto, weights: Mapping[str, Any], label: str, name: str) -> Graph:
    """The graph of a model whose external data are arrays, or objects with ``numpy()``, by location."""
    return _read(proto, Source(label, "", limit=1 << 62, held=weights), name)


def _file(name: str, data: bytes) -> ModelFile:
    return ModelFile(name, hashlib.sha256(data).hexdigest())


def _contents(path: str) -> bytes:
    if "\0" in path or not os.path.exists(path):
        raise LoadError(f"there is no file {quoted(path, 1000)}; check the path (now in {os.getcwd()})")
    if not os.path.isfile(path):
        raise LoadError(f"{quoted(path, 1000)} is not a regular file")
    if os.path.getsize(path) >= _PROTOBUF_LIMIT:
        raise LoadError(
            f"{quoted(path, 1000)} has 2 GiB or more, which protobuf cannot read; save it with external data"
        )
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise LoadError(f"{quoted(path, 1000)} cannot be read: {error.strerror}") from None


def _parse(data: bytes, source: Source) -> Any:
    if not data:
        raise LoadError(f"{source.label} is empty")
    for start, what in _OTHER_FILES:
        if data.startswith(start):
            raise LoadError(f"{source.label} is {what}")
    if data[4:8] == b"ORTM":
        raise LoadError(f"{source.label} is in ORT format; pass the .onnx file that it was made from")
    try:
        return onnx.ModelProto.FromString(data)
    except Exception:  # protobuf's DecodeError, whose module has no types
        raise LoadError(f"{source.label} is not an ONNX model, or it is cut short; get or export it again") from None


def _from_ir(model: onnx_ir.Model, limit: int) -> tuple[Any, Source]:
    import onnx_ir as ir

    held: dict[str, Any] = {}
    folders = []
    # A prefix that no model can contain by chance or intent, for weights that are in memory.
    mark = uuid.uuid4().hex
    try:
        copy = model.clone()
        for graph in copy.graphs():
            for value in graph.initializers.values():
                tensor = value.const_value
                if isinstance(tensor, ir.ExternalTensor):
                    folders.append(os.fspath(tensor.base_dir))
                elif tensor is not None and tensor.dtype != ir.DataType.STRING:
                    key = f"{mark}-{len(held)}"
                    held[key] = tensor
                    value.const_value = ir.ExternalTensor(
                        key, None, None, tensor.dtype, shape=ir.Shape(tensor.shape), name=value.name or ""
                    )
        proto = ir.to_proto(copy)
    except RecursionError:
        raise
    except Exception as error:
        raise LoadError(f"the given onnx_ir.Model cannot be read: {' '.join(str(error).split())}") from error
    folder = folders[0] if folders else None
    return proto, Source("the given onnx_ir.Model", folder, limit=limit, held=held)
