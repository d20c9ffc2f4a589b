"""What a saved trace must look like: a description of its header, and the check against it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kvviz.trace.schema.regions import KNOWN
from kvviz.trace.schema.run_options import KINDS


class Maybe:
    """A pattern, or None in its place."""

    def __init__(self, pattern: Any) -> None:
        self.pattern = pattern


class Grown:
    """A list of patterns whose last ones older files do not have."""

    def __init__(self, *patterns: Any, since: int) -> None:
        self.patterns = patterns
        self.since = since


def check(value: Any, pattern: Any) -> None:
    """Raise ValueError unless a value is as described.

    ``value``: from JSON.
    ``pattern``: ``[p]`` is a list of any length, ``(p, q)`` a list of exactly these, a dict an object with these
      keys.
    """
    if isinstance(pattern, Maybe):
        if value is not None:
            check(value, pattern.pattern)
    elif isinstance(pattern, Grown):
        check(value, list)
        check(value, pattern.patterns[: max(len(value), pattern.since)])
    elif isinstance(pattern, list):
        check(value, list)
        for item in value:
            check(item, pattern[0])
    elif isinstance(pattern, tuple):
        check(value, list)
        check(len(value), lambda length: length == len(pattern))
        for item, of_item in zip(value, pattern):
            check(item, of_item)
    elif isinstance(pattern, dict):
        check(value, dict)
        for key, of_key in pattern.items():
            check(value[key], of_key)
    elif type(value) is not pattern if isinstance(pattern, type) else not pattern(value):
        raise ValueError(f"{str(value)[:60]!r} is out of place")


def below(limit: int) -> Callable[[Any], bool]:
    """A whole number from 0 up to, not including, a limit."""
    return lambda value: type(value) is int and 0 <= value < limit


def count(value: Any) -> bool:
    """A whole number that is not negative."""
    return type(value) is int and 0 <= value < 1 << 48


def mask(value: Any) -> bool:
    """Bits of reasons."""
    return type(value) is int and 0 <= value < 1 << 62


def dim(value: Any) -> bool:
    """A length, the name of a symbolic dimension, or unknown."""
    return value is None or type(value) is str or count(value)


def plain(value: Any) -> bool:
    """Attributes: numbers, texts, short lists of these, and small tensors."""
    check(value, dict)
    for part in value.values():
        if type(part) is dict:
            check(part, {"tensor": (str, [number], [count])})
        else:
            check(part if type(part) is list else [part], [lambda one: number(one) or type(one) is str])
    return all(type(part) is not list or len(part) <= 64 for part in value.values())


def number(value: Any) -> bool:
    """A number, finite or not."""
    return type(value) in (int, float)


def opsets(value: Any) -> bool:
    """Versions by domain."""
    return type(value) is dict and all(count(version) for version in value.values())


def moment(value: Any) -> bool:
    """A finite number on some clock."""
    return type(value) in (int, float) and abs(value) < math.inf


def schedule(value: Any) -> bool:
    """An order as `kvviz.trace.trace_data.PolicyFacts` has it."""
    check(value, list)
    name, *facts = value
    pattern = _SCHEDULES.get(name, ())
    check(facts, pattern)
    return type(name) is str


_KEY = [(count, str)]
_SCHEDULES: dict[str, Any] = {
    "own": (str,),
    "picks": ([(_KEY, count)], str),
    "before": (schedule, [(_KEY, count, count)]),
    "least_live": ([(_KEY, [(str, str, count)])],),
}
POLICY = (str, str, str, [str], bool, bool, str, [str], str, schedule, str)
LAYOUT = Grown(str, count, count, count, [int], Maybe(([count], str, count)), bool, [count], str, since=7)
OPTIONS = Grown(
    *(KINDS.__contains__, [str], Maybe(count), Maybe(count), ("start", "after").__contains__),
    *(str, bool, count, [str], Maybe(([str], [LAYOUT], bool))),
    bool,
    Maybe(count),
    since=10,
)
VALUE = (str, Maybe(str), Maybe([dim]), str)
NODE = (str, str, str, [str], [str], count, [str], int, [str], [(str, count)], Maybe(count), plain)
GRAPH = {
    "name": str,
    "inputs": [VALUE],
    "outputs": [VALUE],
    "weights": [str],
    "captures": [str],
    "constants": [Grown(str, str, [int], [count], since=3)],
    "opsets": opsets,
    "path": [(count, str)],
    "nodes": [NODE],
}
RUN = (count, count, Maybe(int), str, count, count, count, count, count)
ROWS = Grown(
    [(count, count, int)],
    [(count, count)],
    Maybe([(count, count)]),
    count,
    [(count, count, str)],
    [(count, count, [count], str)],
    since=4,
)
CACHE_RUN = (count, count, count, count, int, count, count, count, count, count, count, [ROWS])
CACHE = (str, str, str, str, Maybe(int), [CACHE_RUN])

WRITTEN = (count, count, int, count, Maybe([int]))
WRITTEN_KIND = ([count], [int], str)
REGION = Grown(count, [count], [int], str, Maybe([int]), KNOWN.__contains__, Maybe(count), since=5)
ACCESS = (count, bool, str, REGION)
TIME = (count, str, moment, moment)
PLACE = (count, str, str, Maybe(count), Maybe(count))
FREE = (count, count, bool, str)
MARK = (int, moment, str, str, int, int, [count], count, str, str)
STOP = {"caption": str, "step": Maybe(int), "query": str, "pane": str}
TOUR = Maybe({"title": str, "stops": [STOP]})
DECLARED = {
    "accesses": [(count, [ACCESS])],
    "written": [WRITTEN],
    "kinds": [WRITTEN_KIND],
    "times": [TIME],
    "places": [PLACE],
    "frees": [FREE],
    "marks": [MARK],
    "arenas": [(str, str, count, count)],
}


def check_header(header: Any) -> None:
    """Raise ValueError or KeyError unless a trace's header is whole, and every number in it points to something."""
    check(
        header,
        {
            "title": str,
            "model": (str, str),
            "policy": POLICY,
            "options": OPTIONS,
            "branch": Maybe((str, count)),
            "types": Maybe(([(str, count, count)], [(_KEY, [VALUE], [VALUE], [(count, [str])])])),
            "graphs": [GRAPH],
            "runs": [RUN],
            "caches": [CACHE],
            "declared": DECLARED,
            "totals": (count, count, count, count),
            "tokens": ([int], [int], Maybe([str]), bool),
            "refusals": [([count], [(count, mask)])],
            "forms": [(Maybe([count]), Maybe(str), Maybe([int]))],
            "values": Maybe((count, (count, count, count, count), str, [(("nan", "inf").__contains__, (int, count))])),
        },
    )
    check(header.get("tour"), TOUR)
    _check_nesting(header["graphs"])
    graph, program, run = (below(len(header[name])) for name in ("graphs", "programs", "runs"))
    check(header["programs"], [(graph, [below(len(header["nodes"]))], [str])])
    grows = (count, count, bool)
    check(header["nodes"], [(program, count, count, str, bool, [count], [count], [grows], [count], str)])
    check(header["later"], [count])
    check(header["grew"], [(count, count, count)])
    bound = (str, count, count, str, Maybe([count]), str, count)
    check(header["frames"], [(program, Maybe(count), Maybe(count), str, Maybe(count), run, count, [bound])])
    check(len(header["programs"]), lambda programs: programs > 0)
    check(bool(header["runs"]), lambda ran: bool(header["frames"]) is ran)


def _check_nesting(graphs: list[dict[str, Any]]) -> None:
    """Every inner graph lies in front of the one that holds it, and in no other.

    A function that only graphs hold that lie in none may lie in several of them: a program that is run again and again.
    """
    holders: dict[int, list[int]] = {}
    bodies: set[int] = set()
    for number, graph in enumerate(graphs):
        for node in graph["nodes"]:
            inner = [place for _, place in node[9]] + ([] if node[10] is None else [node[10]])
            check(inner, [below(number)])
            bodies.update(place for _, place in node[9])
            for place in inner:
                holders.setdefault(place, []).append(number)
    for place, found in holders.items():
        shared = place not in bodies and not any(number in holders for number in found)
        check(len(found), lambda times, shared=shared: times == 1 or shared)
