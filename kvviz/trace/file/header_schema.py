"""The header of a saved trace: what each part must look like, and what is made of it.

A description of a part is a type or a test of one value; ``[p]`` for a list of any length, ``(p, q)`` for one of
exactly these, a dict for an object with these keys; or one of the classes here. Lists are read as tuples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kvviz.graph.loading.external import ModelFile
from kvviz.graph.model import Value
from kvviz.trace.guided_tour import Tour
from kvviz.trace.records import Branch, Cache, CacheRun, Rows
from kvviz.trace.schema.declared import Access, Arena, Free, Mark
from kvviz.trace.schema.element_types import is_known
from kvviz.trace.schema.events import Bind, Grows
from kvviz.trace.schema.regions import KNOWN, Region
from kvviz.trace.schema.run_options import KINDS, GivenInputs, InputLayout, RunOptions
from kvviz.trace.trace_data import GraphTypes, PolicyFacts, TypeFacts


@dataclass(frozen=True, slots=True)
class Maybe:
    pattern: Any


class Made:
    """The result of a function of the values of a list, each as described. ``since``: number of values that every file
    has; older files lack the rest."""

    def __init__(self, make: Callable[..., Any], *patterns: Any, since: int | None = None) -> None:
        self.make, self.patterns = make, patterns
        self.since = len(patterns) if since is None else since


@dataclass(frozen=True, slots=True)
class Read:
    function: Callable[[Any], Any]


def read(value: Any, pattern: Any) -> Any:
    """Read a value from JSON; raises `ValueError` or KeyError unless it is as described."""
    return reader(pattern)(value)


def reader(pattern: Any) -> Callable[[Any], Any]:
    """A function that reads values of one description, which is parsed once."""
    if isinstance(pattern, Maybe):
        there = reader(pattern.pattern)
        return lambda value: None if value is None else there(value)
    if isinstance(pattern, Read):
        return pattern.function
    if isinstance(pattern, Made):
        return _making(pattern)
    if isinstance(pattern, list):
        one = reader(pattern[0])
        return lambda value: tuple([one(item) for item in (value if type(value) is list else _refuse(value))])
    if isinstance(pattern, tuple):
        return _making(Made(lambda *values: values, *pattern))
    if isinstance(pattern, dict):
        parts = {key: reader(part) for key, part in pattern.items()}
        return lambda value: {key: of_key(_as_dict(value)[key]) for key, of_key in parts.items()}
    if isinstance(pattern, type):
        return lambda value: value if type(value) is pattern else _refuse(value)
    return lambda value: value if pattern(value) else _refuse(value)


def _making(pattern: Made) -> Callable[[Any], Any]:
    make, since, parts = pattern.make, pattern.since, [reader(part) for part in pattern.patterns]

    def made(value: Any) -> Any:
        if type(value) is not list or not since <= len(value) <= len(parts):
            _refuse(value)
        return make(*[part(item) for part, item in zip(parts, value)])

    return made


def _as_dict(value: Any) -> Any:
    return value if type(value) is dict else _refuse(value)


def _refuse(value: Any) -> Any:
    raise ValueError(f"{str(value)[:60]!r} is out of place")


def below(limit: int) -> Callable[[Any], bool]:
    """Whole numbers from 0 up to, not including, a limit."""
    return lambda value: type(value) is int and 0 <= value < limit


def count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 48


def mask(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def dim(value: Any) -> bool:
    """A length, the name of a symbolic dimension, or None."""
    return value is None or type(value) is str or count(value)


def number(value: Any) -> bool:
    return type(value) in (int, float)


def opsets(value: Any) -> bool:
    return type(value) is dict and all(count(version) for version in value.values())


def moment(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < math.inf


def element_type(name: str) -> bool:
    """The name of an element type; NumPy's abbreviations and descriptions are never written."""
    return type(name) is str and len(name) > 2 and is_known(name)


