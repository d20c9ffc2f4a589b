"""A policy: the rules of one runtime, as a value.

`kvviz.policies` names the ready ones; a policy of your own is ``Policy("mine", …)`` or ``replace(policies.ideal, …)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.engine import decide
from kvviz.engine.plan import Plan
from kvviz.errors import ExtensionError, KvvizError
from kvviz.graph.model import Graph, Node
from kvviz.memory.storage import Pool
from kvviz.trace.trace_data import TraceData, TypeFacts

Schedule = Callable[[Graph, Sequence[Node], Sequence[str]], Sequence[Node]]


def model_order(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> Sequence[Node]:
    """Run the nodes in the order in which the model lists them."""
    return nodes


@dataclass(frozen=True)
class Policy:
    """The rules of one runtime. They read the layouts of arrays (`ArrayLayout`), never numbers.

    Attributes
    ----------
    name, about, version : str
        Its name, one sentence on its rules, and the version of the runtime that they follow.
    in_place : callable
        ``in_place(frame, planned, args)`` decides one dispatch; see `kvviz.engine.decide`.
    schedule : callable
        ``schedule(graph, nodes, outputs)`` puts the needed nodes in order.
    captures : callable
        ``captures(frame, planned)`` names the slots of a frame that the body of a control node takes over;
        see `kvviz.engine.body_frames`.
    rewrite : callable or None
        ``rewrite(graph, outputs)`` returns the main graph as the runtime rewrites it before planning; None leaves the
        graph unchanged.
    pool : callable or None
        Makes the pool of one run; with None, freed storages are not reused.
    prepare : callable or None
        ``prepare(plan)`` is called once for every plan; it may leave ``notes`` on the plan and its nodes.
    homes : callable or None
        ``homes(execution, frame, planned, args, outs, taken)`` says where each output lives; with None, an output lives
        where its kernel put it. See `kvviz.engine.placement`.
    copies_state : bool
        A Loop copies its carried values into memory of its own when it ends; ``homes`` says where.
    one_plan : bool
        Only the last plan of each graph is kept. It is used again for the same outputs in any order.
    feeds_inner : callable or None
        ``feeds_inner(graph, given, donate, outputs)`` returns the graph that a run computes if the caller gives
        values that the graph itself makes, by name; None if a run accepts inputs only.
    growth : str
        In a decode: ``"start"`` reserves room for growing caches before the first run, ``"after"`` moves a full
        cache into a larger buffer after a run.
    rules : tuple of str
        Sentences for reasons that only this policy has; see `kvviz.trace.blockers.rule`.
    types_of : callable or None
        ``types_of(trace)`` returns what the policy plans by, besides the graph; see `kvviz.trace.trace_data`.
    variants : callable or None
        Makes the policy with options: ``policies.rten(quirks=False)``.
    """

    name: str
    about: str = ""
    version: str = ""
    in_place: Callable[..., Any] = decide.ideal
    schedule: Schedule = model_order
    captures: Callable[..., Any] = decide.by_value
    rewrite: Callable[[Graph, Sequence[str]], Graph] | None = None
    pool: Callable[[], Pool] | None = None
    prepare: Callable[[Plan], None] | None = None
    homes: Callable[..., Any] | None = None
    copies_state: bool = False
    one_plan: bool = False
    feeds_inner: Callable[..., Graph] | None = None
    growth: str = "start"
    rules: tuple[str, ...] = ()
    types_of: Callable[[TraceData], TypeFacts] | None = None
    variants: Callable[..., Policy] | None = None

    def __post_init__(self) -> None:
        needed = ("in_place", "schedule", "captures")
        for name in (*needed, "rewrite", "pool", "prepare", "homes", "types_of", "variants"):
            value = getattr(self, name)
            if not callable(value) and (value is not None or name in needed):
                raise ExtensionError(f"policy {self.name!r}: {name} is a function, not {value!r}")
        if isinstance(self.rules, str) or not all(isinstance(sentence, str) for sentence in self.rules):
            raise ExtensionError(f"policy {self.name!r}: rules is a tuple of sentences, not {self.rules!r}")
        if self.growth not in ("start", "after"):
            raise ExtensionError(f"policy {self.name!r}: growth is 'start' or 'after', not {self.growth!r}")

    @property
    def places_outputs(self) -> bool:
        """Whether the policy says where each output lives."""
        return self.homes is not None

    @property
    def decides(self) -> bool:
        """Whether the policy decides for each op whether it may run in place."""
        return True

    def __call__(self, **options: Any) -> Policy:
        """The same runtime with other options, where it has any."""
        if self.variants is None:
            raise KvvizError(f"the policy {self.name!r} has no options")
        known = inspect.signature(self.variants)
        try:
            known.bind(**options)
        except TypeError as error:
            raise KvvizError(f"policy {self.name!r}: {error}; its options are {', '.join(known.parameters)}") from None
        return self.variants(**options)

    def __repr__(self) -> str:
        return f"<Policy {self.name}>"


ideal = Policy(
    "ideal",
    "in place whenever memory safety allows it; nodes in the model's order. In one order no rules copy fewer bytes "
    "that have the same rows reserved, and none has a lower peak where every block is as large as the values in it",
    in_place=decide.ideal,
)
never = Policy(
    "never", "every op allocates its outputs; views stay views", in_place=decide.never, captures=decide.by_reference
)
