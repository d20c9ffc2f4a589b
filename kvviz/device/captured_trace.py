"""Captured traces: a program with fixed addresses, and slots for inputs and outputs, that is replayed unchanged.

Source: ``TraceCache`` of tt-mlir: persistent slots, a generation, slots that are updated by comparing versions; a
capture invalidates older traces, which are captured again on demand (#7608, #7618). Tensors that the user puts, after a
capture, into memory that the trace writes are overwritten (open there; model behaviour here: such bytes become 0xFF).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kvviz.device.device_program import DeviceProgram, compute
from kvviz.device.device_state import DeviceState
from kvviz.device.handles import Handle, Wrapper
from kvviz.device.releases import let_go
from kvviz.device.submission import checked, submit
from kvviz.device.transfers import convert


@dataclass(eq=False)
class Captured:
    """A captured trace; `Device.capture` makes it.

    Attributes
    ----------
    program : DeviceProgram
    inputs, outputs : dict of str to Handle
        Its slots, which are retained.
    generation : int
        It is replayed as it is only while no other trace was captured after it.
    writes : list of (str, int, int)
        Memory, address and bytes of what it writes besides its slots: its intermediates.
    captures, replays : int
    """

    program: DeviceProgram
    inputs: dict[str, Handle] = field(default_factory=dict)
    outputs: dict[str, Handle] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    writes: list[tuple[str, int, int]] = field(default_factory=list)
    took: float = 0.0
    captures: int = 0
    replays: int = 0


def capture(state: DeviceState, captured: Captured, inputs: Mapping[str, Handle]) -> Captured:
    program = captured.program
    wrappers = checked(state, program, inputs)
    release_slots(state, captured)
    slots: dict[str, Handle] = {}
    try:
        for name, wrapper in wrappers.items():
            made, end = convert(state, wrapper, wrapper.layout, f"{name} (slot)")
            made.converted, made.retain = None, True
            slots[name] = state.handle(made, f"{name} (slot)", "create", f"slot of a trace of {program.name!r}", end)
        outputs = submit(state, program, slots)
    except BaseException:
        captured.inputs = slots
        release_slots(state, captured)
        raise
    for handle in outputs.values():
        handle.wrapper.retain = True
        state.clock.now = max(state.clock.now, handle.wrapper.held.ready)
    state.generation += 1
    placed = state.placed
    assert placed is not None
    captured.inputs, captured.outputs, captured.generation = slots, outputs, state.generation
    captured.versions = {name: wrapper.version for name, wrapper in wrappers.items()}
    died = [placed.blocks[number] for number in placed.died if number in placed.blocks]
    captured.writes = [(room.memory, room.address, room.extent) for room in died]
    captured.took = placed.times[-1][1] - placed.times[0][0] if placed.times else 0.0
    captured.captures += 1
    written = ", ".join(f"{memory} {at:#x}-{at + size:#x}" for memory, at, size in captured.writes)
    text = f"{program.name!r}, generation {captured.generation}; besides its slots it writes {written or 'nothing'}"
    state.mark("trace captured", None, text)
    return captured


def replay(
    state: DeviceState, captured: Captured, inputs: Mapping[str, Handle], *, check: bool = True
) -> dict[str, Handle]:
    """Run a captured program again; returns the slots of its outputs, which every replay overwrites. ``check``: capture
    it again if another one was captured after it. Without, it overwrites whatever lies now where its intermediates
    lay."""
    wrappers = checked(state, captured.program, inputs)
    if check and captured.generation != state.generation:
        text = f"{captured.program.name!r}: generation {captured.generation} is past, {state.generation} is captured"
        state.mark("trace invalid", None, text)
        return capture(state, captured, inputs).outputs
    for name, wrapper in wrappers.items():
        if captured.versions[name] != wrapper.version:
            _fill(state, captured.inputs[name], wrapper)
            captured.versions[name] = wrapper.version
    slots = {name: handle.wrapper for name, handle in captured.inputs.items()}
    run = compute(captured.program.graph, {name: slot.array for name, slot in slots.items()}, ())
    state.forward(f"replay · {captured.program.name}")
    hit = _hit(state, captured)
    writes = []
    for name, handle in captured.outputs.items():
        handle.wrapper.array[...] = run.results[name].array
        writes.append(handle.wrapper)
    touched = [w.buffer for w in (*slots.values(), *writes, *hit) if w.buffer is not None]
    ready = max([max(buffer.ready, buffer.read_until) for buffer in touched])
    how = state.queued(ready, captured.took)
    for buffer in touched:
        buffer.ready, buffer.contents = how["end"], buffer.contents + 1
    values = [state.value(wrapper.held, wrapper.array, wrapper.name) for wrapper in (*writes, *hit)]
    read = [slot.value for slot in slots.values()]
    state.writer.op("replay", read, values, name=captured.program.name, writes=values, **how)
    captured.replays += 1
    for wrapper in hit:
        text = f"lies where the captured trace of {captured.program.name!r} writes, and was overwritten by its replay"
        state.warn("TRACE_OVERWRITES", state.handle_of(wrapper), text, wrapper.array.nbytes)
    return captured.outputs


def _hit(state: DeviceState, captured: Captured) -> list[Wrapper]:
    """Tensors in memory that the trace writes besides its slots; their bytes there are lost."""
    found = []
    for buffer in list(state.buffers.values()):
        wrappers = state.of_buffer(buffer)
        for memory, address, size in captured.writes:
            if memory != buffer.memory or not wrappers:
                continue
            own = next((b for b in state.banks[memory].blocks if b.owner == buffer.number), None)
            if own is None or address >= own.address + own.size or own.address >= address + size:
                continue
            # The share of the buffer that lies there, in all banks together.
            raw = buffer.array.reshape(-1).view(np.uint8)
            first, last = max(address - own.address, 0), min(address - own.address + size, own.size)
            raw[first * raw.size // own.size : -(-last * raw.size // own.size)] = 0xFF
            if wrappers[0] not in found:
                found.append(wrappers[0])
    return found


def _fill(state: DeviceState, slot: Handle, source: Wrapper) -> None:
    target, given = slot.wrapper.held, source.held
    state.forward()
    slot.wrapper.array[...] = source.array
    ready = max(target.ready, target.read_until, given.ready)
    queue, start, end = state.clock.run(ready, state.cost.of_op(target.extent + given.extent, 0, 0))
    target.ready = end
    target.contents += 1
    given.read_until = max(given.read_until, end)
    source.used = state.submits + 1
    value = state.value(target, slot.wrapper.array, slot.name)
    read = [source.value]
    state.writer.op(
        "copy", read, [value], writes=[value], copied=slot.nbytes, lane=f"queue {queue}", start=start, end=end
    )


def release_slots(state: DeviceState, captured: Captured) -> None:
    """Free the slots of a captured trace, before others take their place, or for good."""
    for handle in (*captured.inputs.values(), *captured.outputs.values()):
        handle.wrapper.retain = False
        if handle.is_allocated and handle.wrapper.buffer is not None and handle.wrapper.buffer.alive:
            let_go(state, handle, False, f"a trace of {captured.program.name!r} ends")
    captured.inputs, captured.outputs = {}, {}
