"""The caller's side of a tensor: a handle refers to a wrapper, which refers to a buffer; and who may free that.

Source: ``Tensor`` of tt-mlir's runtime is a shared pointer to a ``TTNNTensorWrapper``, which has a TTNN tensor by value
and the flags *retain* and *version*. Copies of a handle share the wrapper. Whether a buffer may be freed is decided by
one of TTNN's two models of reference counts.

*Classic* (to early 2026): a tensor shares *attributes* with its aliases, and these share the buffer with the attributes
of its views. ``deallocate(force)`` goes on if nobody else has the attributes, or by force; then it frees the buffer if
no other attributes have it, or by force; it releases the buffer either way.

*Holder* (since tt-metal #38101, 2026-03): aliases share a *holder*, which is allocated or a tombstone; a view has a
holder of its own and the one of its root. Without force nothing happens unless both have one user. By force both become
tombstones. A tensor is allocated if its own holder is: a view may say so when its root is dead (tt-metal #53736). A
tensor that goes out of scope is deallocated without force, in both.
"""

from __future__ import annotations

import dis
import linecache
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from os.path import basename
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

import numpy as np

from kvviz.device.device_layout import HOST, Layout


class Held(Protocol):
    """A buffer that lives until it is freed; ``parts``: how many attributes refer to it."""

    alive: bool
    parts: int


class Outcome(NamedTuple):
    """The result of a deallocation: whether it ``freed`` the buffer, whether the tensor ``dropped`` it, and ``why`` it
    was not freed."""

    freed: bool
    dropped: bool
    why: str


@dataclass(slots=True, eq=False)
class Part:
    """Attributes or a holder: ``buffer`` until it is released, and how many tensors use it."""

    buffer: Held | None
    users: int = 1


@dataclass(slots=True, eq=False)
class Ref:
    """A TTNN tensor by value: its own part, and in the holder model that of the root that it is a view of."""

    own: Part
    root: Part | None = None


class Model(ABC):
    def create(self, buffer: Held) -> Ref:
        return Ref(Part(buffer))

    @abstractmethod
    def deallocate(self, ref: Ref, force: bool = False) -> Outcome:
        """Release the buffer, and free it if nothing else holds it, or by force."""

    def drop(self, ref: Ref) -> Outcome:
        """The destructor."""
        done = self.deallocate(ref)
        for part in (ref.own, ref.root):
            if part is not None:
                part.users -= 1
        return done


class Classic(Model):
    def alias(self, ref: Ref) -> Ref:
        ref.own.users += 1
        return Ref(ref.own)

    def view(self, ref: Ref) -> Ref:
        assert ref.own.buffer is not None
        ref.own.buffer.parts += 1
        return Ref(Part(ref.own.buffer))

    def is_allocated(self, ref: Ref) -> bool:
        return ref.own.buffer is not None and ref.own.buffer.alive

    def users(self, ref: Ref) -> tuple[int, int]:
        """Use counts: of the attributes, and of the buffer."""
        buffer = ref.own.buffer
        return ref.own.users, 0 if buffer is None else buffer.parts

    def deallocate(self, ref: Ref, force: bool = False) -> Outcome:
        part, buffer = ref.own, ref.own.buffer
        if buffer is None:
            return Outcome(False, False, "it has already released its buffer")
        if part.users > 1 and not force:
            return Outcome(False, False, f"{part.users} tensors share its attributes")
        buffer.parts -= 1
        others, part.buffer = buffer.parts, None
        if others and not force:
            why = "a view still refers to its buffer" if others == 1 else f"{others} views still refer to its buffer"
            return Outcome(False, True, why)
        freed, buffer.alive = buffer.alive, False
        return Outcome(freed, True, "" if freed else "the buffer was freed before")


class Holder(Model):
    def alias(self, ref: Ref) -> Ref:
        ref.own.users += 1
        if ref.root is not None:
            ref.root.users += 1
        return Ref(ref.own, ref.root)

    def view(self, ref: Ref) -> Ref:
        root = ref.own if ref.root is None else ref.root
        assert ref.own.buffer is not None
        root.users += 1
        return Ref(Part(ref.own.buffer), root)

    def is_allocated(self, ref: Ref) -> bool:
        return ref.own.buffer is not None

    def users(self, ref: Ref) -> tuple[int, int]:
        """Use counts: of its own holder, and of its root's (its own, unless it is a view)."""
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


MODELS: dict[str, type[Classic] | type[Holder]] = {"classic": Classic, "holder": Holder}


# Why a program may not run in the memory of its input: the reasons that only a device has.


class Kept(IntEnum):
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


@dataclass(slots=True, eq=False)
class Buffer:
    number: int  # under which the banks know it
    memory: str
    extent: int  # bytes in all banks, padding included
    array: np.ndarray  # what is in it
    storage: int = -1  # its number in the log
    alive: bool = True
    parts: int = 1
    contents: int = 0  # how often they were changed
    ready: float = 0.0  # when its contents are written, in simulated time
    read_until: float = 0.0


