"""What a producer declares beside the ops: accesses, times and lanes, places in arenas, and frees that were refused.

All of it is sparse: an engine whose accesses follow from its table of operators, and whose time is the step number,
declares nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvviz.trace.regions import Region


class Access(NamedTuple):
    """Bytes of a storage that an op reads or writes, by way of a value."""

    storage: int
    writes: bool
    value: str
    region: Region


class Timing(NamedTuple):
    """When an op ran, and where on the timeline, by the producer's clock."""

    lane: str
    start: float
    end: float


class Place(NamedTuple):
    """Where a storage lies: the space, and in it an arena and the address there."""

    space: str
    arena: str
    address: int | None


HOST = Place("host", "", None)
"""Where a storage lies of which nothing is declared."""


class Free(NamedTuple):
    """A storage that was let go after so many ops, or that was asked to be and stays."""

    after: int
    storage: int
    done: bool
    why: str


@dataclass(slots=True)
class Declared:
    """What a producer declared.

    Attributes
    ----------
    accesses : dict of int to tuple of Access
        By op; of all others they follow from the table of operators.
    times : dict of int to Timing
        By op.
    places : dict of int to Place
        By storage; all others are in the host's memory.
    frees : list of Free
        Those of which there is more to say than that they were done.
    """

    accesses: dict[int, tuple[Access, ...]] = field(default_factory=dict)
    times: dict[int, Timing] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    frees: list[Free] = field(default_factory=list)

    def as_lists(self) -> dict[str, list[Any]]:
        """For a file."""
        return {
            "accesses": [
                [op, [[*access[:3], access.region._replace(dtype=str(access.region.dtype))] for access in accesses]]
                for op, accesses in self.accesses.items()
            ],
            "times": [[op, *timing] for op, timing in self.times.items()],
            "places": [[storage, *place] for storage, place in self.places.items()],
            "frees": list(self.frees),
        }
