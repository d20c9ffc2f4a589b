"""A runtime that runs in place as ``ideal`` does, except for small values."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvviz import policies
from kvviz.ext import Frame, PlannedNode, Policy, Verdict, rule

SMALL = 64  # bytes
TOO_SMALL = rule(0)


def leave_small_values(frame: Frame, planned: PlannedNode, args: Sequence[Any]) -> Verdict:
    """Refuse the inputs that ``ideal`` would take over where they are small."""
    taken, refused, how = policies.ideal.in_place(frame, planned, args)
    small = tuple((position, TOO_SMALL) for position in taken if args[position].nbytes < SMALL)
    return ((), (*refused, *small), {}) if small else (taken, refused, how)


thrifty: Policy = replace(
    policies.ideal,
    name="thrifty",
    about=f"in place as the ideal policy, for values of at least {SMALL} bytes",
    in_place=leave_small_values,
    rules=("{op} leaves {input} alone: it has less than 64 bytes",),
)
