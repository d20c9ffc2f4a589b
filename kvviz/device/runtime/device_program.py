"""A program for a device: an ONNX graph, and in which layouts it wants its inputs and leaves its outputs."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

from kvviz.device.device_layout import Layout
from kvviz.errors import DeviceError
from kvviz.graph.model import Graph, Value


class DeviceProgram:
    """See `Device.program`, which makes it.

    Attributes
    ----------
    graph : Graph
    name : str
    number : int
    device : Device
        Which runs it, and has its weights.
    kept : frozenset of str
        Parameters: inputs that it never deallocates. Source: ``TTNNAdjustDeallocs`` of tt-mlir.
    parts : (DeviceProgram, DeviceProgram) or None
        Where some of it is evaluated once: that part, and the rest.
    constants : dict of int to int
        Storages of its weights in the log, by their numbers in a run of the engine; filled by the first submit.
    """

    def __init__(
        self,
        graph: Graph,
        number: int,
        name: str,
        layouts: Mapping[str, Layout],
        outputs: Mapping[str, Layout],
        kept: Sequence[str] = (),
    ) -> None:
        self.graph = graph
        self.number = number
        self.name = name
        self.inputs = {value.name: value for value in graph.inputs}
        self.results = {value.name: value for value in graph.outputs}
        for what, named, known in (
            ("an input", (*layouts, *kept), self.inputs),
            ("an output", outputs, self.results),
        ):
            for unknown in (one for one in named if one not in known):
                raise DeviceError(f"program {name!r} has no {what[3:]} {unknown!r}; it has {', '.join(known)}")
        kinds = [v for v in (*graph.inputs, *graph.outputs) if v.kind != "tensor"]
        if kinds:
            raise DeviceError(f"program {name!r}: {kinds[0].name!r} is a {kinds[0].kind}; a device takes tensors")
        self._layouts = {one: _typed(layouts.get(one, Layout()), value) for one, value in self.inputs.items()}
        self._outputs = {one: outputs.get(one, Layout()) for one in self.results}
        self.kept = frozenset(kept)
        self.parts: tuple[DeviceProgram, DeviceProgram] | None = None
        self.device: Any = None
        self.constants: dict[int, int] = {}
        self.constant_bytes = 0

    def layout(self, name: str) -> Layout:
        """What it wants of an input.

        Raises
        ------
        DeviceError
            If it has no such input.
        """
        if name not in self._layouts:
            raise DeviceError(f"program {self.name!r} has no input {name!r}; it has {', '.join(self._layouts)}")
        return self._layouts[name]

    def output_layout(self, name: str) -> Layout:
        """How it leaves an output."""
        return self._outputs[name]

    def __repr__(self) -> str:
        return f"<DeviceProgram {self.name!r}: {len(self.graph.nodes)} nodes, {len(self.inputs)} inputs>"


class Binary:
    """Programs by number, as in an executable file that a compiler wrote; `Device.binary` makes it.

    Inputs and outputs go by number, too: by their places in the program.

    Attributes
    ----------
    programs : tuple of DeviceProgram
    """

    def __init__(self, programs: Sequence[DeviceProgram]) -> None:
        self.programs = tuple(programs)

    def program(self, index: SupportsIndex) -> DeviceProgram:
        """A program by its number, from 0.

        Raises
        ------
        DeviceError
            If there is none.
        """
        return self.programs[_number(index, len(self.programs), "a program", "this binary")]

    def layout(self, program_index: int, input_index: int) -> Layout:
        """What a program wants of an input.

        Raises
        ------
        DeviceError
            If there is no such program or input.
        """
        program = self.program(program_index)
        where = f"program {program_index}, {program.name!r},"
        return program.layout(list(program.inputs)[_number(input_index, len(program.inputs), "an input", where)])

    def __repr__(self) -> str:
        return f"<Binary: {', '.join(f'{number} {one.name!r}' for number, one in enumerate(self.programs))}>"


def _number(index: SupportsIndex, count: int, what: str, where: str) -> int:
    try:
        number = int(operator.index(index))
    except TypeError:
        raise DeviceError(f"{what} of {where} is chosen by its number, not by {str(index)[:40]!r}") from None
    if not 0 <= number < count:
        known = f"it has 0 to {count - 1}" if count else "it has none"
        raise DeviceError(f"{where} has no {what.split()[-1]} {number}: {known}")
    return number


def _typed(layout: Layout, value: Value) -> Layout:
    return layout if layout.dtype is not None or value.dtype is None else replace(layout, dtype=str(value.dtype))
