"""The kernel of a node: one of ours if it knows all of the node's attributes, else that of ``onnx.reference``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from kvviz.errors import ExtensionError, OpError, UnsupportedOpsError
from kvviz.graph.loading.external import Source
from kvviz.graph.loading.from_onnx import graph_proto
from kvviz.graph.loading.tensors import attribute
from kvviz.graph.model import Node, Value
from kvviz.memory.ghosts import packed_copy
from kvviz.ops.numeric import in_float32, is_narrow
from kvviz.ops.registry import OpSpec, find, is_extension

# Their kernels need values of the outer graph; the engine runs these operators itself.
_CONTROL = frozenset({"If", "Loop", "Scan"})


@cache
def foreign_available(domain: str, op_type: str, opset: int) -> bool:
    if domain == "" and op_type in _CONTROL:
        return False
    return _kernel_class(domain, op_type, opset) is not None or _function_schema(domain, op_type, opset) is not None


def foreign_kernel(node: Node, n_outputs: int | None = None) -> Callable[..., tuple]:
    """A callable from arrays to a tuple of arrays that runs one node on the reference evaluator's kernel. None stands
    for an absent input, a list for a sequence; ``n_outputs`` defaults to the node's number of outputs."""
    wanted = len(node.outputs) if n_outputs is None else n_outputs
    if not foreign_available(node.domain, node.op_type, node.opset):
        raise UnsupportedOpsError(f"neither kvviz nor onnx.reference has a kernel for {_words(node)}")
    if node.captures:
        raise UnsupportedOpsError(
            f"subgraphs of {_words(node)} read outer values, which onnx.reference's kernel cannot"
        )
    kernel_class = _kernel_class(node.domain, node.op_type, node.opset)
    run = _by_function(node) if kernel_class is None else _by_kernel(node, kernel_class)

    def kernel(*arrays: Any) -> tuple:
        try:
            results = run(arrays)
        except Exception as error:
            cause = error.__cause__ or error
            raise OpError(f"the kernel of onnx.reference failed: {type(cause).__name__}: {cause}") from error
        return tuple(_plain(value) for value in results[:wanted])

    return kernel


@cache
def _kernel_class(domain: str, op_type: str, opset: int) -> Any:
    # The reference evaluator is large, and most models do not need it.
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.ops import aionnx_preview, aionnx_preview_training, aionnxml, load_op

    loaders: dict[str, Any] = {
        "ai.onnx.ml": aionnxml.load_op,
        "ai.onnx.preview": aionnx_preview.load_op,
        "ai.onnx.preview.training": aionnx_preview_training.load_op,
    }
    try:
        if domain == "":
            found = load_op(domain, op_type, opset, evaluator_cls=ReferenceEvaluator)
        elif domain in loaders:
            found = loaders[domain](domain, op_type, opset)
        else:
            return None
    except Exception:
        # It raises half a dozen types for a missing kernel, some of them only for a version that is too old.
        return None
    # For an operator that is only a function it returns a factory; we build the function ourselves, to allow for absent
    # inputs.
    return found if isinstance(found, type) else None


@cache
def _function_schema(domain: str, op_type: str, opset: int) -> Any:
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _by_kernel(node: Node, kernel_class: Any) -> Callable[[tuple], Any]:
    from onnx.reference import ReferenceEvaluator

    opsets = {"": onnx.defs.onnx_opset_version(), node.domain: node.opset}
    for graph in node.subgraphs.values():
        opsets |= dict(graph.opsets)
    if node.op_type == "RoiAlign" and node.opset < 16:
        # Its one kernel has the default of opset 16, which moves the regions by half a pixel.
        node = replace(node, attributes={"coordinate_transformation_mode": "output_half_pixel", **node.attributes})
    try:
        instance = kernel_class(
            node_proto(node),
            {
                "log": lambda pattern, *args: None,
                "opsets": opsets,
                "verbose": 0,
                "new_ops": {},
                "existing_functions": {},
                "evaluator_cls": ReferenceEvaluator,
            },
        )
    except Exception as error:
        raise UnsupportedOpsError(f"onnx.reference does not take this form of {_words(node)}: {error}") from error
    return lambda arrays: instance.run(*arrays)


def _by_function(node: Node) -> Callable[[tuple], Any]:
    """Run an operator through its function body, which may depend on the types and shapes of the inputs."""
    from onnx.reference import ReferenceEvaluator

    schema = _function_schema(node.domain, node.op_type, node.opset)
    attributes = {**_defaults_in(schema), **node.attributes}
    attributes = {name: list(v) if isinstance(v, tuple) else v for name, v in attributes.items()}
    bodies: dict[tuple, Any] = {}

    def run(arrays: tuple) -> Any:
        key = () if schema.has_function else tuple((a.dtype, a.shape) if a is not None else None for a in arrays)
        evaluator = bodies.get(key)
        if evaluator is None:
            body = schema.function_body if schema.has_function else _body_for(node, schema, arrays)
            evaluator = bodies[key] = ReferenceEvaluator(body)
        names = evaluator.input_names
        feeds = dict(zip(names, [*arrays, *[None] * len(names)]))
        return evaluator.run(None, feeds, attributes=attributes)

    return run


