"""Planning, step by step: what the planner looked at, what it took, and why.

Invariant: the events come from the code that plans, so the order in them is the schedule's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvviz.graph.model import Node

if TYPE_CHECKING:
    from kvviz.engine.plans.policy import Schedule


@dataclass(frozen=True, slots=True)
class PlanningEvent:
    """One thing that a planner did.

    ``phase``: ``"walk"``: backward from the outputs; ``"pick"``: forward, an op from the frontier; ``"buffer"``:
      where an output will live.
    ``node``: the op that it is about: visited, appended or picked; for a skipped value the op that reads it, None
      where it is an output of the graph.
    ``value``: the value that led here, or for an op that is appended or picked, the first one that it makes.
    ``action``: of the walk ``"visit"``, ``"skip"`` or ``"append"``; of the picks ``"pick"``.
    ``reason``: one sentence.
    ``frontier``: before a pick: the ops that could run, oldest first.
    ``planned``: ops in the walk's list, or in the plan, once this is done.
    ``depth``: of the walk: how many ops lie between here and the output.
    ``ready``: ops that can run from now on because of this pick.
    """

    phase: str
    node: Node | None
    value: str
    action: str
    reason: str
    frontier: tuple[Node, ...] = ()
    planned: int = 0
    depth: int = 0
    ready: tuple[Node, ...] = ()


Log = Callable[[PlanningEvent], None]


def takes_log(schedule: Schedule) -> bool:
    """Whether a schedule can log what it does, by a keyword ``log``."""
    return "log" in inspect.signature(schedule).parameters
