"""Moving tensors: between host and device, from one layout to another, views, and bytes into existing tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from kvviz.device.device_layout import HOST, Layout, converted, sizes, zero_copy
from kvviz.device.device_state import DeviceState, Room
from kvviz.device.handles import Buffer, Handle, Wrapper, assigned_name, caller_line
from kvviz.device.releases import let_go
from kvviz.device.simulated_time import LINK

_ALIASES = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
"""Types that a host tensor is cast to, as the runtime casts them (``createOwnedHostTensor``); arrays on the device keep
theirs, since ONNX graphs require them."""
# The least number of bytes whose contents are compared, to notice a copy that comes back.
_TELLING = 64
_FETCHED = 255  # arrays that are remembered, of those that went to the host last


def is_plain(array: np.ndarray) -> bool:
    """Whether a device can hold such elements."""
    return array.dtype.kind in "biuf" or str(array.dtype) == "bfloat16"


def to_device(state: DeviceState, array: Any, layout: Layout | None = None, *, name: str | None = None) -> Handle:
    """A copy of an array, or of a tensor on the host, on the device; in rows in DRAM by default."""
    state.open()
    given = array
    if isinstance(given, Handle) and given.wrapper.buffer is not None:
        state.fail("to_device", given, "it is already on the device: call to_layout to move it")
    array = given.wrapper.array if isinstance(given, Handle) else np.asarray(given)
    if not is_plain(array):
        state.fail("to_device", f"an array of {array.dtype}", "a device can only hold numbers")
    layout = Layout() if layout is None else layout
    state.a_layout(layout, "to_device")
    layout = layout.of(array)
    if layout.memory == HOST:
        state.fail("to_device", "a layout on the host", "choose 'dram' or 'l1'")
    name = name or (given.name if isinstance(given, Handle) else "") or assigned_name() or f"t{state.given}"
    wrapper, when = state.new(converted(array, str(layout.dtype)), layout, name, state.clock.now)
    state.forward()
    start, end = state.clock.move(when, state.cost.of_transfer(array.nbytes))
    source = _from_host(state, name, array)
    state.writer.transfer(source, wrapper.value, copied=array.nbytes, lane=LINK, start=start, end=end)
    _arrived(state, source, array)
    wrapper.held.ready = end
    wrapper.reuploaded = _fetched_before(state, array)
    return state.handle(wrapper, name, "create", f"to_device, {layout}", end)


def _from_host(state: DeviceState, name: str, array: np.ndarray) -> int:
    storage = state.writer.storage(array.nbytes, origin="caller")
    return state.writer.value(f"{name} (host)", array.shape, str(array.dtype), storage)


def _arrived(state: DeviceState, source: int, array: np.ndarray) -> None:
    state.writer.free(state.writer.storage_of(source), "its bytes are on the device")
    state.host_bytes += array.nbytes


def _fetch(state: DeviceState, wrapper: Wrapper, name: str, array: np.ndarray) -> None:
    buffer, writer = wrapper.held, state.writer
    start, end = state.clock.move(buffer.ready, state.cost.of_transfer(array.nbytes))
    target = writer.value(f"{name} (host)", array.shape, str(array.dtype))
    writer.transfer(wrapper.value, target, copied=array.nbytes, lane=LINK, start=start, end=end)
    writer.free(writer.storage_of(target), "the caller has it")
    buffer.read_until = max(buffer.read_until, end)
    state.host_bytes += array.nbytes
    wrapper.used = state.submits


def wait(state: DeviceState, handle: Handle) -> None:
    """Wait until a tensor is written; a dead one causes a warning. Source: ``wait`` of tt-mlir's runtime does nothing
    if there is no event."""
    state.mine(handle, "wait")
    fate = state.fate(handle)
    if fate:
        state.warn("USE_AFTER_FREE", handle, f"is waited for, and {fate}: there is nothing to wait for")
    elif handle.wrapper.buffer is not None:
        state.clock.now = max(state.clock.now, handle.wrapper.buffer.ready)


def to_host(state: DeviceState, handle: Handle) -> np.ndarray:
    """A copy of a tensor on the host, when it is ready; the tensor stays on the device."""
    wrapper = state.need(handle, "to_host", host=True)
    found = np.array(wrapper.array)
    if wrapper.buffer is None:
        return found
    _fetch(state, wrapper, handle.name, found)
    state.mark("to_host", wrapper, "copied to the host; it stays on the device", nbytes=found.nbytes)
    if wrapper.origin.startswith("submit"):
        source = f"{handle.name!r} (#{handle.number})", caller_line()
        state.fetched = [*state.fetched[-_FETCHED:], (ref(found), _digest(found), source)]
    return found


def _digest(array: np.ndarray) -> bytes:
    """A digest of its contents; empty if many arrays share them: few bytes, or one value everywhere."""
    if array.nbytes < _TELLING or (array == array.reshape(-1)[0]).all():
        return b""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()


def _fetched_before(state: DeviceState, array: np.ndarray) -> tuple[str, str] | None:
    """The output of a submit, and the line that moved it to the host, whose bytes come back."""
    if not state.fetched:
        return None
    digest = _digest(array)
    for fetched, known, source in reversed(state.fetched):
        found = fetched()
        same = found is not None and array.size and np.shares_memory(found, array)
        if same or (digest and digest == known):
            return source
    return None


def to_layout(state: DeviceState, handle: Handle, layout: Layout, *, retain: bool | None = None) -> Handle:
    """A tensor in another layout; in its own, another handle of the same tensor. As landed, the source is deallocated
    without force unless it is retained, the result is retained like its source, and a tensor on the host goes to the
    device. Source: ``toLayout`` of tt-mlir's runtime, which has no call that only moves a tensor to the device."""
    wrapper = state.need(handle, "to_layout", host=state.contract == "landed")
    state.a_layout(layout, "to_layout")
    layout = layout.of(wrapper.array)
    if layout.memory == HOST:
        state.fail("to_layout", handle, "a layout on the host: call to_host")
    buffer = wrapper.buffer
    if buffer is None:
        result = to_device(state, handle, layout)
        result.wrapper.retain = wrapper.retain if retain is None else retain
        return result
    if layout == wrapper.layout:
        state.warn("NEEDLESS_CONVERSION", handle, f"has the layout {layout} already, and nothing is moved")
        made = state.wrap(buffer, state.model.alias(wrapper.tensor), wrapper.array, layout, handle.name)
        state.forward()
        state.writer.op("to_layout", [wrapper.value], [made.value], reads=[])
        result = state.handle(made, handle.name, "alias", f"to_layout of #{handle.number}: the same tensor")
    else:
        if wrapper.converted == layout:
            state.warn(
                "NEEDLESS_CONVERSION",
                handle,
                f"was converted from {layout} to {wrapper.layout} and back, and no program has read it in between",
                handle.nbytes,
            )
        made, end = convert(state, wrapper, layout, handle.name)
        result = state.handle(made, handle.name, "create", f"to_layout of #{handle.number}, {layout}", end)
    made.retain = wrapper.retain if retain is None else retain
    if state.contract == "landed" and not wrapper.retain:
        let_go(state, handle, False, f"to_layout of an un-retained tensor, into #{result.number}")
    return result


