"""A check of what a kernel that the caller wrote returns. kvviz's own kernels are not checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kvviz.errors import ExtensionError
from kvviz.ops.registry import is_extension

_DOUBLE = np.dtype(np.float64)


def checked_kernel(planned: Any, declared: Mapping[str, Any]) -> Callable[..., Any]:
    """The call of a planned node; of a kernel that the caller wrote, its results are looked at.

    ``declared``: dtypes that the model declares, by value name.
    """
    spec, node, call = planned.spec, planned.node, planned.call
    if spec is None or not is_extension(spec.kernel):
        return call
    kernel = getattr(spec.kernel, "__name__", type(spec.kernel).__name__)
    who = f"the kernel {kernel} of {node.qualified_op} (node {node.name!r})"
    # Overwriting is described as elementwise unless ``fits`` says otherwise, so that the type is that of the input.
    like = spec.overwrites[0] if spec.overwrites and spec.fits is None else None

    def checked(*args: Any, **how: Any) -> Any:
        out = call(*args, **how)
        outs = out if type(out) is tuple else (out,)
        if not isinstance(out, (np.ndarray, np.generic, tuple)):
            what = "nothing" if out is None else f"a {type(out).__name__}"
            raise ExtensionError(
                f"{who} returned {what}; it has to return an ndarray, or a tuple with one entry an output (in which a "
                "list is a sequence)"
            )
        if any(node.outputs[len(outs) :]):
            raise ExtensionError(f"{who} returned {len(outs)} of the {len(node.outputs)} outputs that the node names")
        if len(outs) > len(node.outputs):
            raise ExtensionError(
                f"{who} returned {len(outs)} outputs, and the node names {len(node.outputs)}; with n_outputs=1 among "
                "its keywords the kernel is passed how many are wanted"
            )
        for position, (name, value) in enumerate(zip(node.outputs, outs)):
            if not name:
                continue
            if not isinstance(value, (np.ndarray, np.generic, list)):
                raise ExtensionError(f"{who} returned a {type(value).__name__} for {name!r}; it has to be an ndarray")
            wanted, why = declared.get(name), "the model declares"
            if wanted is None and position == 0 and like is not None and like < len(args) and args[like] is not None:
                wanted, why = args[like].dtype, f"overwrites=({like},) promises: the type of {node.inputs[like]!r} is"
            if isinstance(value, list):
                continue
            if wanted is not None and _differ(value.dtype, wanted):
                raise ExtensionError(f"{who} returned {value.dtype} for {name!r}, for which {why} {wanted}")
            if wanted is None and value.dtype == _DOUBLE and not any(_is_double(arg) for arg in args):
                raise ExtensionError(
                    f"{who} returned float64 for {name!r}, and none of its inputs is float64: a scalar or an array in "
                    "the kernel is; if it is meant, declare the type of the value in the model"
                )
        return out

    return checked


def _is_double(value: Any) -> bool:
    return bool(getattr(value, "dtype", None) == _DOUBLE)


def _differ(found: Any, wanted: Any) -> bool:
    """Whether two dtypes differ; texts have several."""
    return found != wanted and not (found.kind in "OSUT" and wanted.kind in "OSUT")
