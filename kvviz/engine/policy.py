"""A policy: the rules of one runtime, as a value.

`kvviz.policies` names the ready ones; a policy of your own is ``Policy("mine", …)`` or ``replace(policies.ideal, …)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.engine import decide
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph, Node
from kvviz.memory.pool import Pool

Schedule = Callable[[Graph, Sequence[Node], Sequence[str]], Sequence[Node]]


def model_order(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> Sequence[Node]:
    """Run the nodes in the order in which the model lists them."""
    return nodes


@dataclass(frozen=True)
class Policy:
    """The rules of one runtime.

    Attributes
    ----------
    name, about, version : str
        What it is called, one sentence on its rules, and whose version they follow.
    in_place : callable
        ``in_place(frame, planned, args)`` decides one dispatch; see `kvviz.engine.decide`.
    schedule : callable
        ``schedule(graph, nodes, outputs)`` puts the needed nodes in order.
    captures : str
        ``"value"``: an If branch takes over a captured value that nobody else needs; ``"reference"``: never.
    pool : callable or None
        Makes the pool of one run; None hands out new storages only.
    """

    name: str
    about: str = ""
    version: str = ""
    in_place: Callable[..., Any] = decide.ideal
    schedule: Schedule = model_order
    captures: str = "value"
    pool: Callable[[], Pool] | None = None

    def __repr__(self) -> str:
        return f"<Policy {self.name}>"


ideal = Policy("ideal", "in place whenever memory safety allows it; nodes in the model's order", in_place=decide.ideal)
never = Policy("never", "every op allocates its outputs; views stay views", in_place=decide.never, captures="reference")
NAMED = {policy.name: policy for policy in (ideal, never)}


def find_policy(policy: str | Policy) -> Policy:
    """The policy of that name; a `Policy` is passed through.

    Raises
    ------
    KvvizError
        If no policy has that name.
    """
    if isinstance(policy, Policy):
        return policy
    if policy not in NAMED:
        raise KvvizError(f"there is no policy {policy!r}; choose one of {', '.join(NAMED)} or pass a kvviz.Policy")
    return NAMED[policy]
