"""Inputs of a run, checked and bound, its outputs, and the weights of its model."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.ledger import Ledger, Roots
from kvviz.engine.plan import KEEP, Plan
from kvviz.engine.run_state import RunState
from kvviz.errors import InputError, LoadError
from kvviz.graph.model import Graph, Value
from kvviz.memory.ghosts import ghost, packed_copy
from kvviz.memory.storage import Storage, address, offset_in, repeats, root_of
from kvviz.trace.schema.events import Bind


def describe(name: str, value: Any, storage: Storage, how: str) -> Bind:
    offset = offset_in(storage, value) if isinstance(value, np.ndarray) else 0
    return Bind(name, storage.id, storage.generation, how, getattr(value, "shape", None), dtype_of(value), offset)


def dtype_of(value: Any) -> Any:
    return value.dtype if isinstance(value, np.ndarray) else type(value).__name__


def check_inputs(graph: Graph, inputs: Mapping[str, Any], donate: Sequence[str] = ()) -> dict[str, Any]:
    """The inputs of a run as arrays, checked against the graph's declarations.

    ``inputs``: by name; lists and scalars are converted to the declared dtype, arrays are used as they are. ``donate``:
    inputs that the run may overwrite.

    Raises `InputError`: one sentence that names every unknown or missing input, or the input whose dtype, rank or fixed
    dimension differs.
    """
    declared = {value.name: value for value in (*graph.inputs, *graph.overridable)}
    unknown = [name for name in inputs if name not in declared]
    if unknown:
        inner = [name for name in unknown if name in graph.producers]
        why = f" ({_names(inner)} is made inside; only the policy rten takes such values)" if inner else ""
        raise InputError(f"the graph has no input named {_names(unknown)}{why}; its inputs are {_names(declared)}")
    missing = [value.name for value in graph.inputs if value.name not in inputs and value.kind != "optional"]
    if missing:
        details = ", ".join(f"{name} {_describe(declared[name])}" for name in missing)
        raise InputError(f"missing input{'s' * (len(missing) > 1)}: {details}")
    for name in donate:
        if name not in inputs:
            raise InputError(f"cannot donate {name!r}: it is not among the inputs that were given ({_names(inputs)})")
    checked = {name: _check(declared[name], value) for name, value in inputs.items()}
    for name in donate:
        value = checked[name]
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            raise InputError(f"input {name!r} is donated, but its array is read-only; pass a copy or do not donate it")
        if isinstance(value, np.ndarray) and repeats(value):
            raise InputError(
                f"input {name!r} is donated, but elements of its array share memory; pass a copy or do not donate it"
            )
    return checked


def _check(value: Value, given: Any) -> Any:
    if value.kind != "tensor":
        if value.kind == "sequence" and isinstance(given, (list, tuple)):
            return [np.asarray(element) for element in given]
        return given
    if given is None:
        raise InputError(f"input {value.name!r} is None; it must be {_describe(value)}")
    if not isinstance(given, np.ndarray):
        try:
            given = _converted(given, value.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"input {value.name!r} must be {_describe(value)}: {error}") from None
    elif (
        value.dtype is not None
        and given.dtype != value.dtype
        and not (given.dtype.kind in "UO" and value.dtype == object)
    ):
        raise InputError(
            f"input {value.name!r} has dtype {given.dtype}, but the graph declares {value.dtype}; "
            f"convert it with .astype(np.{value.dtype})"
        )
    if type(given) is not np.ndarray:
        given = given.view(np.ndarray)
    if not is_shape(value, given.shape):
        raise InputError(
            f"input {value.name!r} has shape {list(given.shape)}, but the graph declares {_describe(value)}"
        )
    return given


def is_shape(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether a value may have this shape: its rank and its fixed lengths are those declared."""
    dims = value.shape
    if dims is None:
        return True
    return len(dims) == len(shape) and all(not isinstance(dim, int) or dim == n for dim, n in zip(dims, shape))


