"""Const-eval: what follows from parameters alone is worked out once, and kept for as long as their versions stay.

Source: ``LoadCachedOp`` and ``GlobalTensorCache`` of tt-mlir: the key is the function and versions of its inputs; a
miss runs the sub-program and retains what it made; entries end with the wrappers of their inputs. A version changes
with a new wrapper only. So bytes that are copied into a wrapper leave it as it is, and the result is stale
(model behaviour: it follows from the code, and was not run on hardware).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvviz.device.runtime.device_program import DeviceProgram
from kvviz.device.runtime.device_state import DeviceState
from kvviz.device.runtime.handles import Handle, Wrapper
from kvviz.device.runtime.releases import release
from kvviz.device.runtime.submission import checked, submit
from kvviz.errors import KvvizError
from kvviz.graph.model import Node, Value


@dataclass(slots=True)
class _Entry:
    """Results by name, and how often the contents of the inputs had changed when they were made."""

    handles: dict[str, Handle]
    contents: tuple[int, ...]


class ConstEvalCache:
    """The results that a device keeps.

    Attributes
    ----------
    hits, misses : int
    """

    def __init__(self, state: DeviceState) -> None:
        self.state = state
        self.hits = self.misses = 0
        self._entries: dict[tuple[Any, ...], _Entry] = {}
        state.evict = self.evict

    def submit(self, program: DeviceProgram, inputs: Mapping[str, Handle]) -> dict[str, Handle]:
        """A submit of a program of two parts: what is kept, and the rest."""
        state = self.state
        checked(state, program, inputs)
        assert program.parts is not None
        head, tail = program.parts
        wrappers = [inputs[name].wrapper for name in head.inputs]
        key = program.number, tuple(wrapper.version for wrapper in wrappers)
        contents = tuple(w.buffer.contents for w in wrappers if w.buffer is not None)
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            made = submit(state, head, {name: inputs[name] for name in head.inputs})
            for name, handle in made.items():
                handle.wrapper.retain = True
                state.mark("const-eval miss", handle.wrapper, f"{name!r} is computed and kept, versions {key[1]}")
            entry = self._entries[key] = _Entry(made, contents)
            for wrapper in wrappers:
                wrapper.evictions.append(key)
        else:
            self.hits += 1
            for name, handle in entry.handles.items():
                state.mark("const-eval hit", handle.wrapper, f"{name!r} as it was computed for versions {key[1]}")
            for name, old, new in zip(head.inputs, entry.contents, contents):
                if old != new:
                    text = (
                        f"got new contents after {', '.join(map(repr, entry.handles))} was computed from it, but "
                        f"kept version {inputs[name].version}, so {program.name!r} still uses the old result"
                    )
                    state.warn("STALE_CONST_EVAL", inputs[name], text)
        given = {**inputs, **entry.handles}
        return submit(state, tail, {name: given[name] for name in tail.inputs})

    def evict(self, wrapper: Wrapper) -> None:
        """Drop what was worked out from a wrapper that is gone."""
        keys, wrapper.evictions = wrapper.evictions, []
        for key in keys:
            self._drop(key, "its input is gone")

    def clear(self) -> None:
        """Drop everything."""
        for key in list(self._entries):
            self._drop(key, "the device is closed")

    def _drop(self, key: tuple[Any, ...], why: str) -> None:
        entry = self._entries.pop(key, None)
        for handle in () if entry is None else entry.handles.values():
            self.state.mark("const-eval evicted", handle.wrapper, why)
            handle.wrapper.retain = False
            if not handle.released and handle.is_allocated:
                release(self.state, handle)


def split(program: DeviceProgram, names: Sequence[str]) -> tuple[DeviceProgram, DeviceProgram] | None:
    """The part of a program that follows from some inputs and its weights alone, and the rest; None: nothing does.

    Raises `KvvizError`: for what is no input.
    """
    graph = program.graph
    for name in names:
        if name not in program.inputs:
            raise KvvizError(f"program {program.name!r} has no input {name!r} to evaluate from")
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
    wanted = {name for node in rest for name in (*node.inputs, *node.captures)} | program.results.keys()
    border = tuple(graph.value_info.get(name, Value(name)) for name in sorted(done & wanted))
    mine = {name for node in first for name in (*node.inputs, *node.captures)}
    theirs = {name for node in rest for name in (*node.inputs, *node.captures)} | program.results.keys()
    inputs = [value for value in graph.inputs if value.name in mine]
    # What nothing reads goes with the rest, and dies with it as usual.
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