def _body_for(node: Node, schema: Any, arrays: tuple) -> onnx.FunctionProto:
    """The function body of an operator for inputs of these types and shapes."""
    types = []
    for array in arrays:
        if array is None:
            types.append(onnx.TypeProto())
        else:
            types.append(helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    packed = schema.get_context_dependent_function(
        node_proto(node).SerializeToString(), [t.SerializeToString() for t in types]
    )
    return onnx.FunctionProto.FromString(packed)


def node_proto(node: Node) -> onnx.NodeProto:
    proto = helper.make_node(node.op_type, node.inputs, node.outputs, node.name, domain=node.domain)
    schema = None
    if onnx.defs.has(node.op_type, node.opset, node.domain):
        schema = onnx.defs.get_schema(node.op_type, node.opset, node.domain)
    for name, value in node.attributes.items():
        # An empty list does not show its element type; the schema does.
        declared = schema.attributes.get(name) if schema else None
        kind = int(declared.type.value) if declared is not None and isinstance(value, tuple) and not value else None
        proto.attribute.append(helper.make_attribute(name, _for_proto(value), attr_type=kind))
    for name, graph in node.subgraphs.items():
        proto.attribute.append(helper.make_attribute(name, graph_proto(graph)))
    return proto


def _for_proto(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return numpy_helper.from_array(value)
    if isinstance(value, Value):
        return _type_proto(value)
    if isinstance(value, tuple):
        return [_for_proto(item) for item in value]
    return value


def _type_proto(value: Value) -> onnx.TypeProto:
    kind = onnx.TensorProto.UNDEFINED if value.dtype is None else helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor = helper.make_tensor_type_proto(kind, value.shape)
    if value.kind == "sequence":
        return helper.make_sequence_type_proto(tensor)
    return helper.make_optional_type_proto(tensor) if value.kind == "optional" else tensor


def _plain(value: Any) -> Any:
    """Strings as objects and arrays in row-major order, as everywhere else; scalars as arrays."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        value = value.astype(object) if value.dtype.kind in "US" else value
        return value if value.flags.c_contiguous else packed_copy(value)
    return np.asarray(value) if isinstance(value, (np.generic, int, float, bool)) else value


def _words(node: Node) -> str:
    return f"{node.qualified_op} at opset {node.opset}"


# Attributes without effect on the result: left over from old opsets, or hints for a particular runtime.
_HARMLESS = {"consumed_inputs"}


class Kernel(NamedTuple):
    call: Callable[..., Any]  # takes the inputs, and ``out=`` and the like where the kernel has them
    spec: OpSpec | None  # what the op may do to its inputs; None for the reference evaluator's
    attributes: dict[str, Any]  # the node's, with the kernel's defaults


def kernel_of(node: Node) -> Kernel:
    spec = find(node.domain, node.op_type, node.opset)
    if spec is not None and spec.kernel is None:
        return Kernel(_overwriting(foreign_kernel(node)), spec, dict(node.attributes))
    if spec is not None and spec.kernel is not None:
        named, others = attributes_of(spec.kernel, node.domain, node.op_type, node.opset)
        unknown = [name for name in node.attributes if name not in named | others and name not in _HARMLESS]
        if not unknown:
            keywords = {name: value for name, value in others.items() if value is not inspect.Parameter.empty}
            keywords |= {name: value for name, value in node.attributes.items() if name not in _HARMLESS}
            if "n_outputs" in spec.wants:
                keywords["n_outputs"] = len(node.outputs)
            if "opset" in spec.wants:
                keywords["opset"] = node.opset
            call = partial(spec.kernel, **keywords) if keywords else spec.kernel
            defaults = {name: value for name, value in named.items() if value is not inspect.Parameter.empty}
            return Kernel(call, spec, {**defaults, **keywords})
        by_position = [name for name in unknown if name in inspect.signature(spec.kernel).parameters]
        if by_position and is_extension(spec.kernel):
            name, kernel = by_position[0], getattr(spec.kernel, "__name__", spec.kernel)
            raise ExtensionError(
                f"the kernel {kernel} of {node.qualified_op} (node {node.name!r}) takes the attribute {name} by "
                f"position, where inputs come; put it behind a star: (…, *, {name}=…)"
            )
        if not foreign_available(node.domain, node.op_type, node.opset):
            raise UnsupportedOpsError(
                f"node {node.name!r} ({node.qualified_op}) has attributes that no kernel knows: {', '.join(unknown)}"
            )
    return Kernel(foreign_kernel(node, len(node.outputs)), None, dict(node.attributes))


def _overwriting(compute: Callable[..., tuple]) -> Callable[..., tuple]:
    """A kernel of the reference evaluator that rounds narrow floats once and returns fresh memory, or ``out``."""

    def kernel(*args: Any, out: Any = None) -> tuple:
        if is_narrow(args[0]):
            return in_float32(compute, *args, out=out)
        first, *others = compute(*args)
        if out is not None:
            np.copyto(out, first)
            first = out
        elif any(isinstance(x, np.ndarray) and np.may_share_memory(first, x) for x in args):
            first = first.copy()
        return first, *others

    return kernel


@cache
def attributes_of(kernel: Callable, domain: str, op_type: str, opset: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes that a kernel knows, with their defaults, or `inspect.Parameter.empty`: those that it names, and
    the others of ONNX's schema for a kernel that takes ``**others``."""
    parameters = inspect.signature(kernel).parameters.values()
    named = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters) or not onnx.defs.has(op_type, opset, domain):
        return named, {}
    schema = onnx.defs.get_schema(op_type, opset, domain)
    defaults = _defaults_in(schema)
    return named, {name: defaults.get(name, inspect.Parameter.empty) for name in schema.attributes if name not in named}


def _defaults_in(schema: Any) -> dict[str, Any]:
    """The defaults that a schema states, as a node has attributes."""
    defaults = {name: declared.default_value for name, declared in schema.attributes.items()}
    return {name: attribute(proto, schema.name, Source("ONNX")) for name, proto in defaults.items() if proto.type}
