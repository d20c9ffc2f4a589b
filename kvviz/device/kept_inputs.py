"""Why a program may not run in the memory of what it is given: the reasons that only a device has."""

from __future__ import annotations

from enum import IntEnum


class Kept(IntEnum):
    """One reason; the number is that of its sentence in `RULES`."""

    RETAINED = 0
    PROPOSED = 1
    RETURNED = 2
    PARAMETER = 3
    SHARED = 4
    PART = 5
    ELSEWHERE = 6


RULES = (
    "{op} cannot overwrite {input}: the handle that the submit was given is retained",
    "{op} cannot overwrite {input}: as proposed, a submit leaves its inputs to the caller, who frees them",
    "{op} cannot overwrite {input}: the submit hands its argument back as an output",
    "{op} cannot overwrite {input}: it is a parameter, which a program never deallocates",
    "{op} cannot overwrite {input}: another handle or view counts on its buffer",
    "{op} cannot overwrite {input}: the tensor is only a part of its buffer, or lies in it with gaps",
    "{op} cannot overwrite {input}: the outputs of the program are to lie in another memory or layout",
)
"""By `Kept`, as the trace's policy has them."""
