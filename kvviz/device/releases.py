"""Releasing tensors: deallocation and its brakes, handles that go out of scope, the end of the device.

The brakes, in order: *retain*, of a wrapper; use counts, without force; force, which beats counts but not the retain of
that wrapper. A forced free by another wrapper ignores retain.
"""

from __future__ import annotations

from kvviz.device.device_state import DeviceState
from kvviz.device.handles import Handle, Outcome, Wrapper, caller_line


def deallocate(state: DeviceState, handle: Handle, force: bool | None = None) -> None:
    """Free a tensor: nothing happens if it is retained; without force, only what the ownership model allows. ``force``:
    by default as the contract says: not as landed, and as proposed it is forced."""
    force = state.contract == "proposed" if force is None else force
    wrapper = state.mine(handle, "deallocate")
    buffer = wrapper.buffer
    if buffer is None:
        # Source: tt-mlir #3488: the deallocation of host memory does nothing.
        return
    if handle.released or not handle.is_allocated or not buffer.alive:
        cause = f"is deallocated again, but it is dead: {wrapper.fate or 'released'}"
        state.warn("DOUBLE_FREE", handle, cause)
        return
    if wrapper.retain:
        why = f"retained: deallocate{'(force=True)' * force} does nothing"
        state.writer.free(buffer.storage, why, done=False)
        state.mark("free refused", wrapper, why)
        return
    others = [other for other in state.of_buffer(buffer) if other is not wrapper and state.counts(other)]
    names = ", ".join(f"{other.name!r} (#{other.first})" for other in others)
    if force and others:
        text = f"is freed by force, but the same buffer is that of {names}"
        state.warn("FORCED_FREE_SHARED", handle, text, buffer.extent)
    outcome = let_go(state, handle, force, f"deallocate{'(force=True)' * force}")
    if others and not outcome.freed:
        text = f"is deallocated without force, but {buffer.extent:,} B of {buffer.memory} stay"
        state.warn("FREE_DEFERRED", handle, f"{text}, as {outcome.why} ({names})", buffer.extent)
    late = state.submits - wrapper.used
    if outcome.freed and late > 0:
        cause = f"was last used by submit {wrapper.used}, and kept {buffer.extent:,} B through {late} more"
        state.warn("LATE_FREE", handle, cause, buffer.extent)


def let_go(state: DeviceState, handle: Handle, force: bool, why: str) -> Outcome:
    """Let the ownership model free a tensor, and record the result."""
    wrapper = handle.wrapper
    outcome = state.model.deallocate(wrapper.tensor, force)
    note(state, wrapper, outcome, why)
    return outcome


def note(state: DeviceState, wrapper: Wrapper, outcome: Outcome, why: str) -> None:
    buffer = wrapper.held
    if outcome.dropped or outcome.freed:
        wrapper.fate = wrapper.fate or f"{why} at {caller_line()}"
    if outcome.freed:
        state.gone(buffer, state.free_at(buffer), why)
    elif buffer.alive:
        kind = "free deferred" if outcome.dropped else "free refused"
        state.writer.free(buffer.storage, f"{why}: {outcome.why}", done=False)
        state.mark(kind, wrapper, f"{why}: {outcome.why}")


def release(state: DeviceState, handle: Handle) -> None:
    """Let a handle go out of scope, as a C++ tensor does; with the last one the tensor is deallocated unforced. As
    landed, this also happens to a handle that Python frees: after ``del``, or when its variable is assigned another
    one. As proposed, a tensor whose handles are all gone stays, and is a leak."""
    wrapper = state.mine(handle, "release")
    if handle.released or not wrapper.handles:
        state.warn("DOUBLE_FREE", handle, "is released again")
        return
    handle.released = True
    handle.ending.detach()
    out_of_scope(state, wrapper)


def dropped(state: DeviceState, wrapper: Wrapper) -> None:
    """Handle a dropped handle: as landed, a shared pointer ends with it; as proposed, only calls free."""
    buffer = wrapper.buffer
    if state.contract == "landed" and not state.closed and buffer is not None and buffer.alive:
        out_of_scope(state, wrapper)
    else:
        wrapper.handles -= 1


def out_of_scope(state: DeviceState, wrapper: Wrapper) -> None:
    wrapper.handles -= 1
    state.mark("released", wrapper, f"a handle goes out of scope, {wrapper.handles} of its wrapper left")
    if wrapper.handles or wrapper.ref is None or wrapper.buffer is None:
        return
    outcome = state.model.drop(wrapper.ref)
    if outcome.freed:  # else others use the buffer, as they may
        note(state, wrapper, outcome, "the last handle went out of scope")
    state.evict(wrapper)


def close(state: DeviceState) -> None:
    """End the use of the device; whatever is still allocated is a leak."""
    if state.closed:
        return
    state.clock.now = max([state.clock.now, *state.clock.queues])
    for number in sorted(state.buffers):
        buffer = state.buffers[number]
        owners = state.of_buffer(buffer) or state.by_buffer.get(number, [])
        if not owners:
            continue
        handle = state.handle_of(owners[0])
        kept = " and is retained" if handle.retain else ""
        cause = f"was never freed{kept}: {buffer.extent:,} B of {buffer.memory} since {handle.line}"
        state.warn("LEAK", handle, cause, buffer.extent, handle.line)
    state.closed = True
