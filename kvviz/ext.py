"""Names for writing extensions: kernels, policies, schedules, producers. They are stable from version to version.

================  ====================================================================================================
a kernel          a function under ``@op("MyOp", domain="my.domain", overwrites=(0,))``: graphs with that operator run,
                  and its in-place decisions are made and explained like those of any other
a policy          a `Policy`, or ``dataclasses.replace(kvviz.policies.ideal, in_place=…)``: the rules of a runtime.
                  ``in_place(frame, planned, args)`` returns a `Verdict`; a reason of its own is ``rule(n)``, whose
                  sentence is ``Policy.rules[n]``. A rule reads only the `ArrayLayout` of ``args``, so that it also
                  works in dry runs
a schedule        any function ``(graph, nodes, outputs) -> nodes in an order in which they can run``; `Picks` and
                  `Before` are ready ones
a producer        a `Writer` that records what another runtime did: all views work for its trace
================  ====================================================================================================

An error in an extension raises an `ExtensionError` that names the extension.

Tested and type-checked examples are in ``tests/ext``.
"""

from kvviz.engine.decide import Verdict
from kvviz.engine.frame import Frame
from kvviz.engine.plan import PlannedNode
from kvviz.engine.policy import Policy, Schedule
from kvviz.errors import ExtensionError
from kvviz.graph.model import Graph, Node
from kvviz.memory.storage import ArrayLayout
from kvviz.ops.registry import Grow, OpSpec, op
from kvviz.runtimes.schedules import Before, Picks
from kvviz.trace.blockers import rule
from kvviz.trace.recording import Trace
from kvviz.trace.writer import Writer

__all__ = [
    "ArrayLayout",
    "Before",
    "ExtensionError",
    "Frame",
    "Graph",
    "Grow",
    "Node",
    "OpSpec",
    "Picks",
    "PlannedNode",
    "Policy",
    "Schedule",
    "Trace",
    "Verdict",
    "Writer",
    "op",
    "rule",
]