def convert(
    state: DeviceState, wrapper: Wrapper, layout: Layout, name: str, array: np.ndarray | None = None
) -> tuple[Wrapper, float]:
    """A copy in another layout, or of ``array``, its values in another shape, and when it is there."""
    source = wrapper.held
    values = wrapper.array if array is None else array
    made, when = state.new(converted(values, str(layout.dtype)), layout, name, state.clock.now)
    target = made.held
    made.converted = wrapper.layout
    state.forward()
    moved = dict.fromkeys(state.banks, 0)
    for buffer in (source, target):
        moved[buffer.memory] += buffer.extent
    how = state.queued(max(when, source.ready), state.cost.of_op(moved["dram"], moved["l1"], 0))
    source.read_until, target.ready = max(source.read_until, how["end"]), how["end"]
    state.writer.op("to_layout", [wrapper.value], [made.value], copied=made.array.nbytes, **how)
    return made, target.ready


def reshape(state: DeviceState, handle: Handle, shape: Sequence[int]) -> Handle:
    """The elements in another shape: a view if the last axis (of tiles: two axes) stays, else a copy. Raises
    `DeviceError` for another number of elements."""
    wrapper = state.need(handle, "reshape")
    try:
        array, wrong = wrapper.array.reshape(tuple(shape)), ""
    except (TypeError, ValueError) as error:
        wrong = str(error)
    if wrong:  # raised here, it does not keep these frames
        state.fail("shape", handle, wrong)
    if not zero_copy(wrapper.array.shape, array.shape, wrapper.layout.tiled):
        made, end = convert(state, wrapper, wrapper.layout, handle.name, array)
        return state.handle(made, handle.name, "create", f"reshape of #{handle.number}: copied", end)
    made = state.wrap(wrapper.held, state.model.view(wrapper.tensor), array, wrapper.layout, f"{handle.name} (view)")
    state.forward()
    state.writer.op("reshape", [wrapper.value], [made.value], reads=[])
    return state.handle(made, f"{handle.name} (view)", "view", f"reshape of #{handle.number}: a view of its buffer")


def host_tensor(state: DeviceState, array: Any, *, borrow: bool = False, name: str | None = None) -> Handle:
    """A tensor on the host: a copy of an array, or the caller's own memory."""
    state.open()
    if borrow:
        if not isinstance(array, np.ndarray):
            state.fail("borrowed memory", f"a {type(array).__name__}", "only an array can be borrowed")
        if not array.flags.c_contiguous:
            state.fail("borrowed memory", "an array", "it is not contiguous: copy it first")
        if not is_plain(array) or str(array.dtype) in _ALIASES:
            state.fail("borrowed memory", f"an array of {array.dtype}", "the runtime does not have this type")
        values = array
    else:
        values = np.asarray(array)
        if not is_plain(values):
            state.fail("owned memory", f"an array of {values.dtype}", "a device can only hold numbers")
        values = converted(values, _ALIASES.get(str(values.dtype), str(values.dtype)))
    state.versions += 1
    wrapper = Wrapper(state.versions, values, Layout(HOST).of(values))
    return state.named(wrapper, name or assigned_name() or f"t{state.given}")