def typed(make: Callable[..., Any]) -> Callable[..., Any]:
    """Make something of a shape and an element type; without a shape it is a sequence or an optional, of any type."""

    def made(*values: Any) -> Any:
        found = make(*values)
        if found.shape is not None and not element_type(found.dtype):
            _refuse(found.dtype)
        return found

    return made


def _schedule(value: Any) -> tuple[Any, ...]:
    read(value, list)
    name, *facts = value
    return (read(name, str), *read(facts, _SCHEDULES.get(name, ())))


def _attribute(value: Any) -> Any:
    """A number, a text, a short list of these, or a small tensor."""
    if type(value) is dict:
        return read(value["tensor"], _TENSOR)
    parts = read(value if type(value) is list else [value], [lambda one: number(one) or type(one) is str])
    read(len(parts), below(65))
    return parts if type(value) is list else value


def _attributes(value: Any) -> dict[str, Any]:
    return {name: _attribute(part) for name, part in read(value, dict).items()}


def _tensor(dtype: str, values: Sequence[Any], shape: Sequence[int] = (-1,)) -> np.ndarray:
    return np.array(values, read(dtype, element_type)).reshape(shape)


def _value(name: str, dtype: str | None, shape: Any, kind: str) -> Value:
    return Value(name, None if dtype is None else np.dtype(dtype), shape, kind)


def _layout(name: str, *values: Any) -> tuple[str, InputLayout]:
    spot = InputLayout(*values)
    return name, replace(spot, dtype=None if spot.dtype is None else np.dtype(spot.dtype))


def _given(names: Sequence[str], layouts: Any, alike: bool) -> GivenInputs:
    return GivenInputs(frozenset(names), dict(layouts), alike)


def _options(*values: Any) -> RunOptions:
    options = RunOptions(*values)
    return replace(options, lent=frozenset(options.lent))


def _form(shape: Any, dtype: str | None, strides: Any) -> tuple[Any, str | None, Any]:
    if shape is not None and dtype is not None and not element_type(dtype):
        _refuse(dtype)
    return shape, dtype, strides


_KEY = [(count, str)]
_SCHEDULES: dict[str, Any] = {
    "own": (str,),
    "picks": ([(_KEY, count)], str),
    "before": (Read(_schedule), [(_KEY, count, count)]),
    "least_live": ([(_KEY, [(str, str, count)])],),
}
_POLICY = Made(PolicyFacts, str, str, str, [str], bool, bool, str, [str], str, Read(_schedule), str)
_RESERVED = Made(lambda shape, dtype, axis: (shape, np.dtype(dtype), axis), [count], str, count)
_LAYOUT = Made(
    *(_layout, str, count, count, count, [int], Maybe(_RESERVED), bool, Maybe([count]), Maybe(str)),
    since=7,
)
_OPTIONS = Made(
    *(_options, KINDS.__contains__, [str], Maybe(count), Maybe(count), ("start", "after").__contains__),
    *(str, bool, count, [str], Maybe(Made(_given, [str], [_LAYOUT], bool)), bool, Maybe(count)),
    since=10,
)
_VALUE = Made(_value, str, Maybe(str), Maybe([dim]), str)
_TENSOR = Made(_tensor, str, [number], [count])
_CONSTANT = Made(lambda name, *tensor: (name, _tensor(*tensor)), str, str, [int], [count], since=3)
_NODE = (
    *(str, str, str, [str], [str], count, [str], int, [str]),
    *([(str, count)], Maybe(count), Read(_attributes)),
)
_GRAPH = {
    "name": str,
    "inputs": [_VALUE],
    "outputs": [_VALUE],
    "weights": [str],
    "captures": [str],
    "constants": [_CONSTANT],
    "opsets": opsets,
    "path": [(count, str)],
    "nodes": [_NODE],
}
_TYPES = Made(TypeFacts, [(str, count, count)], [Made(GraphTypes, _KEY, [_VALUE], [_VALUE], [(count, [str])])])
_RUN = (count, count, Maybe(int), str, count, count, count, count, count)
ROWS = Made(
    *(Rows, [(count, count, int)], [(count, count)], Maybe([(count, count)]), count),
    *([(count, count, str)], [(count, count, [count], str)]),
    since=4,
)
_CACHE_RUN = Made(CacheRun, *(count, count, count, count, int, count, count, count, count, count, count, [ROWS]))
_CACHE = Made(Cache, str, str, str, str, Maybe(int), [_CACHE_RUN])
_REGION = Made(
    *(typed(Region), count, [count], [int], str, Maybe([int]), KNOWN.__contains__, Maybe(count)),
    since=5,
)
_DECLARED = {
    "accesses": [(count, [Made(Access, count, bool, str, _REGION)])],
    "written": [(count, count, int, count, Maybe([int]))],
    "kinds": [Made(typed(lambda *form: Region(0, *form)), [count], [int], str)],
    "times": [(count, str, moment, moment)],
    "places": [(count, str, str, Maybe(count), Maybe(count))],
    "frees": [Made(Free, count, count, bool, str)],
    "marks": [Made(Mark, int, moment, str, str, int, int, [count], count, str, str)],
    "arenas": [Made(Arena, str, str, count, count)],
}
_BIND = Made(typed(Bind), str, count, count, str, Maybe([count]), str, count)
_FORM = Made(_form, Maybe([count]), Maybe(str), Maybe([int]))
_STOP = {"caption": str, "step": Maybe(int), "query": str, "pane": str}
_HEADER = {
    "title": str,
    "model": Made(ModelFile, str, str),
    "policy": _POLICY,
    "options": _OPTIONS,
    "branch": Maybe(Made(Branch, str, count)),
    "types": Maybe(_TYPES),
    "graphs": [_GRAPH],
    "runs": [_RUN],
    "caches": [_CACHE],
    "declared": _DECLARED,
    "totals": (count, count, count, count),
    "tokens": ([int], [int], Maybe([str]), bool),
    "refusals": [([count], [(count, mask)])],
    "forms": [_FORM],
    "values": Maybe((count, (count, count, count, count), str, [(("nan", "inf").__contains__, (int, count))])),
    "later": [count],
    "grew": [(count, count, count)],
    "binds": [_BIND],
}


