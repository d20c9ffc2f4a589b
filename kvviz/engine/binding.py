"""Inputs of a run, checked and bound, and its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.engine.ledger import Roots
from kvviz.engine.plans.plan import KEEP
from kvviz.engine.sessions.run_state import RunState
from kvviz.errors import InputError
from kvviz.graph.model import Graph, Value
from kvviz.memory.ghosts import packed_copy
from kvviz.memory.storage import Storage, offset_in, repeats
from kvviz.trace.schema.events import Bind


def describe(name: str, value: Any, storage: Storage, how: str) -> Bind:
    """The binding that the trace records for a value that exists when a frame starts."""
    offset = offset_in(storage, value) if isinstance(value, np.ndarray) else 0
    return Bind(name, storage.id, storage.generation, how, getattr(value, "shape", None), dtype_of(value), offset)


def dtype_of(value: Any) -> Any:
    """Element type of an array; the kind of anything else."""
    return value.dtype if isinstance(value, np.ndarray) else type(value).__name__


def check_inputs(graph: Graph, inputs: Mapping[str, Any], donate: Sequence[str] = ()) -> dict[str, Any]:
    """The inputs of a run as arrays, checked against what the graph declares.

    ``inputs``: by name; lists and scalars are converted to the declared dtype, arrays are taken as they are.
    ``donate``: inputs that the run may overwrite.

    Raises `InputError`: one sentence that names every unknown or missing input, or the input whose dtype, rank or
      fixed dimension differs.
    Raises `LoadError`: A file that weights lie in was cut short.
    """
    if graph.files is not None:
        graph.files.check()
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
    if value.shape is not None:
        fits = len(value.shape) == given.ndim and all(
            not isinstance(dim, int) or dim == n for dim, n in zip(value.shape, given.shape)
        )
        if not fits:
            raise InputError(
                f"input {value.name!r} has shape {list(given.shape)}, but the graph declares {_describe(value)}"
            )
    return given


def _converted(given: Any, dtype: np.dtype | None) -> np.ndarray:
    """Lists and scalars as an array of the declared dtype; numbers that would lose their fraction are refused."""
    array = np.asarray(given)
    if dtype is None or array.dtype == dtype:
        return array
    if array.size and array.dtype.kind in "fc" and dtype.kind in "iub":
        raise ValueError(f"{given!r} has elements of type {array.dtype}")
    return np.asarray(given, dtype=dtype)


def bind_inputs(execution: RunState, feeds: Mapping[str, Any], donate: frozenset[str]) -> None:
    """Bind the inputs to the main frame; inputs that share memory share a storage."""
    frame = execution.main
    plan = frame.plan
    known = Roots()
    how: list[tuple[str, int, str]] = []
    # Borrowed ones first: a block that is given twice is borrowed if one side borrows it.
    unread = [value for name, value in feeds.items() if name not in donate and plan.slots.get(name) is None]
    for name in sorted(feeds, key=lambda n: n in donate):
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
    """Whether a value may have memory in common with one of the others."""
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
    """Release everything that the main frame holds; the outputs belong to the caller from now on."""
    frame = execution.main
    kept = [frame.stores[slot] for slot in frame.plan.outputs if frame.stores[slot] is not None]
    held = [s for slot, s in enumerate(frame.stores) if s is not None and frame.uses[slot] < KEEP >> 1]
    execution.recorder.note_freed(execution.ledger.end_run([s for s in kept if s.owned], held))
    frame.vals, frame.stores = [], []