def _converted(given: Any, dtype: np.dtype | None) -> np.ndarray:
    """Lists and scalars as an array of the declared dtype; numbers that would lose their fraction are refused."""
    array = np.asarray(given)
    if dtype is None or array.dtype == dtype:
        return array
    if array.size and array.dtype.kind in "fc" and dtype.kind in "iub":
        raise ValueError(f"{given!r} has elements of type {array.dtype}")
    return np.asarray(given, dtype=dtype)


def bind_inputs(execution: RunState, feeds: Mapping[str, Any], donate: frozenset[str]) -> None:
    """Inputs that share memory share a storage."""
    frame = execution.main
    plan = frame.plan
    known = Roots()
    how: list[tuple[str, int, str]] = []
    # Borrowed ones first: a block that is given twice is borrowed if one side borrows it.
    unread = [value for name, value in feeds.items() if name not in donate and plan.slots.get(name) is None]
    for name in sorted(feeds, key=donate.__contains__) if donate else feeds:
        slot = plan.slots.get(name)
        if slot is None:
            continue
        donated = name in donate
        value = feeds[name]
        # The caller relies on a borrowed value even if no op reads it.
        owned = donated and not (unread and _touches(value, unread))
        storage = execution.ledger.adopt(value, "donated" if owned else "caller", owned, known)
        if frame.uses[slot] >= KEEP:
            # The caller's value replaces a weight, and is released after its last reading like any other.
            frame.uses[slot] -= KEEP
        frame.bind(slot, value, storage)
        how.append((name, slot, "donated" if donated else "borrowed"))
    dropped = execution.ledger.begin_run(known)
    execution.recorder.note_freed(dropped)
    execution.note_bindings(frame, how)


def _touches(value: Any, others: Sequence[Any]) -> bool:
    found = value if isinstance(value, (list, tuple)) else (value,)
    theirs = [part for other in others for part in (other if isinstance(other, (list, tuple)) else (other,))]
    arrays = [part for part in theirs if isinstance(part, np.ndarray)]
    return any(np.may_share_memory(part, other) for part in found if isinstance(part, np.ndarray) for other in arrays)


def collect_outputs(execution: RunState) -> dict[str, Any]:
    """Outputs by name. An output in memory of the caller, the model or another output is copied (the copy is not
    counted), so that donating it to a later run donates nothing else."""
    frame = execution.main
    results: dict[str, Any] = {}
    given: dict[int, list[np.ndarray]] = {}
    for slot in frame.plan.outputs:
        value, storage = frame.vals[slot], frame.stores[slot]
        if storage is not None:
            value = _handed_over(value, storage, given)
        results[frame.plan.names[slot]] = value
    return results


def _handed_over(value: Any, storage: Storage, given: dict[int, list[np.ndarray]]) -> Any:
    if isinstance(value, np.ndarray):
        others = given.setdefault(storage.id, [])
        if not storage.owned or any(np.may_share_memory(value, other) for other in others):
            return packed_copy(value)
        others.append(value)
        return value
    if isinstance(value, (list, tuple)) and len(value) == len(storage.parts):
        return [_handed_over(element, part, given) for element, part in zip(value, storage.parts)]
    return value


def _names(names: Any) -> str:
    listed = [repr(name) if len(name) < 80 else repr(name[:77] + "...") for name in names]
    more = f" and {len(listed) - 12} more" if len(listed) > 12 else ""
    return ", ".join(listed[:12]) + more if listed else "none"


def _describe(value: Value) -> str:
    if value.kind != "tensor":
        return value.kind
    shape = "" if value.shape is None else "[" + ", ".join("?" if d is None else str(d) for d in value.shape) + "]"
    return f"{value.dtype or 'tensor'}{shape}"


def end_run(execution: RunState) -> None:
    """Release all values of the main frame; the outputs belong to the caller from now on."""
    frame = execution.main
    kept = [frame.stores[slot] for slot in frame.plan.outputs if frame.stores[slot] is not None]
    held = [s for s, left in zip(frame.stores, frame.uses) if s is not None and left < KEEP >> 1]
    execution.recorder.note_freed(execution.ledger.end_run([s for s in kept if s.owned], held))
    frame.vals, frame.stores = [], []


Described = tuple[Bind, ...]
_KNOWN = 64  # elements of a weight that a dry run reads


