"""Who may free a buffer: the two models of reference counts of TTNN, exactly.

*Classic* (to early 2026): a tensor shares *attributes* with its aliases, and these share the buffer with the attributes
of its views. ``deallocate(force)`` goes on if nobody else has the attributes, or by force; then it frees the buffer if
no other attributes have it, or by force; it lets go of the buffer either way.

*Holder* (since tt-metal #38101, 2026-03): aliases share a *holder*, which is allocated or a tombstone; a view has a
holder of its own and the one of its root. Without force nothing happens unless both have one user. By force both become
tombstones. Whether a tensor is allocated is asked of its own holder alone: a view may say so when its root is dead
(tt-metal #53736). A tensor that goes out of scope is deallocated without force, in both.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol


class Held(Protocol):
    """What is owned: a buffer that lives until it is freed."""

    alive: bool


class Outcome(NamedTuple):
    """What a deallocation did. ``freed``: the buffer is gone by it. ``dropped``: the tensor has let go of it.

    ``why`` is a reason if it was not freed.
    """

    freed: bool
    dropped: bool
    why: str


class Part:
    """Attributes or a holder: ``buffer`` until it is let go, and how many tensors use it."""

    __slots__ = ("buffer", "users")

    def __init__(self, buffer: Held) -> None:
        self.buffer: Held | None = buffer
        self.users = 1


class Ref:
    """A TTNN tensor by value: its own part, and in the holder model that of the root that it is a view of."""

    __slots__ = ("own", "root")

    def __init__(self, own: Part, root: Part | None = None) -> None:
        self.own = own
        self.root = root


class Classic:
    """Attributes and buffers with use counts."""

    name = "classic"

    def __init__(self) -> None:
        self._parts: dict[int, int] = {}  # attributes that refer to a buffer, by its id

    def create(self, buffer: Held) -> Ref:
        self._parts[id(buffer)] = 1
        return Ref(Part(buffer))

    def alias(self, ref: Ref) -> Ref:
        """Another tensor with the same attributes."""
        ref.own.users += 1
        return Ref(ref.own)

    def view(self, ref: Ref) -> Ref:
        """Another tensor with attributes of its own over the same buffer."""
        assert ref.own.buffer is not None
        self._parts[id(ref.own.buffer)] += 1
        return Ref(Part(ref.own.buffer))

    def is_allocated(self, ref: Ref) -> bool:
        return ref.own.buffer is not None and ref.own.buffer.alive

    def users(self, ref: Ref) -> tuple[int, int]:
        """Use counts: of the attributes, and of the buffer."""
        buffer = ref.own.buffer
        return ref.own.users, 0 if buffer is None else self._parts[id(buffer)]

    def deallocate(self, ref: Ref, force: bool = False) -> Outcome:
        part, buffer = ref.own, ref.own.buffer
        if buffer is None:
            return Outcome(False, False, "it has already released its buffer")
        if part.users > 1 and not force:
            return Outcome(False, False, f"{part.users} tensors share its attributes")
        others = self._parts[id(buffer)] - 1
        self._parts[id(buffer)] = others
        part.buffer = None
        if not others:
            del self._parts[id(buffer)]
        if others and not force:
            why = "a view still refers to its buffer" if others == 1 else f"{others} views still refer to its buffer"
            return Outcome(False, True, why)
        freed, buffer.alive = buffer.alive, False
        return Outcome(freed, True, "" if freed else "the buffer was freed before")

    def drop(self, ref: Ref) -> Outcome:
        """The destructor."""
        done = self.deallocate(ref) if ref.own.buffer is not None else Outcome(False, False, "")
        ref.own.users -= 1
        return done


class Holder:
    """Holders with tombstones, and roots of views."""

    name = "holder"

    def create(self, buffer: Held) -> Ref:
        return Ref(Part(buffer))

    def alias(self, ref: Ref) -> Ref:
        """Another tensor with the same holder, and with the same root."""
        ref.own.users += 1
        if ref.root is not None:
            ref.root.users += 1
        return Ref(ref.own, ref.root)

    def view(self, ref: Ref) -> Ref:
        """Another tensor with a holder of its own, and the root of the tensor that it is a view of."""
        root = ref.own if ref.root is None else ref.root
        assert ref.own.buffer is not None
        root.users += 1
        return Ref(Part(ref.own.buffer), root)

    def is_allocated(self, ref: Ref) -> bool:
        return ref.own.buffer is not None

    def users(self, ref: Ref) -> tuple[int, int]:
        """Use counts: of its own holder, and of its root's (its own, where it is no view)."""
        return ref.own.users, (ref.own if ref.root is None else ref.root).users

    def deallocate(self, ref: Ref, force: bool = False) -> Outcome:
        own, root = ref.own, ref.root
        buffer = own.buffer
        if buffer is None:
            return Outcome(False, False, "its holder is a tombstone")
        if not force and (own.users > 1 or (root is not None and root.users > 1)):
            what = "its holder" if own.users > 1 else "the holder of its root"
            return Outcome(False, False, f"it is not the sole owner: {max(self.users(ref))} use {what}")
        own.buffer = None
        if root is not None:
            root.buffer = None
        freed, buffer.alive = buffer.alive, False
        return Outcome(freed, True, "" if freed else "the buffer was freed before")

    def drop(self, ref: Ref) -> Outcome:
        """The destructor."""
        done = self.deallocate(ref) if ref.own.buffer is not None else Outcome(False, False, "")
        ref.own.users -= 1
        if ref.root is not None:
            ref.root.users -= 1
        return done


Model = Classic | Holder
MODELS: dict[str, type[Classic] | type[Holder]] = {"classic": Classic, "holder": Holder}


# -- kept inputs ------------------------------------------------------------------------------------------------------
# Why a program may not run in the memory of what it is given: the reasons that only a device has.


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