def memcpy(state: DeviceState, dst: Any, src: Any) -> None:
    """Copy bytes from a tensor or an array into another one; at least one of them is on the host. The version of the
    wrapper stays, as in the runtime."""
    both = [state.need(one, "memcpy", host=True) if isinstance(one, Handle) else None for one in (dst, src)]
    arrays = [np.asarray(one) if wrapper is None else wrapper.array for one, wrapper in zip((dst, src), both)]
    named: Any = next((one for one in (dst, src) if isinstance(one, Handle)), "memcpy")
    there, here = (wrapper is not None and wrapper.buffer is not None for wrapper in both)
    if there and here:
        state.fail("memcpy from device to device", named, "the runtime needs a pointer to host memory: use to_layout")
    if arrays[0].nbytes != arrays[1].nbytes:
        sizes_given = f"{arrays[0].nbytes:,} B and {arrays[1].nbytes:,} B"
        state.fail("equal sizes", named, f"memcpy needs equal sizes, not {sizes_given}")
    if not isinstance(dst, (Handle, np.ndarray)) or not arrays[0].flags.writeable:
        state.fail("memcpy into memory", named, "the target must be a writable array")
    raw = np.frombuffer(np.ascontiguousarray(arrays[1]).tobytes(), arrays[0].dtype)
    arrays[0][...] = raw.reshape(arrays[0].shape)
    if there:
        _put_there(state, named.wrapper, arrays[1], named.name)
    elif here:
        _fetch(state, src.wrapper, src.name, arrays[0])


def _put_there(state: DeviceState, wrapper: Wrapper, array: np.ndarray, name: str) -> None:
    buffer = wrapper.held
    state.forward()
    free = max(buffer.ready, buffer.read_until)
    start, end = state.clock.move(free, state.cost.of_transfer(array.nbytes))
    buffer.ready, buffer.contents = end, buffer.contents + 1
    source, row = _from_host(state, name, array), state.value(buffer, wrapper.array, name)
    how: dict[str, Any] = {"copied": array.nbytes, "lane": LINK, "start": start, "end": end}
    state.writer.op("memcpy", [source, wrapper.value], [row], reads=[source], writes=[row], **how)
    _arrived(state, source, array)
    state.mark("memcpy", wrapper, f"new contents, version {wrapper.version} as before", nbytes=array.nbytes)


class Move(NamedTuple):
    """A buffer that moves to another memory: its block there, the queue, start and end."""

    buffer: Buffer
    room: Room
    queue: int
    start: float
    end: float


def reserve(state: DeviceState, handle: Handle, memory: str) -> Move:
    """Find room and time for a buffer in another memory; only banks and clock change, which can be set back. Raises
    `DeviceError`: if there is no room."""
    buffer = handle.wrapper.held
    page = sizes(handle.wrapper.array.shape, handle.wrapper.layout)[1]
    room = state.room(memory, buffer.extent, page, state.clock.now, f"{handle.name!r}")
    took = state.cost.of_op(buffer.extent, buffer.extent, 0)
    queue, start, end = state.clock.run(max(room.when, buffer.ready), took)
    state.banks[buffer.memory].free(buffer.number, max(buffer.read_until, end), state.clock.now)
    return Move(buffer, room, queue, start, end)


def carry_out(state: DeviceState, handle: Handle, move: Move, why: str) -> None:
    """Move the buffer of a tensor to its reserved room; the tensor and its aliases follow."""
    first, buffer = handle.wrapper, move.buffer
    old_number, old_storage, old_value = buffer.number, buffer.storage, first.value
    root, raw = buffer.array.__array_interface__["data"][0], buffer.array.ravel(order="K").copy()
    del state.buffers[old_number]
    buffer.number, buffer.memory, buffer.storage = move.room.number, move.room.memory, state.storage(move.room)
    state.buffers[buffer.number], state.by_buffer[buffer.number] = buffer, state.by_buffer.pop(old_number, [])
    buffer.array, buffer.ready = raw, move.end
    for other in state.by_buffer[buffer.number]:
        array = other.array
        offset = array.__array_interface__["data"][0] - root if array.size else 0
        other.array = np.ndarray(array.shape, array.dtype, raw, offset, array.strides)
        other.layout = replace(other.layout, memory=buffer.memory, sharding=None)
        other.value, other.converted = state.value(buffer, other.array, other.name), None
    lane, size = f"queue {move.queue}", first.array.nbytes
    names = [old_value], [first.value]
    state.writer.op("to_layout", *names, copied=size, lane=lane, start=move.start, end=move.end)
    state.writer.free(old_storage, why)
    state.allocated_bytes += buffer.extent
    state.freed_bytes += buffer.extent
    state.mark("spill", first, why, time=move.end, nbytes=buffer.extent)
