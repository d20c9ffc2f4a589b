"""Submit: checks, the contract's actions before a program, its run, and a rollback if that fails; and const-eval.

Const-eval computes once what follows from parameters alone, and keeps it as long as their versions stay. Source:
``LoadCachedOp`` and ``GlobalTensorCache`` of tt-mlir: the key is the function and versions of its inputs; a miss runs
the sub-program and retains its results; entries end with the wrappers of their inputs. Only a new wrapper has a new
version. So bytes that are copied into a wrapper do not change it, and the result is stale (model behaviour: it follows
from the code, and was not run on hardware).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvviz.device.device_layout import Layout
from kvviz.device.device_program import DeviceProgram, compute, place
from kvviz.device.device_state import DeviceState
from kvviz.device.handles import Handle, Kept, Wrapper
from kvviz.device.releases import release
from kvviz.device.submit_outcome import Work, commit
from kvviz.device.transfers import Move, carry_out, convert, reserve
from kvviz.errors import KvvizError
from kvviz.graph.model import Node, Value


def submit(state: DeviceState, program: Any, inputs: Mapping[str, Handle]) -> dict[str, Handle]:
    wrappers = checked(state, program, inputs)
    landed = state.contract == "landed"
    returned = {name for name in program.results if name in inputs}
    # As landed, the compiled program deallocates its arguments after their last use, except returned ones.
    dying = [name for name, w in wrappers.items() if landed and not w.retain and name not in returned | program.kept]
    kept = {name: _kept(state, program, wrappers, name, returned) for name in wrappers}
    donated = {name for name, why in kept.items() if why is None}
    wanted = {name: program.layout(name).of(wrapper.array) for name, wrapper in wrappers.items()}
    # A run overwrites copies: if it fails or is stopped, the tensors are unchanged.
    feeds = {name: w.array.astype(np.dtype(wanted[name].dtype), copy=name in donated) for name, w in wrappers.items()}
    results = tuple(name for name in program.results if name not in returned)
    try:
        run, wrong = compute(program.graph, feeds, donated, results if returned else None), ""
    except KvvizError as error:
        wrong = str(error)
    if wrong:  # raised here, it does not keep these frames
        state.fail("the program runs", f"submit of {program.name!r}", wrong)
    odd = [name for name, wrapper in wrappers.items() if wrapper.layout != wanted[name]]
    work = Work(program, inputs, wrappers, run, dying, donated, returned, odd, kept)
    clock, blocks = state.clock.state(), {name: list(banks.blocks) for name, banks in state.banks.items()}
    made = []
    try:
        moves = [] if landed else _spilled(state, wrappers)
        for name in odd:
            wrappers[name] = _converted(state, program, name, inputs[name], wanted[name])
            made.append(wrappers[name])
            clock = state.clock.state()  # the log has the conversion, which took its time
        return _begin(state, work, moves)
    except BaseException:
        state.clock.restore(clock)
        for wrapper in made:
            _drop(state, wrapper, f"submit of {program.name!r} failed")
        for name, before in blocks.items():
            state.banks[name].blocks = before
        raise


def _begin(state: DeviceState, work: Work, moves: Sequence[tuple[Handle, Move]]) -> dict[str, Handle]:
    """Give everything a place and a time, and record it if there is room."""
    run, program = work.run, work.program
    work.place_constants(state)
    memories = dict.fromkeys(work.constants, "dram")
    for number, wrapper in work.given.items():
        memories[number] = wrapper.held.memory
    outputs = {
        result.storage: (program.output_layout(name).of(result.array), result.array.shape)
        for name, result in reversed(run.results.items())  # of several in one storage the first one has it
        if result.storage not in memories
    }
    buffers = work.buffers()
    ready = [buffer.ready for buffer in buffers]
    ready += [work.buffer(name).read_until for name in work.donated]
    queue = state.clock.pick(max(ready, default=0.0))
    start = state.clock.begin(queue, max(ready, default=0.0))
    owners = {run.given[name]: work.buffer(name).number for name in work.donated}
    placed = place(state, run, memories, outputs, start, owners)
    work.place_copies(state, placed, start)
    for handle, move in moves:
        text = f"goes from L1 to DRAM before submit {state.submits + 1}, because {program.name!r} does not read it"
        carry_out(state, handle, move, text)
        state.warn("L1_SPILL", handle, text, move.buffer.extent)
    return commit(state, work, placed, queue, start)


def in_order(state: DeviceState, program: DeviceProgram, handles: Any) -> dict[str, Handle]:
    what = f"submit of {program.name!r}"
    if isinstance(handles, Handle) or not isinstance(handles, Sequence):
        state.fail("inputs of the program", what, f"it takes a list of handles, not a {type(handles).__name__}")
    if len(handles) != len(program.inputs):
        wanted = f"{len(program.inputs)} handle{'s' * (len(program.inputs) != 1)} ({', '.join(program.inputs)})"
        state.fail("inputs of the program", what, f"it takes {wanted}, not {len(handles)}")
    return dict(zip(program.inputs, handles))


def checked(state: DeviceState, program: Any, inputs: Mapping[str, Handle]) -> dict[str, Wrapper]:
    """The wrappers of the inputs, if the program accepts them."""
    state.open()
    if not isinstance(program, DeviceProgram):
        state.fail("a program", f"submit of {type(program).__name__}", "pass a program that device.program returned")
    what = f"submit of {program.name!r}"
    if program.device is not state:
        state.fail("foreign program", what, "it is a program of another device: create it here with device.program")
    if not isinstance(inputs, Mapping):
        state.fail("inputs of the program", what, f"it takes handles by name, not a {type(inputs).__name__}")
    for name in inputs:
        if name not in program.inputs:
            state.fail("inputs of the program", f"input {name!r}", f"{what}: it takes {', '.join(program.inputs)}")
    missing = [name for name in program.inputs if name not in inputs]
    if missing:
        state.fail("inputs of the program", what, f"it also needs {', '.join(map(repr, missing))}")
    wrappers = {name: state.need(handle, f"{what} as {name!r}") for name, handle in inputs.items()}
    for name, wrapper in wrappers.items():
        value, given = program.inputs[name], wrapper.array.shape
        if value.shape is not None and (
            len(value.shape) != len(given)
            or any(isinstance(dim, int) and dim != n for dim, n in zip(value.shape, given))
        ):
            wanted = ", ".join("?" if dim is None else str(dim) for dim in value.shape)
            state.fail("shape", inputs[name], f"{what}: input {name!r} has shape {list(given)}, not [{wanted}]")
        layout = program.layout(name).of(wrapper.array)
        if state.contract == "landed" and wrapper.layout != layout:
            state.fail(
                "layout",
                inputs[name],
                f"{what}: input {name!r} is {wrapper.layout}, and the program needs {layout}; with the contract "
                f"'landed' the caller converts: device.to_layout(handle, program.layout({name!r}))",
            )
    return wrappers


def _kept(
    state: DeviceState, program: DeviceProgram, wrappers: Mapping[str, Wrapper], name: str, returned: Collection[str]
) -> Kept | None:
    """Why a run must not have an input's memory; None if it dies, is not shared, and results have its layout."""
    wrapper = wrappers[name]
    buffer = wrapper.held
    if state.contract != "landed":
        return Kept.PROPOSED
    if name in returned:
        return Kept.RETURNED
    if name in program.kept:
        return Kept.PARAMETER
    if wrapper.retain:
        return Kept.RETAINED
    if sum(other.buffer is buffer for other in wrappers.values()) > 1 or state.model.users(wrapper.tensor) != (1, 1):
        return Kept.SHARED
    if wrapper.array.nbytes != buffer.array.nbytes or not wrapper.array.flags.c_contiguous:
        return Kept.PART
    kinds = {(layout.memory, layout.tiled) for layout in map(program.output_layout, program.results)}
    return None if kinds == {(wrapper.layout.memory, wrapper.layout.tiled)} else Kept.ELSEWHERE


