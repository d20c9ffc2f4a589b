"""What a trace says of the policy that it was run by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """A policy as a file tells it; `kvviz.Policy` has the same fields, and the rules themselves.

    Attributes
    ----------
    name, about, version : str
    rules : tuple of str
        Sentences for reasons that only this policy has.
    places_outputs : bool
        It says itself where each output lives.
    decides : bool
        It asked of each op whether it may run in place; a recording of another runtime tells what happened, not why.
    """

    name: str
    about: str = ""
    version: str = ""
    rules: tuple[str, ...] = ()
    places_outputs: bool = False
    decides: bool = True