@dataclass(slots=True, eq=False)
class Wrapper:
    """The state that copies of a handle share; on the host without a buffer."""

    version: int
    array: np.ndarray  # the values, in the memory of the buffer
    layout: Layout
    retain: bool = False
    buffer: Buffer | None = None
    ref: Ref | None = None  # the TTNN tensor
    value: int = -1  # its number in the log
    used: int = 0  # the last submit that was given it or that made it
    handles: int = 1
    fate: str = ""  # how it came to be dead, for messages
    origin: str = ""  # what made it
    name: str = ""  # of its first handle, as are the line, the number and, while the caller has it, the handle
    line: str = ""
    first: int = -1
    owner: Callable[[], Any] = lambda: None
    converted: Layout | None = None  # what it had before `to_layout`, until a program reads it
    reuploaded: tuple[str, str] | None = None  # the output that it is a copy of, and the line of `to_host`
    evictions: list[Any] = field(default_factory=list)  # keys of const-eval results that end with it

    @property
    def held(self) -> Buffer:
        assert self.buffer is not None
        return self.buffer

    @property
    def tensor(self) -> Ref:
        assert self.ref is not None
        return self.ref


class Handle:
    """A tensor of a device, as the caller holds it. A device makes it.

    Attributes
    ----------
    name : str
    number : int
    line : str
        The line of the caller's code that created it.
    """

    __slots__ = ("__weakref__", "device", "ending", "line", "name", "number", "released", "wrapper")

    def __init__(self, device: Any, number: int, name: str, wrapper: Wrapper, line: str) -> None:
        self.device = device
        self.number = number
        self.name = name
        self.wrapper = wrapper
        self.line = line
        self.released = False
        self.ending: Any = None  # what is done when the caller has it no more

    @property
    def layout(self) -> Layout:
        """Where it lies, and how."""
        return self.wrapper.layout

    @property
    def shape(self) -> tuple[int, ...]:
        """In elements, padding left out."""
        return self.wrapper.array.shape

    @property
    def dtype(self) -> np.dtype:
        """The type of its elements on the device."""
        return self.wrapper.array.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, padding left out."""
        return int(self.wrapper.array.nbytes)

    @property
    def version(self) -> int:
        """Number of the wrapper's contents in the runtime's view: `Device.memcpy` does not change it."""
        return self.wrapper.version

    @property
    def is_allocated(self) -> bool:
        """The runtime's answer; under the ownership ``holder`` a view may be reported as allocated when its root is
        dead."""
        ref = self.wrapper.ref
        return not self.released and (ref is None or bool(self.device.model.is_allocated(ref)))

    @property
    def retain(self) -> bool:
        """Whether `Device.deallocate` and a submit leave it alone; a flag of the wrapper, which copies share."""
        return self.wrapper.retain

    @retain.setter
    def retain(self, value: bool) -> None:
        self.device.set_retain(self, bool(value))

    @property
    def use_counts(self) -> tuple[int, int]:
        """Classic: of attributes and buffer. Holder: of its own holder and its root's. (0, 0) on the host."""
        ref = self.wrapper.ref
        return (0, 0) if ref is None else self.device.model.users(ref)

    def has_layout(self, layout: Layout) -> bool:
        """Whether it already has a layout."""
        return self.layout == layout.of(self.wrapper.array)

    def __repr__(self) -> str:
        state = "retained" if self.retain else "on the host" if self.layout.memory == HOST else ""
        dead = "" if self.is_allocated else "dead"
        words = [f"{self.dtype}{list(self.shape)}", str(self.layout), state, dead]
        return f"<Handle {self.name!r} #{self.number}: {', '.join(part for part in words if part)}>"


def caller_line() -> str:
    """``file:line code`` of the nearest frame outside of kvviz. Only the file's base name is used: a recording may be
    sent to others."""
    frame = _caller()
    path, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(path, number, frame.f_globals).strip()
    name = "notebook cell" if "ipykernel" in path else basename(path)
    return f"{name}:{number} {text}".rstrip()


def assigned_name() -> str:
    """The variable that the result of the caller's call is assigned to; empty if there is none."""
    frame = _caller()
    return _stored(frame.f_code, frame.f_lasti)


def _caller() -> FrameType:
    frame = sys._getframe(2)
    while frame.f_back is not None and _inside(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    return frame


def _inside(module: str) -> bool:
    return module in ("contextlib", "weakref") or module.split(".")[0] == "kvviz"


@lru_cache(1024)
def _stored(code: CodeType, place: int) -> str:
    """Where the instructions after a call store its result: ``x``, the ``x`` of ``x[…]`` or of ``self.x``."""
    every = list(dis.get_instructions(code))
    # Since 3.11 the place may be within a call's caches, which follow it.
    at = max((n for n, one in enumerate(every) if one.offset <= place), default=0)
    if not every[at].opname.startswith("CALL"):
        return ""
    loaded = ""
    for name, argument in ((one.opname, one.argval) for one in every[at + 1 :]):
        # Since 3.13 one instruction may store or load two variables.
        variable = str(argument[0] if isinstance(argument, tuple) else argument)
        if name == "STORE_SUBSCR":
            return loaded
        if name.startswith("STORE_"):
            return variable
        if name.startswith("LOAD_") and (loaded or name != "LOAD_ATTR"):
            loaded = variable if name == "LOAD_ATTR" else loaded or variable
        elif name not in ("COPY", "DUP_TOP"):
            return ""
    return ""
