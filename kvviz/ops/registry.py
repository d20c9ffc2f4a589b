"""The table of operators: which kernel runs, what it reads, and what it may overwrite, return as a view, or append to.

A kernel is a plain function. ONNX inputs are positional (``None`` for an absent optional one), ONNX attributes are
keyword-only arguments under their ONNX names. It never writes to an argument unless it gets ``out=`` (or ``grown=``),
and it never decides who owns memory.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from kvviz.errors import ExtensionError
from kvviz.trace.schema.regions import Region, blocks

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Cost = Callable[..., tuple[int, int]]
Written = Callable[[Sequence[Any], Sequence[Any], dict[str, Any]], tuple[tuple[int, Region], ...]]


@dataclass(frozen=True, slots=True)
class Grow:
    """A past that a present may extend in its own storage.

    ``input, output``: position of the past and of the present.
    ``axis``: ``axis(args, attributes)`` gives the axis that grows, counted from 0.
    ``rows``: ``rows(args, attributes)`` gives how many rows the present has beyond the past. 0 means that the present
      has the past's shape and rows inside it are overwritten (a shared or static buffer).
    ``reads``: the kernel reads the past's bytes even if it appends to them.
    """

    input: int
    output: int
    axis: Callable[[Sequence[Any], dict], int]
    rows: Callable[[Sequence[Any], dict], int]
    reads: bool = True


@dataclass(frozen=True, slots=True)
class OpSpec:
    """The engine's facts on one operator, from one opset version on.

    ``kernel``: ``kernel(*inputs, **attributes)`` returns an ndarray, or a tuple with one entry per output.
      None: that of ``onnx.reference`` computes, and only the op's effects on its inputs are stated here.
    ``overwrites``: input positions whose storage output 0 may take over (``out=`` is then that very array).
    ``fits``: ``fits(args, position, attributes)`` says whether output 0 has exactly the shape and dtype of that
      input: ``""`` (fits), ``"shape"`` or ``"dtype"``. None means "elementwise": the other inputs broadcast to it.
    ``views``: input positions whose memory outputs may share without a copy (the engine checks which do).
    ``unread``: inputs of which only the shape or the type is read, not the bytes.
    ``grows``: pasts that may be extended in place; the kernel then gets ``grown=`` (one entry per Grow, or None).
    ``by_element``: every element of an output follows from one element of each input, rounded once or not at all: how
      inputs and ``out`` lie in memory changes no bit of it.
    ``commutative``: the operands may be swapped.
    ``moves``: the op only moves existing data: everything it writes counts as copied.
    ``cost``: ``cost(args, outs, in_place, attributes)`` returns (written, copied) in bytes if the rule above is not
      exact.
    ``written``: ``written(args, outs, attributes)`` returns, for outputs in the memory of inputs that were written only
      in part, their positions and the part, with its offset from the first element. Other outputs are written in full,
      or, after a past, in all new rows.
    ``steady``: ``steady(args, attributes)`` returns a call of the inputs alone (and of ``out`` behind them, if that is
      overwritten) without the kernel's tests, with equal results for inputs of the dtypes and layouts of these; or
      None.
    ``wants``: which of ``n_outputs``, ``opset``, ``out``, ``grown`` the kernel takes as keywords.
    """

    op_type: str
    domain: str
    since: int
    kernel: Callable[..., Any] | None
    overwrites: tuple[int, ...] = ()
    fits: Callable[..., str] | None = None
    views: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    grows: tuple[Grow, ...] = ()
    by_element: bool = False
    commutative: bool = False
    moves: bool = False
    cost: Cost | None = None
    written: Written | None = None
    steady: Callable[[Sequence[Any], dict], Callable[..., Any] | None] | None = None
    wants: frozenset[str] = field(default_factory=frozenset)


MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""

_TABLE: dict[tuple[str, str], list[OpSpec]] = {}
_registrations = 0
_EXTRA = ("n_outputs", "opset", "out", "grown")


def op(*names: str, domain: str = "", since: int = 1, **facts: Any) -> Callable[[Kernel], Kernel]:
    """Register a kernel for one or several operators from opset ``since`` on. A later one for the same replaces it.

    ``facts``: other fields of `OpSpec`: ``overwrites``, ``views``, ``grows``, ``moves`` …

    Examples
    --------
    >>> @op("Relu", overwrites=(0,))
    ... def relu(x, *, out=None):
    ...     return np.maximum(x, 0, out=out)
    """

    _check_call(names, domain, since, facts)

    def register(kernel: Kernel) -> Kernel:
        global _registrations
        if not callable(kernel):
            raise ExtensionError(f"op({names[0]!r}) decorates a function, not a {type(kernel).__name__}")
        wants = frozenset(_EXTRA) & set(inspect.signature(kernel).parameters)
        for fact, keyword in (("overwrites", "out"), ("grows", "grown")):
            if facts.get(fact) and keyword not in wants:
                raise ExtensionError(
                    f"op({names[0]!r}, {fact}=…): the kernel has to take {keyword}=None, where it is to write"
                )
        _registrations += 1
        for name in names:
            _add(OpSpec(name, domain, since, kernel, wants=wants, **facts))
        return kernel

    return register


def by_reference(*names: str, since: int = 1, **facts: Any) -> None:
    """Declare what operators that ``onnx.reference`` computes may do to their inputs; ``facts`` as for `op`."""
    wants = frozenset({"out"} if facts.get("overwrites") else ())
    for name in names:
        _add(OpSpec(name, "", since, None, wants=wants, **facts))


def _add(spec: OpSpec) -> None:
    key = spec.domain, spec.op_type
    others = [one for one in _TABLE.get(key, ()) if one.since != spec.since]
    _TABLE[key] = sorted([*others, spec], key=lambda one: -one.since)


def version() -> int:
    """A number that changes with every registration."""
    return _registrations


def is_extension(function: Any) -> bool:
    return not (getattr(function, "__module__", None) or "").startswith("kvviz.")


def _check_call(names: Sequence[Any], domain: Any, since: Any, facts: dict[str, Any]) -> None:
    """Refuse arguments of `op` that would register something unintended."""
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ExtensionError('op takes the names of operators: @op("Swish", domain="my.domain")')
    first, *others = names
    for name in others:
        if "." in name or "::" in name or (name[0].islower() and first[0].isupper()):
            raise ExtensionError(
                f"op({first!r}, {name!r}) would register an operator named {name!r}; a domain is given by name: "
                f"op({first!r}, domain={name!r})"
            )
    if not isinstance(domain, str) or isinstance(since, bool) or not isinstance(since, int):
        raise ExtensionError(f"op({first!r}): domain is a text and since a number, not {domain!r} and {since!r}")
    known = [one.name for one in fields(OpSpec)][4:-1]
    for name, value in facts.items():
        if name not in known:
            raise ExtensionError(f"op({first!r}): there is no {name}=; an operator has {', '.join(known)}")
        if name in ("overwrites", "views", "unread", "grows") and not isinstance(value, tuple):
            raise ExtensionError(f"op({first!r}): {name}= is a tuple, such as (0,), not {value!r}")


def find(domain: str, op_type: str, opset: int) -> OpSpec | None:
    """The kernel of an operator at an opset version, or None if we have none."""
    for spec in _TABLE.get((domain, op_type), ()):
        if spec.since <= opset:
            return spec
    return None


def known() -> list[OpSpec]:
    """Every registered operator version, for tests and documentation."""
    return [spec for versions in _TABLE.values() for spec in versions]


# The element of an array of texts.
_REFERENCE = np.dtype(np.intp)

Parts = tuple[tuple[int, Region], ...]
"""Outputs by their positions, and the part of each that was written."""


def rows_along(out: np.ndarray, axis: int, starts: Sequence[int], rows: int) -> Region:
    """So many rows of an output along an axis, from one start per batch entry, or one for all."""
    shape, strides, dtype = out.shape, out.strides, out.dtype
    first = starts[0] if starts else 0
    if len(starts) < 2 or starts.count(first) == len(starts):
        shape = (*shape[:axis], rows, *shape[axis + 1 :])
        return Region(first * strides[axis], shape, strides, _REFERENCE if dtype.hasobject else dtype)
    return spans_along(out, axis, [((start, start + rows),) for start in starts])


def spans_along(out: np.ndarray, axis: int, spans: Iterable[Iterable[tuple[int, int]]]) -> Region:
    """Rows of an output along an axis; ``spans`` has half-open ranges for each batch entry."""
    shape, (between, *_), along = out.shape, out.strides, out.strides[axis]
    starts = [b * between + row * along for b, some in enumerate(spans) for a, z in some for row in range(a, z)]
    one = (1, *shape[1:axis], 1, *shape[axis + 1 :])
    return blocks(starts, one, out.strides, _REFERENCE if out.dtype.hasobject else out.dtype)


def at_tuples(out: np.ndarray, indices: np.ndarray) -> Region:
    """Slices of an output at tuples of leading indices, which are the last axis of ``indices``."""
    depth, shape, strides = indices.shape[-1], out.shape, out.strides
    starts = np.zeros(math.prod(indices.shape[:-1]), np.int64)
    for k in range(depth):
        starts += _from_start(indices[..., k], shape[k]).reshape(-1) * strides[k]
    return blocks(starts, shape[depth:], strides[depth:], _REFERENCE if out.dtype.hasobject else out.dtype)


def at_elements(out: np.ndarray, indices: np.ndarray, axis: int) -> Region:
    """Elements of an output whose place along one axis is given for each of them."""
    starts = _from_start(indices, out.shape[axis]) * out.strides[axis]
    for other, n in enumerate(indices.shape):
        if other != axis:
            starts = starts + (np.arange(n) * out.strides[other]).reshape((n,) + (1,) * (indices.ndim - other - 1))
    return blocks(starts.reshape(-1), (), (), _REFERENCE if out.dtype.hasobject else out.dtype)


def _from_start(indices: np.ndarray, length: int) -> np.ndarray:
    return np.where(indices < 0, indices + length, indices).astype(np.int64)
