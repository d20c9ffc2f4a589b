"""Storages of one trace: made, held, shared, freed. The byte counts of a trace come from here.

Kernel scratch is not counted.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from kvviz.memory.storage import Pool, Reserved, Room, Storage, find_room, has_room, poison, root_of
from kvviz.trace.schema.events import RUN, Storages


class Roots(dict[int, Storage]):
    """Storages by the id of their root, while values from outside are adopted. ``borrowers``: those whose root has its
    bytes from elsewhere (a mapped file, another library), so that others may overlap it."""

    def __init__(self) -> None:
        super().__init__()
        self.borrowers: list[Storage] = []


class Ledger:
    """Every storage of a trace, in order of id, and how many bytes are alive.

    ``facts``: what the log records of all storages.
    ``storages``: by id; None for those that died in earlier runs.
    ``live, peak_here``: bytes alive now, and the maximum of this run.
    ``grown``: bytes of growth of existing storages that have not been logged.
    ``handed``: by the id of their root, what the caller holds between two runs.
    ``poisoned``: overwrite dead storages of the run with a pattern.
    """

    def __init__(self, facts: Storages, poisoned: bool = False) -> None:
        self.facts = facts
        self.storages: list[Storage | None] = []
        self.live = 0
        self.peak_here = 0
        self._peak = 0
        self._ended = 0  # storages at the end of the run before
        self.grown: list[tuple[Storage, int]] = []
        self.handed: dict[int, Storage] = {}
        self.lent: list[Storage] = []
        self.pool: Pool | None = None
        self.poisoned = poisoned

    def new(self, capacity: int, root: Any, origin: str = "run", owned: bool = True) -> Storage:
        storage = Storage(len(self.storages), capacity, root, origin, owned)
        self.storages.append(storage)
        self.facts.add(capacity, origin)
        self.live += capacity
        if self.live > self.peak_here:
            self.peak_here = self.live
        return storage

    @property
    def peak(self) -> int:
        return max(self._peak, self.peak_here)

    def allocate(self, array: np.ndarray, pooled: bool = True) -> tuple[Storage, int]:
        """The storage of a newly computed array, and the bytes of new capacity (0 if the pool had room)."""
        nbytes = array.nbytes
        root = array if array.base is None else root_of(array)
        pool = self.pool
        found = pool.take(array) if pooled and pool is not None else None
        if found is None:
            # The hot path, written out.
            storages = self.storages
            storage = Storage(len(storages), nbytes, root)
            storages.append(storage)
            facts = self.facts
            facts.capacities.append(nbytes)
            facts.origins.append(RUN)
            live = self.live = self.live + nbytes
            if live > self.peak_here:
                self.peak_here = live
            if pool is not None:
                pool.made(storage, array)
            return storage, nbytes
        self.revive(found, root)
        # A pool that counts in elements of its own may consider it larger than NumPy does.
        return found, self.widen(found, nbytes)

    def widen(self, storage: Storage, nbytes: int) -> int:
        """Make a storage as large as necessary; returns the bytes of growth."""
        more = nbytes - storage.capacity
        if more <= 0:
            return 0
        storage.capacity += more
        self.facts.resize(storage.id, storage.capacity)
        self.grow(more)
        self.grown.append((storage, more))
        return more

    def revive(self, storage: Storage, root: Any) -> None:
        storage.root, storage.room, storage.whole = root, None, True
        storage.generation += 1
        self.grow(storage.capacity)

    def grow(self, nbytes: int) -> None:
        self.live += nbytes
        self.peak_here = max(self.peak_here, self.live)

    def lend(self, sizes: array[int], total: int) -> int:
        """Number the storages of the weights, which the model holds; returns the first number. `Weights` makes them."""
        first = len(self.storages)
        self.storages += [None] * len(sizes)
        if self._ended == first:
            # They stay for good: the end of a run need not look at them.
            self._ended = len(self.storages)
        self.facts.extend(sizes, "weights")
        self.grow(total)
        return first

    def adopt(self, value: Any, origin: str, owned: bool, known: Roots) -> Storage:
        """The storage of a value from outside; values that share a root in ``known`` share a storage. A storage that is
        not owned is held once more, by its lender."""
        if isinstance(value, np.ndarray):
            root = root_of(value)
            storage = known.get(id(root))
            if storage is None:
                storage = _overlapping(root, known)
            if storage is None:
                storage = self.handed.get(id(root))
                if storage is None:
                    storage = self.new(max(root.nbytes, value.nbytes), root, origin, owned)
                    storage.whole = root.nbytes <= value.nbytes or has_room(root)
                storage.owned = owned
                storage.holders += not owned
                storage.room = find_room(root, value)
                known[id(root)] = storage
                if not _owns(root):
                    known.borrowers.append(storage)
                return storage
            if not owned and storage.owned:
                # One block given both as donated and as borrowed: the caller still relies on it.
                storage.owned = False
                storage.holders += 1
            storage.room = _behind_both(storage.room, find_room(root, value))
            return storage
        storage = self.new(0, None, origin, False)
        storage.holders += 1
        if isinstance(value, (list, tuple)):
            storage.parts = tuple(self.adopt(part, origin, owned, known) for part in value)
            for part in storage.parts:
                part.holders += 1
        return storage

    def begin_run(self, given: dict[int, Storage]) -> list[int]:
        """Drop what the caller held after the previous run; returns the storages that it did not give back."""
        freed: list[int] = []
        handed, self.handed = self.handed, {}
        # The arrays are the caller's: released ones may still be read there, and must not go to a pool.
        poisoned, self.poisoned, pool, self.pool = self.poisoned, False, self.pool, None
        for storage in handed.values():
            self.release(storage, freed)
        self.poisoned, self.pool = poisoned, pool
        self.lent = [storage for storage in given.values() if not storage.owned]
        return freed

    def end_run(self, kept: list[Storage], held: list[Storage]) -> list[int]:
        """End the run: its outputs (``kept``) are the caller's now, everything else that it ``held`` is released.
        Returns the storages that died."""
        freed: list[int] = []
        poisoned, self.poisoned = self.poisoned, False
        for storage in kept:
            if storage.root is not None and id(storage.root) not in self.handed:
                self.handed[id(storage.root)] = storage
                storage.holders += 1
        for storage in self.lent:
            # Borrowed storages stay until the next run shows whether they are still in use.
            if storage.root is not None and id(storage.root) not in self.handed:
                self.handed[id(storage.root)] = storage
            else:
                storage.holders -= 1
        for storage in held:
            self.release(storage, freed)
        self.poisoned = poisoned
        self._peak = max(self._peak, self.peak_here)
        for made in filter(None, self.storages[self._ended :]):
            if not made.holders and made.root is None:
                self.storages[made.id] = None
        self._ended = len(self.storages)
        return freed

    def renumber(self, since: int) -> None:
        """Forget dead storages from a number on, and renumber the others."""
        alive = [s for s in self.storages[since:] if s is not None and (s.holders or s.root is not None)]
        del self.storages[since:]
        self.facts.cut(since)
        for storage in alive:
            storage.id = len(self.storages)
            self.storages.append(storage)
            self.facts.add(storage.capacity, storage.origin)
        self._ended = len(self.storages)

    def release(self, storage: Storage, freed: list[int]) -> None:
        """Release one hold; note the storages that die."""
        storage.holders -= 1
        if storage.holders:
            return
        freed.append(storage.id)
        self.live -= storage.capacity
        if self.poisoned and storage.owned and storage.whole:
            poison(storage.root)
        if self.pool is not None and storage.owned:
            self.pool.give(storage)
        storage.root = None
        for part in storage.parts:
            self.release(part, freed)
        storage.parts = ()


def _owns(root: np.ndarray) -> bool:
    return root.flags.owndata or isinstance(root, Reserved)


def _overlapping(root: np.ndarray, known: Roots) -> Storage | None:
    """A storage in the same memory: two arrays over one foreign buffer have no NumPy root in common."""
    # Two arrays that own their bytes cannot overlap.
    for storage in known.borrowers if _owns(root) else known.values():
        if isinstance(storage.root, np.ndarray) and np.may_share_memory(root, storage.root):
            return storage
    return None


def _behind_both(one: Room | None, other: Room | None) -> Room | None:
    """The room behind two values of one block: that of the longer one, and none if either cannot grow."""
    if one is None or other is None:
        return None
    return one if one.filled >= other.filled else other
