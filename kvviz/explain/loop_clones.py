"""Captured values that a Loop was given a copy of, iteration by iteration: memory that its body did not need.

No op was refused, so no step says it: the copies are told by the frames of the iterations, and counted at the Loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.trace.blockers import Blocker, BlockerCode
from kvviz.trace.units import count, short

BY_VALUE = "captured by value"


@dataclass(frozen=True, slots=True)
class Clone:
    """A captured value that a Loop copied at one of its steps.

    ``name``: of the value, in the outer frame.
    ``times``: iterations, each with a copy of its own.
    ``bytes``: of all these copies.
    """

    name: str
    times: int
    bytes: int


def clones(trace: Any) -> dict[int, tuple[Clone, ...]]:
    """What every Loop that is complete copied for its iterations, by its step; most Loops copy nothing."""
    storages = trace.log.storages
    found: dict[int, dict[str, list[int]]] = {}
    for frame in trace.log.frames:
        if frame.parent is None or frame.iteration is None:
            continue
        step = trace.step_of(frame.parent, frame.caller.node.index)
        if step is None:
            continue
        for name, storage, _, how, *_ in frame.bindings:
            if how == BY_VALUE:
                found.setdefault(step, {}).setdefault(name, []).append(storages[storage].capacity)
    return {
        step: tuple(Clone(name, len(sizes), sum(sizes)) for name, sizes in names.items())
        for step, names in found.items()
    }


def reasons(trace: Any, step: int, copied: tuple[Clone, ...]) -> tuple[Blocker, ...]:
    """Why a Loop copied these values: the rule of the policy, one reason for each value."""
    node, policy = trace.log[step].op.node, trace.policy.name
    return tuple(
        Blocker(
            BlockerCode.POLICY,
            clone.name,
            -1,
            policy,
            f"{node.op_type} copied {short(clone.name)} for {count(clone.times, 'iteration')}: the policy {policy!r} "
            f"gives every iteration a copy of what it captures by value",
            clone.bytes,
        )
        for clone in copied
    )
