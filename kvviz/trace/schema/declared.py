"""What a producer declares besides the ops: accesses, times and lanes, places in arenas, and refused frees.

All of it is sparse: an engine whose accesses follow from its table of operators, and whose time is the step number,
declares only which rows an op wrote if they are given as indices.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from kvviz.trace.schema.regions import Region


class Access(NamedTuple):
    storage: int
    writes: bool
    value: str
    region: Region


class Timing(NamedTuple):
    """When an op ran, and in which lane of the timeline, by the producer's clock."""

    lane: str
    start: float
    end: float


class Place(NamedTuple):
    """Where a storage lies: the space, and in it an arena and the address there. ``taken``: bytes that it occupies
    there, if not its capacity: pages in all banks in lockstep occupy more."""

    space: str
    arena: str
    address: int | None
    taken: int | None = None


class Arena(NamedTuple):
    """An arena of a space: its size in bytes, and the number of banks, which are filled in lockstep."""

    space: str
    name: str
    nbytes: int
    banks: int


HOST = Place("host", "", None)


class Free(NamedTuple):
    """A storage that was freed after the op ``after``, or, if not ``done``, whose free was refused."""

    after: int
    storage: int
    done: bool
    why: str


class Mark(NamedTuple):
    """An event of a value between ops: a change of owner, a request, an error.

    ``after``: the op after which it happened, -1: before all.
    ``time``: by the producer's clock.
    ``kind``: the producer's word for it.
    ``value``: its name; ``storage``: where it lies, -1: nowhere.
    ``holder``: the caller's handle, -1: none.
    ``counts``: the producer's reference counts afterwards.
    ``nbytes``: its size.
    ``text``: a sentence.
    ``line``: the caller's line of code.
    """

    after: int
    time: float
    kind: str
    value: str
    storage: int
    holder: int = -1
    counts: tuple[int, ...] = ()
    nbytes: int = 0
    text: str = ""
    line: str = ""


@dataclass(slots=True)
class Declared:
    """What a producer declared.

    ``accesses``: by op; those of all others follow from the table of operators.
    ``written``: by op, positions of outputs, in the storage of an input, of which only a part was written, and that
      part; its offset counts from the first element of the output.
    ``times``: by op.
    ``places``: by storage; all others are in host memory.
    ``frees``: those with a reason or refused.
    ``marks``: events of values between ops.
    ``arenas``: those whose size is known.
    """

    accesses: dict[int, tuple[Access, ...]] = field(default_factory=dict)
    written: dict[int, tuple[tuple[int, Region], ...]] = field(default_factory=dict)
    times: dict[int, Timing] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    frees: list[Free] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    arenas: list[Arena] = field(default_factory=list)

    def cut(self, ops: int) -> None:
        by_op: tuple[dict[int, Any], ...] = (self.accesses, self.written, self.times)
        for declared in by_op:
            while declared and (last := next(reversed(declared))) >= ops:
                del declared[last]
        self.frees = [free for free in self.frees if free.after < ops]
        self.marks = [mark for mark in self.marks if mark.after < ops]

    def copy(self) -> Declared:
        return Declared(*(copy(getattr(self, part.name)) for part in fields(self)))

    def as_lists(self) -> dict[str, list[Any]]:
        kinds: dict[tuple[Any, ...], int] = {}
        return {
            "accesses": list(self.accesses.items()),
            # Most ops write as many rows as in the run before, elsewhere.
            "written": [
                [op, output, offset, kinds.setdefault((shape, strides, str(dtype)), len(kinds)), rows]
                for op, parts in self.written.items()
                for output, (offset, shape, strides, dtype, rows, *_) in parts
            ],
            "kinds": list(kinds),
            "times": [[op, *timing] for op, timing in self.times.items()],
            "places": [[storage, *place] for storage, place in self.places.items()],
            "frees": list(self.frees),
            "marks": list(self.marks),
            "arenas": list(self.arenas),
        }
