"""What a trace says of the policy that it was run by, and of the types by which a runtime plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from kvviz.graph.model import Dims, Value


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """A policy as data; `kvviz.runtimes.named_policies` makes it, and finds the policy again.

    ``rules``: sentences for reasons that only this policy has.
    ``places_outputs``: it says itself where each output lives.
    ``decides``: it asked of each op whether it may run in place; a recording of another runtime says what happened,
      not why.
    ``base``: the named policy whose in-place rule it has; empty where the rule is the caller's own.
    ``options``: of the base: the quirks that rten keeps, ``"mem_reuse"`` and ``"parallel"`` of onnxruntime.
    ``captures``: the named policy whose capture rule it has; empty where it has the one of its base.
    ``schedule``: ``(name,)`` of a schedule that needs no more; ``("own", label)``: the caller's; ``("picks", picks,
      model)``; ``("before", schedule, pairs)``; ``("least_live", sizes)``.
    ``growth``: as in `kvviz.Policy`.
    """

    name: str
    about: str = ""
    version: str = ""
    rules: tuple[str, ...] = ()
    places_outputs: bool = False
    decides: bool = True
    base: str = ""
    options: tuple[str, ...] = ()
    captures: str = ""
    schedule: tuple[Any, ...] = ("model",)
    growth: str = "start"


GONE = "gone"
"""Kind of a value of which nothing is known any more."""


class GraphTypes(NamedTuple):
    """The types of one graph's own values.

    ``path``: of the graph in its model: nodes and attributes, outermost first.
    ``fixed``: those that are others once the free dimensions have lengths.
    ``written``: nodes whose inputs the runtime has changed, with those of the model.
    """

    path: tuple[tuple[int, str], ...]
    types: tuple[Value, ...]
    fixed: tuple[Value, ...]
    written: tuple[tuple[int, tuple[str, ...]], ...]


class TypeFacts(NamedTuple):
    """The types of all values of a model.

    ``dims``: the free dimensions of the inputs, with the lengths that they had in every run.
    """

    dims: Dims
    graphs: tuple[GraphTypes, ...]
