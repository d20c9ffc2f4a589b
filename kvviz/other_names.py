"""Names that people try by instinct, and kvviz's own names for them.

The names are in ``other_names.json``. A name of another library is answered with the right one. Modules that lessons or
the README named and that have moved can be imported for one more release.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@cache
def tables() -> dict[str, Any]:
    """``attributes`` (by class, or ``kvviz``) and ``arguments``: right names and tried ones; ``moved``: former and
    present places of modules."""
    import json

    found: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return found


def _tried(meant: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: right for right, names in meant.items() for name in names}


@cache
def attributes(owner: str) -> dict[str, str]:
    return _tried(tables()["attributes"].get(owner, {}))


@cache
def arguments() -> dict[str, str]:
    return _tried(tables()["arguments"])


def missing(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for an attribute that a class (or kvviz itself) does not have, with the name that is meant."""
    what = "module 'kvviz'" if owner == "kvviz" else f"{owner!r} object"
    said = f"{what} has no attribute {name!r}"
    if meant := attributes(owner).get(name):
        return AttributeError(f"{said}; use {meant}")
    close = [] if name.startswith("_") else get_close_matches(name, [k for k in known if not k.startswith("_")], 1)
    return AttributeError(f"{said}; did you mean {close[0]!r}?" if close else said)


def not_there(thing: Any, name: str) -> Any:
    """The ``__getattr__`` of a class in the table: raise the error that names the right attribute."""
    kind = type(thing)
    if hasattr(kind, name):
        # A property that failed: its own error, which Python has dropped by now.
        return object.__getattribute__(thing, name)
    raise missing(kind.__name__, name, dir(thing))


def with_other_names(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function: an argument that it does not have is answered with the one that is meant."""
    parameters = inspect.signature(function).parameters
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    @wraps(function)
    def called(*given: P.args, **options: P.kwargs) -> R:
        for name in options:
            if name not in parameters and (not takes_more or name in arguments()):
                raise TypeError(_no_argument(function.__name__, name, parameters, takes_more))
        return function(*given, **options)

    return called


def _no_argument(function: str, name: str, known: Iterable[str], takes_more: bool) -> str:
    said = f"kvviz.{function} has no argument {name}="
    meant = arguments().get(name, "")
    if meant in known or (meant and takes_more):
        return f"{said}; it is {meant}="
    close = get_close_matches(name, known, 1)
    return f"{said}; did you mean {close[0]}=?" if close else f"{said}; it has {', '.join(known)}"
