"""Names for writing extensions: kernels, policies, schedules, producers. They are stable from version to version.

================  ====================================================================================================
a kernel          a function under ``@op("MyOp", domain="my.domain", overwrites=(0,))``: graphs with that operator run,
                  and its in-place decisions are made and explained like those of any other
a policy          a `Policy`, or ``dataclasses.replace(kvviz.policies.ideal, in_place=…)``: the rules of a runtime.
                  ``in_place(frame, planned, args)`` gives a `Verdict`; a reason of its own is ``rule(n)``, whose
                  sentence is ``Policy.rules[n]``. Of ``args`` a rule looks at what `ArrayLayout` has, so that dry runs
                  can ask it, too
a schedule        any function ``(graph, nodes, outputs) -> nodes in an order in which they can run``; `Picks` and
                  `Before` are ready ones
a producer        a `Writer`, told what another runtime did: every view takes the trace
================  ====================================================================================================

What is wrong with an extension is one `ExtensionError`, which names it.

Examples that are run and type-checked are in ``tests/ext``.
"""

from kvviz.engine.decide import Verdict
from kvviz.engine.frame import Frame
from kvviz.engine.plan import PlannedNode
from kvviz.engine.policy import Policy, Schedule
from kvviz.errors import ExtensionError
from kvviz.graph.model import Graph, Node
from kvviz.memory.array_layout import ArrayLayout
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
