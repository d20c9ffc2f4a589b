"""Schedules: in which order a graph's needed nodes run. Each is a value that a `kvviz.Policy` can hold.

A schedule is called as ``schedule(graph, nodes, outputs)`` with the needed nodes in the model's order, and returns
them in an order in which they can run. Use another one with ``dataclasses.replace(policy, schedule=…)``.
"""

from kvviz.engine.policy import model_order
from kvviz.engine.schedules.before import Before
from kvviz.engine.schedules.events import PlanningEvent, planning_events
from kvviz.engine.schedules.greedy import LeastLive, depth_first, least_live
from kvviz.engine.schedules.keys import GraphKey, key_of
from kvviz.engine.schedules.named import NAMES, label, named
from kvviz.engine.schedules.picks import Picks
from kvviz.engine.schedules.rten import rten

__all__ = [
    "NAMES",
    "Before",
    "GraphKey",
    "LeastLive",
    "Picks",
    "PlanningEvent",
    "depth_first",
    "key_of",
    "label",
    "least_live",
    "model_order",
    "named",
    "planning_events",
    "rten",
]