def read_header(saved: Any) -> dict[str, Any]:
    """The header of a trace. Raises `ValueError` or KeyError unless it is complete and all numbers refer to
    something."""
    header: dict[str, Any] = read(saved, _HEADER)
    # Files of older versions have no tour, or more fields for its stops.
    tour = read(saved.get("tour"), Maybe({"title": str, "stops": [_STOP]}))
    header["tour"] = None if tour is None else Tour(**tour)
    _check_nesting(header["graphs"])
    graph, run = below(len(header["graphs"])), below(len(header["runs"]))
    read(saved["nodes"], list)
    header["programs"] = read(saved["programs"], [(graph, [below(len(saved["nodes"]))], [str])])
    program = below(len(header["programs"]))
    grows = Made(Grows, count, count, bool)
    header["nodes"] = read(
        saved["nodes"], [(program, count, count, str, bool, [count], [count], [grows], [count], str)]
    )
    header["frames"] = read(
        saved["frames"], [(program, Maybe(count), Maybe(count), str, Maybe(count), run, count, count)]
    )
    read(len(header["programs"]), lambda programs: programs > 0)
    read(bool(header["runs"]), lambda ran: bool(header["frames"]) is ran)
    return header


def _check_nesting(graphs: Sequence[Mapping[str, Any]]) -> None:
    """Every inner graph lies in front of the one that holds it, and in no other. A function held only by outermost
    graphs may lie in several: a program that is run again."""
    holders: dict[int, list[int]] = {}
    bodies: set[int] = set()
    for number, graph in enumerate(graphs):
        for node in graph["nodes"]:
            inner = [place for _, place in node[9]] + ([] if node[10] is None else [node[10]])
            read(inner, [below(number)])
            bodies.update(place for _, place in node[9])
            for place in inner:
                holders.setdefault(place, []).append(number)
    for place, found in holders.items():
        shared = place not in bodies and not any(number in holders for number in found)
        read(len(found), lambda times, shared=shared: times == 1 or shared)
