"""What the parts of a step see of the execution that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kvviz.engine.frame import Frame
from kvviz.engine.ledger import Ledger
from kvviz.engine.plans.plan import Counts, Plan, PlannedNode
from kvviz.engine.plans.policy import Policy
from kvviz.engine.recorder import Recorder


class RunState(Protocol):
    """The state of one run of a graph; `kvviz.engine.execution.Execution` has it.

    ``captures``: the policy's rule for captured values.
    ``placed``: whether the policy says where each output lives.
    ``stack``: the frames that are open, innermost last.
    """

    policy: Policy
    dry: Counts | None
    recorder: Recorder
    ledger: Ledger
    captures: Callable[..., Any]
    placed: bool
    main: Frame
    stack: list[Frame]

    def open_frame(
        self, plan: Plan, parent: Frame | None, caller: PlannedNode | None, attribute: str, iteration: int | None
    ) -> Frame: ...

    def note_bindings(self, frame: Frame, how: Sequence[tuple[str, int, str]]) -> None: ...

    def note(
        self,
        frame: Frame,
        planned: PlannedNode,
        taken: tuple[int, ...],
        masks: tuple[tuple[int, int], ...],
        placed: tuple,
        allocated: int,
        copied: int,
        written: int,
        live: int,
    ) -> None: ...
