"""IO binding: the caller binds an output to the buffer of an input, whether that is safe or not.

ONNX Runtime's IO binding and the buffer donation of accelerator runtimes allow this: the op that makes the output
writes into the input, even if other ops still read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvviz.engine.frame import Frame
from kvviz.engine.placement import Home
from kvviz.engine.plan import ABSENT, PlannedNode
from kvviz.engine.policy import Policy
from kvviz.trace.schema.events import IN_PLACE, POOL

if TYPE_CHECKING:
    from kvviz.engine.execution import Execution

_SHOWN = 2


@dataclass(frozen=True, slots=True)
class Bound:
    """A dispatch rule that follows the bindings, and the policy's own rule for all other ops. ``rule, homes``: those of
    the policy. If the policy places outputs, a bound output of any op goes into its input's storage; else only the
    output of an op that can write there. ``pairs``: output and input."""

    rule: Callable[..., Any]
    homes: Callable[..., Any] | None
    pairs: tuple[tuple[str, str], ...]

    def __call__(self, frame: Frame, planned: PlannedNode, args: list) -> Any:
        if frame.parent is not None:
            return self.rule(frame, planned, args)
        bound = self._bound(frame, planned)
        position = bound.get(0, -1)
        if any(position == candidate for candidate, _ in planned.candidates):
            return (position,), (), {"out": args[position]}
        presents = tuple(
            args[grow.input]
            if bound.get(grow.output) == grow.input and not grow.rows(args, planned.attributes)
            else None
            for grow in planned.grows
        )
        if any(present is not None for present in presents):
            return tuple(sorted(bound.values())), (), {"grown": presents}
        return self.rule(frame, planned, args)

    def place(
        self,
        execution: Execution,
        frame: Frame,
        planned: PlannedNode,
        args: Sequence[Any],
        outs: Sequence[Any],
        taken: tuple[int, ...],
    ) -> list[Home]:
        """Where each output of an op lives, under a policy that places outputs."""
        assert self.homes is not None
        bound = self._bound(frame, planned) if frame.parent is None else {}
        found: list[Home] = self.homes(execution, frame, planned, args, outs, () if bound else taken)
        for output, given in self.pairs if frame.parent is None else ():
            if output not in planned.node.outputs:
                continue
            j = planned.node.outputs.index(output)
            slot = frame.plan.slots.get(given, ABSENT)
            # The input may be dead when the output is made.
            storage = frame.stores[slot] or frame.gone.get(slot)
            if storage is None or storage.capacity != outs[j].nbytes:
                # ONNX Runtime refuses a buffer of another size.
                continue
            if j in bound:
                found[j] = Home(IN_PLACE, bound[j])
            elif not storage.holders and storage.owned:
                found[j] = Home(POOL, -1, storage)
        return found

    def _bound(self, frame: Frame, planned: PlannedNode) -> dict[int, int]:
        """Input position by output position, for the bound outputs of an op that reads their inputs."""
        found: dict[int, int] = {}
        for output, given in self.pairs:
            if output in planned.node.outputs and given in frame.plan.slots:
                storage = frame.stores[frame.plan.slots[given]]
                read = (i for i, slot in enumerate(planned.inputs) if slot and frame.stores[slot] is storage)
                position = next(read, None) if storage is not None else None
                if position is not None:
                    found[planned.node.outputs.index(output)] = position
        return found


def bind(policy: Policy, pairs: Mapping[str, str]) -> Policy:
    """A policy under which the caller has bound outputs of the main graph to inputs.

    Parameters
    ----------
    policy : Policy
    pairs : mapping of str to str
        Output name to the name of the input whose buffer it gets. Donate that input to the run.

    Examples
    --------
    >>> policy = bind(kvviz.policies.ideal, {"present": "past"})
    >>> kvviz.run(graph, inputs, donate=["past"], policy=policy)            # doctest: +SKIP
    """
    names = [f"{output} in {given}" for output, given in pairs.items()]
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    bound = Bound(policy.in_place, policy.homes, tuple(pairs.items()))
    return replace(
        policy,
        name=", ".join((policy.name, *names[:_SHOWN], *more)),
        in_place=bound,
        homes=policy.homes and bound.place,
        variants=None,
    )