def _converted(state: DeviceState, program: DeviceProgram, name: str, handle: Handle, layout: Layout) -> Wrapper:
    """As proposed, submit converts inputs to the wanted layout; the converted tensor lives as long as the program
    runs."""
    wrapper = handle.wrapper
    known = program.number, name, wrapper.version
    if known in state.conversions:
        text = f"is converted from {wrapper.layout} to {layout} for {program.name!r} once more"
        state.warn("NEEDLESS_CONVERSION", handle, text, handle.nbytes)
    state.conversions.add(known)
    made, _ = convert(state, wrapper, layout, f"{handle.name} ({layout.memory})")
    state.mark("convert", made, f"submit {state.submits + 1} converts {handle.name!r} to {layout}")
    return made


def _spilled(state: DeviceState, wrappers: Mapping[str, Wrapper]) -> list[tuple[Handle, Move]]:
    """As proposed, tensors in L1 that the program does not need move to DRAM before it; returns their new places."""
    needed = {id(wrapper.buffer) for wrapper in wrappers.values()}
    found = []
    for buffer in [state.buffers[number] for number in sorted(state.buffers)]:
        owners = state.of_buffer(buffer)
        if buffer.memory == "l1" and id(buffer) not in needed and owners:
            handle = state.handle_of(owners[0])
            found.append((handle, reserve(state, handle, "dram")))
    return found


def _drop(state: DeviceState, wrapper: Wrapper, why: str) -> None:
    state.model.deallocate(wrapper.tensor)
    state.gone(wrapper.held, state.free_at(wrapper.held), why)


