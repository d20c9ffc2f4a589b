"""Reasons why an op did not run in place: bit masks per overwritable input while a graph runs, and records on demand,
with culprits read from the trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class BlockerCode(str, Enum):
    """One kind of reason."""

    NOT_LAST_USE = "NOT_LAST_USE"
    REQUESTED_OUTPUT = "REQUESTED_OUTPUT"
    BORROWED_INPUT = "BORROWED_INPUT"
    CONSTANT = "CONSTANT"
    CAPTURED_BY_REFERENCE = "CAPTURED_BY_REFERENCE"
    ALIASED = "ALIASED"
    SAME_OP_TWICE = "SAME_OP_TWICE"
    SHAPE_DIFFERS = "SHAPE_DIFFERS"
    DTYPE_DIFFERS = "DTYPE_DIFFERS"
    NO_CAPACITY = "NO_CAPACITY"
    NOT_CONTIGUOUS = "NOT_CONTIGUOUS"
    OTHER_INPUT_BUSY = "OTHER_INPUT_BUSY"
    OP_CANNOT = "OP_CANNOT"
    POLICY = "POLICY"

    def __str__(self) -> str:
        return self.value


BITS = {code: 1 << i for i, code in enumerate(BlockerCode)}
NOT_LAST_USE, REQUESTED_OUTPUT, BORROWED_INPUT, CONSTANT, CAPTURED_BY_REFERENCE, ALIASED, SAME_OP_TWICE = (
    1 << i for i in range(7)
)
SHAPE_DIFFERS, DTYPE_DIFFERS, NO_CAPACITY, NOT_CONTIGUOUS, OTHER_INPUT_BUSY, OP_CANNOT, POLICY = (
    1 << i for i in range(7, 14)
)


def codes(mask: int) -> tuple[BlockerCode, ...]:
    return tuple(code for code, bit in BITS.items() if mask & bit)


def rule(number: int) -> int:
    """The bit of a policy's own reason: ``policy.rules[number]`` is its sentence, and `BlockerCode.POLICY` its code."""
    return 1 << (len(BITS) + number)


def rules(mask: int) -> tuple[int, ...]:
    own = mask >> len(BITS)
    return tuple(number for number in range(own.bit_length()) if own >> number & 1)


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason, with its culprit.

    Attributes
    ----------
    code : BlockerCode
        The kind of reason.
    input : str
        The value that could not be overwritten; empty if the op can never run in place.
    position : int
        Its position among the node's inputs, -1 if none.
    culprit : str
        The later reader, the caller, the constant, the alias … that stands in the way.
    message : str
        One sentence.
    bytes : int
        Bytes newly allocated or copied because of it.
    found : object, callable or None
        The fix, or ``found(blocker)``, which searches for it on demand.
    """

    code: BlockerCode
    input: str
    position: int
    culprit: str
    message: str
    bytes: int = 0
    found: Any = field(default=None, repr=False, compare=False)

    @property
    def fix(self) -> Any:
        """A change that lets this op run in place, if one exists; see `kvviz.fixes.fix`."""
        return self.found(self) if callable(self.found) else self.found


@dataclass(frozen=True, slots=True)
class Decision:
    """How one op was dispatched, and where its outputs really live.

    Attributes
    ----------
    dispatch : str
        ``"run"`` or ``"in_place"``: which form of the kernel was called. An op that was called in place may have
        allocated all the same: `Step.outcome` says which.
    taken : tuple of str
        Inputs whose storage was handed to the op.
    shares : dict of str to str
        Output to the input in whose storage it lives (a view, or overwritten in place).
    blockers : tuple of Blocker
        Every reason against running in place; empty if it ran in place.
    """

    dispatch: str
    taken: tuple[str, ...] = ()
    shares: dict[str, str] | None = None
    blockers: tuple[Blocker, ...] = ()
