"""The state of a device that all of its calls share: memories, clock, log, handles, warnings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, NamedTuple, NoReturn
from weakref import WeakMethod, finalize, ref

import numpy as np

from kvviz.device.device_layout import MEMORIES, Banks, Layout, in_all_banks, sizes
from kvviz.device.device_warnings import CURES, MODELLED, DeviceWarning
from kvviz.device.handles import MODELS, RULES, Buffer, Handle, Ref, Wrapper, caller_line
from kvviz.device.simulated_time import Clock, Cost
from kvviz.errors import DeviceError, KvvizError
from kvviz.interrupts import held_back
from kvviz.trace.schema.declared import Arena
from kvviz.trace.writer import Writer

# Handles that the caller drops wait in a queue until no call of the device is under way.
#
# Python may run a finalizer between any two bytecodes, also in the middle of the device's own bookkeeping, and, for
# what is part of a reference cycle, in any thread.


class DroppedHandles:
    """Wrappers of dropped handles, in order. ``let_go``: a method of the device, called with a wrapper once for each of
    its dropped handles."""

    def __init__(self, let_go: Callable[[Wrapper], None]) -> None:
        # The interpreter keeps finalizers: a strong reference would keep a device whose handles it holds itself.
        self._let_go: Callable[[], Any] = WeakMethod(let_go)
        self._queue: deque[Wrapper] = deque()
        self._lock = RLock()
        self._calls = 0

    def __call__(self, wrapper: Wrapper) -> None:
        """Take a wrapper, from a finalizer: never waits for a lock."""
        self._queue.append(wrapper)
        if self._lock.acquire(blocking=False):
            try:
                if not self._calls:
                    with held_back():
                        self._drain()
            finally:
                self._lock.release()

    @contextmanager
    def wait(self) -> Iterator[None]:
        """A call of the device: handles dropped before it are released first, those dropped meanwhile afterwards."""
        with self._lock:
            if not self._calls:
                self._drain()
            self._calls += 1
            try:
                yield
            finally:
                self._calls -= 1
                if not self._calls:
                    self._drain()

    def _drain(self) -> None:
        while self._queue:
            self._calls += 1
            try:
                let_go = self._let_go()
                wrapper = self._queue.popleft()
                if let_go is not None:
                    let_go(wrapper)
            finally:
                self._calls -= 1


CONTRACTS = ("landed", "proposed")


class Room(NamedTuple):
    """A block of memory: its number, bytes in all banks, bytes of a page (0: none), its address in the whole memory,
    and when it is free."""

    memory: str
    number: int
    extent: int
    page: int
    address: int
    when: float


class DeviceState:
    """The parts of `kvviz.device.Device` that its calls change."""

    def __init__(
        self,
        name: str,
        capacity: dict[str, int],
        banks: dict[str, int],
        contract: str,
        ownership: str,
        cost: Cost,
        queues: int,
    ) -> None:
        if contract not in CONTRACTS:
            raise KvvizError(f"a contract is 'landed' or 'proposed', not {contract!r}")
        if ownership not in MODELS:
            raise KvvizError(f"an ownership is 'holder' or 'classic', not {ownership!r}")
        if queues < 1 or min(*capacity.values(), 0) < 0 or min(banks.values()) < 1:
            raise KvvizError("a device needs at least one queue and one bank, and no memory may have less than 0 bytes")
        self.contract = contract
        self.ownership = ownership
        self.model = MODELS[ownership]()
        self.cost = cost
        self.clock = Clock(queues)
        self.banks = {memory: Banks(memory, capacity[memory], banks[memory]) for memory in MEMORIES}
        about = f"contract {contract}, ownership {ownership}; time is simulated, in microseconds"
        self.writer = Writer(name, "device", about, decides=True, rules=RULES)
        self.writer.log.declared.arenas += [Arena(b.name, b.name, b.size, b.banks) for b in self.banks.values()]
        self.warnings: list[DeviceWarning] = []
        self.given = 0  # handles that were given out
        self.buffers: dict[int, Buffer] = {}  # alive, by number
        self.by_buffer: dict[int, list[Wrapper]] = {}
        self.dropped = DroppedHandles(self.let_go)
        self.host_bytes = 0
        self.allocated_bytes = self.freed_bytes = 0
        self.submits = self.programs = 0
        self.closed = False
        self.numbers = 0
        self.versions = 0
        self.fetched: list[Any] = []  # what `to_host` gave out of outputs, to notice it coming back
        self.conversions: set[tuple[int, str, int]] = set()  # program, input, version: what a submit converted
        self.evict: Callable[[Wrapper], None] = lambda wrapper: None  # what ends with a wrapper
        self.generation = 0  # of captured traces
        self.placed: Any = None  # where the last submit put what
        self.grouped = ""  # name of a run that goes on whatever is submitted
        self._submitted = False  # whether the present run has its submit

    def fail(self, rule: str, handle: Any, why: str) -> NoReturn:
        """Refuse a call; nothing has changed."""
        line = caller_line()
        who = f"{handle.name!r} (#{handle.number}, made at {handle.line})" if isinstance(handle, Handle) else handle
        raise DeviceError(f"{who}: {why} [rule: {rule}; asked for at {line}]", handle, rule, line)

    def warn(self, code: str, handle: Handle, cause: str, nbytes: int = 0, line: str = "") -> None:
        """Note a warning, with its cure."""
        line = line or caller_line()
        sentence = (
            f"{handle.name!r} (#{handle.number}) {cause}: {CURES[code]}{' (model behaviour)' * (code in MODELLED)}"
        )
        mine, wrapper = ref(handle), handle.wrapper

        def found() -> Handle:
            return mine() or self.handle_of(wrapper)

        self.warnings.append(DeviceWarning(code, found, sentence, line, nbytes, self.clock.now))
        self.mark(f"warning {code}", handle.wrapper, sentence, line, nbytes=nbytes)

    def mark(
        self, kind: str, wrapper: Wrapper | None, text: str, line: str = "", time: float | None = None, nbytes: int = 0
    ) -> None:
        """Record an event of a tensor.

        Its counts are those of `Handle.use_counts`, the handles of its wrapper, and 1 if it is retained.
        """
        value = None if wrapper is None or wrapper.value < 0 else wrapper.value
        when = self.clock.now if time is None else time
        facts: dict[str, Any] = {"text": text, "line": line or caller_line(), "time": when, "nbytes": nbytes}
        if wrapper is not None:
            users = (0, 0) if wrapper.ref is None else self.model.users(wrapper.ref)
            facts |= {"holder": wrapper.first, "counts": (*users, wrapper.handles, int(wrapper.retain))}
        self.writer.mark(kind, value, **facts)

    def open(self) -> None:
        """Refuse calls of a closed device."""
        if self.closed:
            self.fail("closed device", "the device", "it is closed; create a new one")

    def a_layout(self, layout: Any, what: str) -> None:
        if not isinstance(layout, Layout):
            self.fail("a layout", what, f"it takes a kvviz.device.Layout, not {layout!r}")

    def mine(self, handle: Any, what: str) -> Wrapper:
        """The wrapper of a handle; refuses anything but a tensor of this device."""
        self.open()
        if not isinstance(handle, Handle):
            kind = type(handle).__name__
            self.fail("a handle", f"{what} of {kind}", "a handle of this device is needed: call to_device first")
        if handle.device is not self:
            self.fail("foreign handle", handle, f"{what} of a tensor of another device: copy it here with to_device")
        return handle.wrapper

    def need(self, handle: Any, what: str, host: bool = False) -> Wrapper:
        """The wrapper of a live handle, for a call that touches its bytes."""
        wrapper = self.mine(handle, what)
        if wrapper.buffer is None:
            if not host:
                self.fail("on the device", handle, f"{what} of a tensor on the host: call to_device first")
        elif fate := self.fate(handle):
            self.warn("USE_AFTER_FREE", handle, f"is used by {what}, and {fate}")
            self.fail("use after free", handle, f"{what} of a dead tensor: {fate}; {CURES['USE_AFTER_FREE']}")
        return wrapper

    def fate(self, handle: Handle) -> str:
        """How the tensor of a handle died; empty while it lives, and on the host."""
        wrapper = handle.wrapper
        if wrapper.buffer is None or (not handle.released and wrapper.buffer.alive and handle.is_allocated):
            return ""
        fate = wrapper.fate or "it was released" * handle.released or "its buffer was freed through another tensor"
        return fate + " (is_allocated says true: only its own holder is asked)" * handle.is_allocated

    def allocate(self, memory: str, extent: int, page: int, time: float) -> Room | None:
        """A block in every bank; None if there is no room."""
        banks = self.banks[memory]
        found = banks.allocate(in_all_banks(extent, page, banks.banks), self.numbers, time)
        if found is None:
            return None
        self.numbers += 1
        return Room(memory, self.numbers - 1, extent, page, *found)

    def room(self, memory: str, extent: int, page: int, time: float, who: str) -> Room:
        """A block in every bank; refuses if it does not fit."""
        found = self.allocate(memory, extent, page, time)
        if found is None:
            banks = self.banks[memory]
            free, longest = banks.size - banks.allocated, banks.largest_free
            taken = in_all_banks(extent, page, banks.banks)
            dealt = f" (they take {taken:,} B, in pages of {page:,} B over {banks.banks} banks)" * (taken != extent)
            self.fail(
                f"room in {memory}",
                who,
                f"{extent:,} B{dealt} do not fit into {memory}: {free:,} B are free, at most {longest:,} B of them "
                "contiguous; deallocate a tensor or use another memory",
            )
        return found

    def storage(self, room: Room, origin: str = "run") -> int:
        """A storage in the log for a block; with pages it takes as much in every bank as in the fullest one."""
        memory, _, extent, page, address, _ = room
        made = self.writer.storage(extent, origin=origin, space=memory, arena=memory, address=address)
        taken = in_all_banks(extent, page, self.banks[memory].banks)
        if taken != extent:
            places = self.writer.log.declared.places
            places[made] = places[made]._replace(taken=taken)
        return made

    def queued(self, ready: float, took: float) -> dict[str, Any]:
        """Work that the host hands to a queue: its lane, start and end."""
        queue, start, end = self.clock.run(ready, took)
        self.clock.now += self.cost.issue
        return {"lane": f"queue {queue}", "start": start, "end": end}

    def new(
        self, array: np.ndarray, layout: Layout, name: str, ready: float, room: Room | None = None
    ) -> tuple[Wrapper, float]:
        """A tensor in a block of its own, and when that is free; only its place is logged.

        ``room``: the block, if there is one already.
        """
        room = room or self.room(layout.memory, *sizes(array.shape, layout), ready, f"{name!r}")
        buffer = Buffer(room.number, room.memory, room.extent, array, self.storage(room))
        wrapper = self.wrap(buffer, self.model.create(buffer), array, layout, name)
        self.allocated_bytes += room.extent
        self.buffers[room.number] = buffer
        return wrapper, room.when

    def wrap(self, buffer: Buffer, tensor: Ref, array: np.ndarray, layout: Layout, name: str) -> Wrapper:
        self.versions += 1
        wrapper = Wrapper(self.versions, array, layout)
        wrapper.buffer, wrapper.ref, wrapper.used = buffer, tensor, self.submits
        wrapper.value = self.value(buffer, array, name)
        return wrapper

    def value(self, buffer: Buffer, array: np.ndarray, name: str) -> int:
        first, root = (one.__array_interface__["data"][0] for one in (array, buffer.array))
        strides = None if array.flags.c_contiguous else array.strides
        offset = first - root if array.size else 0
        return self.writer.value(name, array.shape, str(array.dtype), buffer.storage, offset, strides)

    def handle(self, wrapper: Wrapper, name: str, kind: str, text: str, time: float | None = None) -> Handle:
        made = self.named(wrapper, name)
        wrapper.origin = wrapper.origin or text
        if wrapper.buffer is not None:
            known = self.by_buffer.setdefault(wrapper.buffer.number, [])
            known += [] if wrapper in known else [wrapper]
        self.mark(kind, wrapper, text, made.line, time)
        return made

    def named(self, wrapper: Wrapper, name: str) -> Handle:
        """A handle of a wrapper; it reports when the caller drops it."""
        made = Handle(self, self.given, name, wrapper, caller_line())
        self.given += 1
        if wrapper.first < 0:
            wrapper.first, wrapper.name, wrapper.line, wrapper.owner = made.number, name, made.line, ref(made)
        made.ending = finalize(made, self.dropped, wrapper)
        made.ending.atexit = False
        return made

    def handle_of(self, wrapper: Wrapper) -> Handle:
        """The first handle of a wrapper, or one like it if the caller dropped it."""
        found = wrapper.owner()
        return Handle(self, wrapper.first, wrapper.name, wrapper, wrapper.line) if found is None else found

    def let_go(self, wrapper: Wrapper) -> None:
        """Note that the caller has dropped a handle of a wrapper."""
        wrapper.handles -= 1

    def gone(self, buffer: Buffer, time: float, why: str, logged: bool = False) -> None:
        """Account for a buffer that was freed; ``logged``: the log knows it already."""
        del self.buffers[buffer.number]
        self.banks[buffer.memory].free(buffer.number, time, self.clock.now)
        self.freed_bytes += buffer.extent
        if not logged:
            self.writer.free(buffer.storage, why)
        text = f"{why}; {buffer.extent:,} B of {buffer.memory} are free"
        line = caller_line()
        wrappers = self.by_buffer.pop(buffer.number, [])
        for wrapper in wrappers:
            wrapper.fate = wrapper.fate or f"{why} at {line}"
        self.mark("freed", wrappers[0] if wrappers else None, text, line, time, buffer.extent)
        for wrapper in wrappers:
            self.evict(wrapper)

    def free_at(self, buffer: Buffer) -> float:
        """When a buffer's last use ends."""
        return max(self.clock.now, buffer.ready, buffer.read_until)

    def of_buffer(self, buffer: Buffer) -> list[Wrapper]:
        """Wrappers in a buffer of which the caller has a handle."""
        return [wrapper for wrapper in self.by_buffer.get(buffer.number, ()) if wrapper.handles]

    def counts(self, wrapper: Wrapper) -> bool:
        """Whether a tensor still holds its buffer."""
        return wrapper.ref is not None and self.model.is_allocated(wrapper.ref)

    def forward(self, submit: str = "") -> None:
        """Before a submit or the calls that lead up to one: begin another run if the present one has its submit."""
        if self._submitted and not self.grouped:
            self.writer.begin_run(f"after submit {self.submits}")
            self._submitted = False
        if submit or self.grouped:
            self.writer.name_run(self.grouped or submit)
            self._submitted = True
