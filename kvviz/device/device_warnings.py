"""Warnings of a device: the codes, and a cure for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CURES = {
    "USE_AFTER_FREE": "keep it alive for this call: set handle.retain = True before the submit, or deallocate it later",
    "DOUBLE_FREE": "remove the second deallocate",
    "LEAK": "deallocate it after its last use; if it is retained, set handle.retain = False first",
    "HOST_ROUND_TRIP": "give the handle itself to the next submit",
    "NEEDLESS_CONVERSION": "request this layout once, when the tensor is created",
    "LATE_FREE": "deallocate it right after the last submit that reads it",
    "STALE_CONST_EVAL": "pass the new contents in a new handle from to_device, so that the version changes",
    "FREE_DEFERRED": "let the others go first, or free it by force if nobody needs them",
    "FORCED_FREE_SHARED": "deallocate without force, or after the last use of the others",
    "TRACE_OVERWRITES": "put it there before the capture, or capture the trace again",
    "L1_SPILL": "first submit the programs that read it, or create it in DRAM",
}
"""The codes of warnings, and their cures."""

MODELLED = {"STALE_CONST_EVAL", "TRACE_OVERWRITES"}
"""Codes that follow from the runtime's source, and were not seen on hardware: their sentences say so."""


@dataclass(frozen=True, slots=True)
class DeviceWarning:
    """Something that works, but probably not as intended; or a use after free, which does not work.

    Attributes
    ----------
    code : str
        One of `CURES`.
    handle : Handle
        The handle in question, or one like it if the caller dropped it.
    sentence : str
        The cause, and the cure.
    line : str
        ``file:line code`` of the caller.
    nbytes : int
        The bytes in question.
    time : float
        Simulated, in microseconds.
    """

    code: str
    find: Callable[[], Any] = field(repr=False, compare=False)
    sentence: str
    line: str
    nbytes: int = 0
    time: float = 0.0

    @property
    def handle(self) -> Any:
        """The handle in question, or None if nobody holds it any more."""
        # A warning keeps no handle, as that would count among the holders of a tensor.
        return self.find()
