"""Binding: the caller gives one buffer as an input and takes an output in it, whether that is safe or not.

This is what IO binding of ONNX Runtime and buffer donation of accelerator runtimes allow: the op that makes the output
is told to write into the input, without a look at who else still reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvviz.engine.frame import Frame
from kvviz.engine.plan import PlannedNode
from kvviz.engine.policy import Policy


@dataclass(frozen=True, slots=True)
class Bound:
    """A dispatch rule that obeys bindings first, and else asks another rule."""

    rule: Callable[..., Any]
    pairs: tuple[tuple[str, str], ...]

    def __call__(self, frame: Frame, planned: PlannedNode, args: list) -> Any:
        """Decide one dispatch."""
        if frame.parent is None:
            for output, given in self.pairs:
                if planned.node.outputs[:1] == (output,):
                    storage = frame.stores[frame.plan.slots[given]] if given in frame.plan.slots else None
                    for position, slot in planned.candidates:
                        if storage is not None and frame.stores[slot] is storage:
                            return (position,), (), {"out": args[position]}
        return self.rule(frame, planned, args)


def bind(policy: Policy, pairs: Mapping[str, str]) -> Policy:
    """A policy under which the caller has bound outputs of the main graph to inputs.

    Parameters
    ----------
    policy : Policy
    pairs : mapping of str to str
        Output name to the name of the input in whose buffer it is to be. Donate that input to the run.

    Examples
    --------
    >>> policy = bind(kvviz.policies.ideal, {"present": "past"})
    >>> kvviz.run(graph, inputs, donate=["past"], policy=policy)            # doctest: +SKIP
    """
    bound = ", ".join(f"{output} in {given}" for output, given in pairs.items())
    return replace(
        policy, name=f"{policy.name}, {bound}", in_place=Bound(policy.in_place, tuple(pairs.items())), variants=None
    )