class ConstEvalCache:
    """The results that a device keeps, and the numbers of ``hits`` and ``misses``."""

    def __init__(self, state: DeviceState) -> None:
        self.state = state
        self.hits = self.misses = 0
        # Results by name, and how often the contents of the inputs had changed when they were made.
        self._entries: dict[tuple[Any, ...], tuple[dict[str, Handle], tuple[int, ...]]] = {}
        state.evict = self.evict

    def submit(self, program: DeviceProgram, inputs: Mapping[str, Handle]) -> dict[str, Handle]:
        """Submit a program of two parts: the kept results, and the rest."""
        state = self.state
        checked(state, program, inputs)
        assert program.parts is not None
        head, tail = program.parts
        wrappers = [inputs[name].wrapper for name in head.inputs]
        key = program.number, tuple(wrapper.version for wrapper in wrappers)
        contents = tuple(w.buffer.contents for w in wrappers if w.buffer is not None)
        handles, then = self._entries.get(key, ({}, ()))
        if key not in self._entries:
            self.misses += 1
            handles = submit(state, head, {name: inputs[name] for name in head.inputs})
            for name, handle in handles.items():
                handle.wrapper.retain = True
                state.mark("const-eval miss", handle.wrapper, f"{name!r} is computed and kept, versions {key[1]}")
            self._entries[key] = handles, contents
            for wrapper in wrappers:
                wrapper.evictions.append(key)
        else:
            self.hits += 1
            for name, handle in handles.items():
                state.mark("const-eval hit", handle.wrapper, f"{name!r} as it was computed for versions {key[1]}")
            for name, old, new in zip(head.inputs, then, contents):
                if old != new:
                    text = (
                        f"got new contents after {', '.join(map(repr, handles))} was computed from it, but "
                        f"kept version {inputs[name].version}, so {program.name!r} still uses the old result"
                    )
                    state.warn("STALE_CONST_EVAL", inputs[name], text)
        given = {**inputs, **handles}
        return submit(state, tail, {name: given[name] for name in tail.inputs})

    def evict(self, wrapper: Wrapper) -> None:
        keys, wrapper.evictions = wrapper.evictions, []
        for key in keys:
            self._drop(key, "its input is gone")

    def clear(self) -> None:
        for key in list(self._entries):
            self._drop(key, "the device is closed")

    def _drop(self, key: tuple[Any, ...], why: str) -> None:
        handles, _ = self._entries.pop(key, ({}, ()))
        for handle in handles.values():
            self.state.mark("const-eval evicted", handle.wrapper, why)
            handle.wrapper.retain = False
            if not handle.released and handle.is_allocated:
                release(self.state, handle)


def split(program: DeviceProgram, names: Sequence[str]) -> tuple[DeviceProgram, DeviceProgram] | None:
    """The part of a program that follows from some inputs and its weights alone, and the rest; None if nothing does."""
    graph = program.graph
    known, from_inputs = {*names, *graph.weights, ""}, set(names)
    first = []
    for node in graph.nodes:
        reads = (*node.inputs, *node.captures)
        if known.issuperset(reads) and from_inputs.intersection(reads):
            first.append(node)
            known.update(node.outputs)
            from_inputs.update(node.outputs)
    if not first:
        return None
    done = {name for node in first for name in node.outputs if name}
    rest = [node for node in graph.nodes if node not in first]
    mine, theirs = ({name for node in part for name in (*node.inputs, *node.captures)} for part in (first, rest))
    theirs |= program.results.keys()
    border = tuple(graph.value_info.get(name, Value(name)) for name in sorted(done & theirs))
    inputs = [value for value in graph.inputs if value.name in mine]
    # Unread values go with the rest, and die with it as usual.
    others = [value for value in graph.inputs if value.name in theirs or value.name not in mine]
    head = _part(program, f"{program.name} (const-eval)", first, inputs, border, [value.name for value in inputs])
    kept = [*names, *(value.name for value in border)]
    return head, _part(program, program.name, rest, [*others, *border], graph.outputs, kept)


def _part(
    program: DeviceProgram,
    name: str,
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    kept: Sequence[str],
) -> DeviceProgram:
    read = {one for node in nodes for one in (*node.inputs, *node.captures)} | {value.name for value in outputs}
    weights = {one: value for one, value in program.graph.weights.items() if one in read}
    part = replace(
        program.graph, name=name, nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs), weights=weights
    )
    layouts = {value.name: program.layout(value.name) for value in inputs if value.name in program.inputs}
    results = {value.name: program.output_layout(value.name) for value in outputs if value.name in program.results}
    named = [one for one in kept if one in {value.name for value in inputs}]
    return DeviceProgram(part, program.number, name, layouts, results, named)