class _Table:
    """The blocks of memory that hold a model's weights, at any depth, and the block of each weight. ``blocks``: bytes
    and root."""

    def __init__(self, graph: Graph, dry: bool) -> None:
        self.blocks: list[tuple[int, np.ndarray]] = []
        self._numbers: dict[int, int] = {}
        self._arrays: WeakKeyDictionary[Graph, Mapping[str, np.ndarray]] = WeakKeyDictionary()
        self._plans: WeakKeyDictionary[Plan, tuple[list[Any], list[tuple[int, int]], Described]] = WeakKeyDictionary()
        graphs = {graph: None} | {
            inner: None
            for _, node in graph.walk()
            for inner in (*node.subgraphs.values(), *((node.function,) if node.function else ()))
        }
        for inner in graphs:
            values = self._arrays[inner] = _ghosts(inner) if dry else inner.weights
            for value in values.values():
                root = root_of(value)
                if self._numbers.setdefault(id(root), len(self.blocks)) == len(self.blocks):
                    self.blocks.append((max(root.nbytes, value.nbytes), root))
        self.sizes = array("q", (size for size, _ in self.blocks))
        self.total = sum(self.sizes)

    def bound(self, plan: Plan) -> tuple[list[Any], list[tuple[int, int]], Described]:
        """For the weights of a plan: values by slot, (slot, number of the storage), and their bindings in the trace."""
        found = self._plans.get(plan)
        if found is None:
            weights = self._arrays[plan.graph]
            values: list[Any] = [None] * len(plan.names)
            places, described = [], []
            for name, slot in plan.weights:
                value = values[slot] = weights[name]
                root = root_of(value)
                number = self._numbers[id(root)]
                offset = address(value) - address(root) if value.size else 0
                places.append((slot, number))
                described.append(Bind(name, number, 0, "weight", value.shape, value.dtype, offset))
            found = self._plans[plan] = values, places, tuple(described)
        return found


def _ghosts(graph: Graph) -> Mapping[str, np.ndarray]:
    """The weights of a graph as ghosts; small ones are read, as they may be a shape, axes or a scale."""
    declared = getattr(graph.weights, "declared", None)
    found: dict[str, np.ndarray] = {}
    for name in graph.weights:
        value = declared(name) if declared is not None else graph.weights[name]
        shape, dtype, why = value.shape, value.dtype, ""
        if dtype is None or shape is None or dtype.hasobject or math.prod(shape) <= _KNOWN:
            try:
                found[name] = graph.weights[name]
                continue
            except LoadError as error:
                if dtype is None or shape is None:
                    raise
                why = str(error)
        found[name] = ghost(shape, dtype, why)
        found[name].flags.writeable = False
    return found


_TABLES: tuple[WeakKeyDictionary[Graph, _Table], ...] = (WeakKeyDictionary(), WeakKeyDictionary())


class Weights:
    """The weights of a model and of all its subgraphs, in one ledger; the model holds them permanently."""

    def __init__(self, graph: Graph, ledger: Ledger, dry: bool = False) -> None:
        tables = _TABLES[dry]
        self._table = tables.get(graph) or tables.setdefault(graph, _Table(graph, dry))
        self._ledger = ledger
        self._first = ledger.lend(self._table.sizes, self._table.total)
        self._bound: dict[Plan, tuple[list[Any], list[Storage | None]]] = {}

    def bind(self, frame: Frame) -> None:
        bound = self._bound.get(frame.plan)
        if bound is None:
            values, places, _ = self._table.bound(frame.plan)
            stores: list[Storage | None] = [None] * len(values)
            storages, first, blocks = self._ledger.storages, self._first, self._table.blocks
            for slot, number in places:
                # That of a block is made when a frame needs it, as making all is slow.
                storage = storages[first + number]
                if storage is None:
                    storage = storages[first + number] = Storage(first + number, *blocks[number], "weights", False, 1)
                stores[slot] = storage
            bound = self._bound[frame.plan] = values, stores
        frame.vals[:], frame.stores[:] = bound

    def described(self, plan: Plan) -> Described:
        return self._table.bound(plan)[2]
