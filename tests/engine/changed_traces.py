"""Random changes of a trace file, and every way to read what comes of them."""

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvviz.trace.value_summaries import COLUMNS
from kvviz.view.page_data.payload_values import values_payload
from tests.outside import told

_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 7, 100, 2**31, 2**62, 2**63, 10**30, 1.5),
    *("", "x", "float32", "float31", [], {}, [0], [[]], [1, 2, 3], ["a"]),
)
_NUMBERS = (-1, 0, 1, 2, 3, 5, 100, 2**31, 2**62, -(2**62))


def changed_members(members: dict[str, bytes], choose: random.Random) -> dict[str, bytes]:
    """A file's members with one thing changed: a value of the header, or a number of a column."""
    changed = dict(members)
    if choose.random() < 0.5:
        header = json.loads(members["header.json"])
        section = choose.choice(list(header))
        _change(header, choose.choice(list(_paths(header[section], (section,)))), choose)
        changed["header.json"] = json.dumps(header).encode()
        return changed
    if choose.random() < 0.2 and "values.cells" in members:
        name = f"values.{choose.choice(sorted(COLUMNS))}"
        numbers = np.frombuffer(members[name], COLUMNS[name[7:]][0]).copy()
        limits = np.finfo(numbers.dtype) if numbers.dtype.kind == "f" else np.iinfo(numbers.dtype)
        numbers[choose.randrange(len(numbers))] = choose.choice((limits.min, limits.max, 0, 1, 7, 100))
        return {**members, name: numbers.tobytes()}
    name = choose.choice([name for name, data in members.items() if name[-3:-1] == ".i" and data])
    numbers = np.frombuffer(members[name], f"<{name[-2:]}").astype(np.int64)
    place, how = choose.randrange(len(numbers)), choose.random()
    if how < 0.1:
        numbers = np.delete(numbers, place)
    elif how < 0.2:
        numbers = np.insert(numbers, place, numbers[choose.randrange(len(numbers))])
    elif how < 0.7:
        numbers[place] += choose.choice((-2, -1, 1, 2, 8, 1000))
    else:
        numbers[place] = choose.choice(_NUMBERS)
    return with_column(changed, name, numbers)


def with_column(members: dict[str, bytes], name: str, numbers: np.ndarray) -> dict[str, bytes]:
    """A file's members with other numbers in one column, of 8 bytes each."""
    others = {other: data for other, data in members.items() if other != name}
    return {**others, f"{name[:-3]}.i8": numbers.astype("<i8").tobytes()}


def read_in_every_way(trace: Any) -> None:
    """Whatever reads a trace, short of plots."""
    for name, tell in {**told.READERS, **told.PICTURES}.items():
        if name != "plots":
            tell(trace)
    assert all(storage.capacity >= 0 and storage.name is not None for storage in trace.storages)
    if trace.values is not None:
        assert all(found.name for found in trace.values) and values_payload(trace)
        _ = [trace.values.attention(cache, run) for cache in range(len(trace.caches)) for run in range(len(trace.runs))]
    told.loaded(trace)


def _paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, (*path, key))


def _change(header: dict[str, Any], path: tuple[Any, ...], choose: random.Random) -> None:
    *outer, last = path
    held: Any = header
    for key in outer:
        held = held[key]
    old, how = held[last], choose.random()
    if how < 0.1:
        del held[last]
    elif how < 0.2 and isinstance(held, list):
        held.insert(last, choose.choice(held))
    elif how < 0.6 and type(old) is int:
        held[last] = old + choose.choice((-2, -1, 1, 2, 1000))
    elif how < 0.6 and type(old) is str:
        held[last] = choose.choice(("", "a", f"{old}x", "weights", "run"))
    else:
        held[last] = choose.choice(_VALUES)
