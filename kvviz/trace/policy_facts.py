"""What a trace says of the policy that it was run by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """A policy as data; `kvviz.runtimes.policy_data` makes it, and finds the policy again.

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
