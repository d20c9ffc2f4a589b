"""Storages as the log knows them: how large each one is, and whom its memory is from."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

ORIGINS = ("weights", "caller", "donated", "run", "pool")
"""Whom the memory of a storage is from."""
RUN = ORIGINS.index("run")


class StorageFacts(NamedTuple):
    """Number (shown as ``B12``), capacity in bytes, reserved room included, and one of `ORIGINS`."""

    id: int
    capacity: int
    origin: str


class Storages(Sequence[StorageFacts]):
    """All storages of a log, in order of id.

    ``origins``: places in `ORIGINS`.
    """

    __slots__ = ("_made", "capacities", "origins")

    def __init__(self) -> None:
        self.capacities = array("q")
        self.origins = array("b")
        self._made: list[StorageFacts] = []

    def add(self, capacity: int, origin: str) -> None:
        """One more."""
        self.capacities.append(capacity)
        self.origins.append(ORIGINS.index(origin))

    def extend(self, capacities: Sequence[int], origin: str) -> None:
        """Several more, all from one."""
        self.capacities.extend(capacities)
        self.origins.extend([ORIGINS.index(origin)] * len(capacities))

    def resize(self, id: int, capacity: int) -> None:
        """Another capacity than before."""
        self.capacities[id] = capacity
        del self._made[id:]

    def cut(self, count: int) -> None:
        """Drop all but the first."""
        del self.capacities[count:], self.origins[count:], self._made[count:]

    def __len__(self) -> int:
        return len(self.capacities)

    @overload
    def __getitem__(self, index: int) -> StorageFacts: ...
    @overload
    def __getitem__(self, index: slice) -> list[StorageFacts]: ...
    def __getitem__(self, index: int | slice) -> StorageFacts | list[StorageFacts]:
        made, size = self._made, len(self.capacities)
        if len(made) < size:
            origins = (ORIGINS[origin] for origin in self.origins[len(made) :])
            made += map(StorageFacts._make, zip(range(len(made), size), self.capacities[len(made) :], origins))
        return made[index]

    def __iter__(self) -> Iterator[StorageFacts]:
        return iter(self[:])
