"""What public functions accept for a graph or a trace: the thing itself, or the path of a file that holds it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

from kvviz.errors import InputError
from kvviz.graph.loading.load import holds_trace, load
from kvviz.graph.model import Graph
from kvviz.trace.recording import Trace


class HasTrace(Protocol):
    """A debugger, a recording of ggml, or anything else that has a trace."""

    @property
    def trace(self) -> Trace: ...


TraceLike = Trace | HasTrace | str | os.PathLike[str]
"""What functions of a trace accept; see `as_trace`."""


def opened(given: Any) -> Any:
    """The trace or the graph at a path; anything else is returned as it is."""
    if not isinstance(given, (str, os.PathLike)):
        return given
    return Trace.load(given) if holds_trace(given) else load(given)


def as_graph(given: Any, asked: str) -> Graph:
    """A graph, also by path; ``asked``: the function that needs it, for the `InputError`."""
    found = opened(given)
    if isinstance(found, Graph):
        return found
    if isinstance(found, Trace):
        raise InputError(f"{asked} takes a graph, and this is a trace of a run: pass its graph, or load the model")
    raise InputError(
        f"{asked} takes a graph or the path of a model, not {_kind(found)}; kvviz.load makes a graph of other objects"
    )


def as_inputs(given: Any) -> dict[str, Any]:
    """A caller's inputs by name, empty for None; raises `InputError` for anything but a mapping."""
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    raise InputError(f"inputs must be a mapping of input names to arrays, not {_kind(given)}")


def as_trace(given: Any, asked: str) -> Trace:
    """A trace, also by path or of a debugger or a recording; ``asked``: the function that needs it, for the
    `InputError`."""
    found = opened(given)
    found = found if isinstance(found, Trace) else getattr(found, "trace", found)
    if isinstance(found, Trace):
        return found
    if isinstance(found, Graph):
        raise InputError(f"{asked} takes a trace, and this is a model: run it with kvviz.run or kvviz.decode")
    raise InputError(f"{asked} takes a trace or the path of a saved one, not {_kind(found)}")


def _kind(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"
