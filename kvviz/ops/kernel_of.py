"""The kernel of a node: one of ours where it knows all of the node's attributes, else the reference evaluator's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from kvviz.errors import ExtensionError, UnsupportedOpsError
from kvviz.graph.model import Node
from kvviz.ops import foreign
from kvviz.ops.numeric import in_float32, is_narrow
from kvviz.ops.registry import OpSpec, find, is_extension

# Attributes that say nothing about the result: left over from old opsets, or hints for a particular runtime.
_HARMLESS = {"consumed_inputs"}


class Kernel(NamedTuple):
    call: Callable[..., Any]  # takes the inputs, and ``out=`` and the like where the kernel has them
    spec: OpSpec | None  # what the op may do to its inputs; None for the reference evaluator's
    attributes: dict[str, Any]  # the node's, with the kernel's defaults


def kernel_of(node: Node) -> Kernel:
    spec = find(node.domain, node.op_type, node.opset)
    if spec is not None and spec.kernel is None:
        return Kernel(_overwriting(foreign.foreign_kernel(node)), spec, dict(node.attributes))
    if spec is not None and spec.kernel is not None:
        accepted = _keywords(spec.kernel)
        unknown = [name for name in node.attributes if name not in accepted and name not in _HARMLESS]
        if not unknown:
            keywords = {name: value for name, value in node.attributes.items() if name in accepted}
            if "n_outputs" in spec.wants:
                keywords["n_outputs"] = len(node.outputs)
            if "opset" in spec.wants:
                keywords["opset"] = node.opset
            call = partial(spec.kernel, **keywords) if keywords else spec.kernel
            return Kernel(call, spec, {**_defaults(spec.kernel), **keywords})
        by_position = [name for name in unknown if name in inspect.signature(spec.kernel).parameters]
        if by_position and is_extension(spec.kernel):
            name, kernel = by_position[0], getattr(spec.kernel, "__name__", spec.kernel)
            raise ExtensionError(
                f"the kernel {kernel} of {node.qualified_op} (node {node.name!r}) takes the attribute {name} by "
                f"position, where inputs come; put it behind a star: (…, *, {name}=…)"
            )
        if not foreign.foreign_available(node.domain, node.op_type, node.opset):
            raise UnsupportedOpsError(
                f"node {node.name!r} ({node.qualified_op}) has attributes that no kernel knows: {', '.join(unknown)}"
            )
    return Kernel(foreign.foreign_kernel(node, len(node.outputs)), None, dict(node.attributes))


def _overwriting(compute: Callable[..., tuple]) -> Callable[..., tuple]:
    """A kernel of the reference evaluator that rounds narrow floats once and gives memory of its own, or ``out``."""

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
def _keywords(kernel: Callable) -> frozenset[str]:
    parameters = inspect.signature(kernel).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


@cache
def _defaults(kernel: Callable) -> dict[str, Any]:
    parameters = inspect.signature(kernel).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}
