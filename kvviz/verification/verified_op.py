"""A node beside what was predicted for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VerifiedOp:
    """One node beside its prediction; of a node that ran several times, the time in which it took most.

    Attributes
    ----------
    node, op : str
        Its name and operator.
    frame : str
        The body that it is in, such as ``"loop[body:0]"``; empty for the main graph.
    step, steps : int, tuple of int
        The first and all of its steps in ``Verification.trace``.
    predicted : int
        Bytes that it allocates by the rules of the policy.
    observed : int or None
        Bytes that it allocated; onnxruntime's arena rounds each output up to 256 B. None where that was not recorded.
    microseconds : float
        Time inside its kernel, of all times that it ran.
    reason : str
        What it does to memory by the policy, and why.
    agrees : bool
        Whether both are the same, but for the arena's rounding.
    cause : str
        What is known of why they differ; empty where they agree.
    """

    node: str
    op: str
    frame: str
    step: int
    steps: tuple[int, ...]
    predicted: int
    observed: int | None
    microseconds: float
    reason: str
    agrees: bool
    cause: str = ""
