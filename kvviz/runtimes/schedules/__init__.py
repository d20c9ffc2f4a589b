"""Schedules: in which order a graph's needed nodes run. Each is a value that a `kvviz.Policy` can hold.

A schedule is called as ``schedule(graph, nodes, outputs)`` with the needed nodes in the model's order, and returns
them in an order in which they can run. Use another one with ``dataclasses.replace(policy, schedule=…)``.
"""

from kvviz.engine.plans.policy import model_order
from kvviz.runtimes.schedules.before import Before
from kvviz.runtimes.schedules.greedy import LeastLive, depth_first, least_live
from kvviz.runtimes.schedules.picks import Picks
from kvviz.runtimes.schedules.planning_events import PlanningEvent

__all__ = ["Before", "LeastLive", "Picks", "PlanningEvent", "depth_first", "least_live", "model_order"]
