"""A simulated accelerator: real numbers, and an exact account of residency, transfers and ownership."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, overload

import onnx

from kvviz.device import captured_trace, kv_updates, releases, transfers
from kvviz.device.captured_trace import Captured
from kvviz.device.device_layout import Layout, MemoryView
from kvviz.device.device_program import Binary, DeviceProgram
from kvviz.device.device_state import DeviceState
from kvviz.device.handles import Handle
from kvviz.device.kv_updates import BlockTable
from kvviz.device.simulated_time import Cost
from kvviz.device.submission import ConstEvalCache, in_order, split, submit
from kvviz.errors import KvvizError
from kvviz.graph.loading.load import load
from kvviz.graph.model import Graph
from kvviz.interrupts import held_back
from kvviz.trace.recording import Trace

_Call = TypeVar("_Call", bound=Callable[..., Any])


def _whole(call: _Call) -> _Call:
    """A call that is done completely or not at all: interrupts and finalizers wait for its end. The first argument is
    the device, so a function of another file becomes a method."""

    @wraps(call)
    def held(*arguments: Any, **named: Any) -> Any:
        try:
            with held_back(), arguments[0].dropped.wait():
                return call(*arguments, **named)
        except KvvizError as error:
            # A kept error, as the last one in a notebook, must not keep the tensors in its frames.
            del arguments, named
            raise error.with_traceback(None) from None

    return held  # type: ignore[return-value]


class Device(DeviceState):
    """A device with DRAM, L1, queues and a link to the host.

    Parameters
    ----------
    dram, l1 : int
        Bytes of each memory, in all of its banks together.
    contract : {"landed", "proposed"}
        ``"landed"``: tt-mlir as it is: the caller converts layouts, inputs that are not retained die with the submit,
        and a tensor dies with its last handle. ``"proposed"``: tt-mlir #671 as written: submit converts layouts, takes
        tensors out of L1 that the program does not need, and the caller frees.
    ownership : {"holder", "classic"}
        See `kvviz.device.handles`.
    cost : Cost
        Costs of bytes and operations, in simulated microseconds.
    queues : int
        Queues on which programs run; independent ones run at the same time.
    dram_banks, l1_banks : int
        Those of an n150 by default.
    name : str

    Attributes
    ----------
    warnings : list of DeviceWarning
    host_bytes : int
        Bytes over the link in both directions since the start.

    Examples
    --------
    >>> device = Device()
    >>> program = device.program(graph)                                     # doctest: +SKIP
    >>> outputs = device.submit(program, {"x": device.to_device(x)})        # doctest: +SKIP
    """

    def __init__(
        self,
        dram: int = 1 << 30,
        l1: int = 1 << 20,
        contract: str = "landed",
        ownership: str = "holder",
        *,
        cost: Cost | None = None,
        queues: int = 2,
        dram_banks: int = 12,
        l1_banks: int = 64,
        name: str = "device",
    ) -> None:
        capacity, banks = {"dram": dram, "l1": l1}, {"dram": dram_banks, "l1": l1_banks}
        super().__init__(name, capacity, banks, contract, ownership, cost or Cost(), queues)
        self.const_eval = ConstEvalCache(self)
        self._trace: tuple[Any, Trace] | None = None

    to_device = _whole(transfers.to_device)
    to_host = _whole(transfers.to_host)
    to_layout = _whole(transfers.to_layout)
    reshape = _whole(transfers.reshape)
    host_tensor = _whole(transfers.host_tensor)
    memcpy = _whole(transfers.memcpy)

    @overload
    def get_layout(self, program: DeviceProgram, name: str) -> Layout: ...

    @overload
    def get_layout(self, program: Binary, name: int, input_index: int) -> Layout: ...

    def get_layout(self, program: Any, name: Any, input_index: Any = None) -> Layout:
        """The layout that a program wants for an input: ``(program, name)``, or ``(binary, program_index,
        input_index)``."""
        found: Layout = program.layout(name, input_index) if isinstance(program, Binary) else program.layout(name)
        return found

    def has_layout(self, handle: Handle, layout: Layout) -> bool:
        """Whether a tensor already has a layout."""
        return handle.has_layout(layout)

    def program(
        self,
        graph: Graph | str | os.PathLike[str] | bytes | onnx.ModelProto,
        *,
        name: str | None = None,
        layouts: Mapping[str, Layout] | None = None,
        outputs: Mapping[str, Layout] | None = None,
        const_eval: Sequence[str] = (),
    ) -> DeviceProgram:
        """A program of an ONNX graph, for this device.

        Parameters
        ----------
        graph : Graph
            Or anything that `kvviz.load` takes.
        layouts, outputs
            Layouts of inputs and outputs by name; in rows in DRAM by default.
        const_eval : sequence of str
            Inputs that are parameters: a submit does not deallocate them, and what follows from them alone is worked
            out once for each version of them.
        """
        self.open()
        graph = graph if isinstance(graph, Graph) else load(graph)
        self.programs += 1
        for one in (*(layouts or {}).values(), *(outputs or {}).values()):
            self.a_layout(one, "device.program")
        name = name or graph.name or f"program {self.programs}"
        made = DeviceProgram(graph, self.programs, name, layouts or {}, outputs or {}, const_eval)
        made.parts = split(made, const_eval) if const_eval else None
        for part in (made, *(made.parts or ())):
            part.device = self
        return made

    def binary(self, programs: Sequence[Any]) -> Binary:
        """Programs by number, for the forms of `submit` and `get_layout` in tt-mlir's runtime.

        Parameters
        ----------
        programs : sequence
            Each is an argument of `program`, or a program that it made, which may have layouts.
        """
        return Binary([one if isinstance(one, DeviceProgram) else self.program(one) for one in programs])

    @overload
    def submit(self, program: DeviceProgram, inputs: Mapping[str, Handle]) -> dict[str, Handle]: ...

    @overload
    def submit(self, program: Binary, inputs: int, handles: Sequence[Handle]) -> list[Handle]: ...

    @_whole
    def submit(self, program: Any, inputs: Any, handles: Any = None) -> Any:
        """Submit a program; returns handles of its outputs at once, and the program runs when its inputs are ready.

        ``submit(program, {name: handle})`` returns a dict; ``submit(binary, program_index, [handle, …])`` a list.

        Raises
        ------
        DeviceError
            If an input is dead, of another device, or of another layout or shape than the program wants; or if there
            is no room. The device is unchanged.
        """
        by_number = isinstance(program, Binary)
        if by_number:
            program = program.program(inputs)
            inputs = in_order(self, program, handles)
        in_parts = isinstance(program, DeviceProgram) and program.parts is not None
        made = self.const_eval.submit(program, inputs) if in_parts else submit(self, program, inputs)
        return list(made.values()) if by_number else made

    @_whole
    def capture(self, program: DeviceProgram, inputs: Mapping[str, Handle]) -> Captured:
        """Run a program and fix all addresses, to replay it; waits until it is done.

        Its inputs are copied into slots. Older captures become invalid. `release_capture` frees the slots.
        """
        return captured_trace.capture(self, Captured(program), inputs)

    replay = _whole(captured_trace.replay)
    release_capture = _whole(captured_trace.release_slots)
    wait = _whole(transfers.wait)

    @contextmanager
    def together(self, name: str) -> Iterator[None]:
        """Make all calls inside one run of the recording, so that hazards between them are found. Otherwise a run is a
        submit, with the calls that lead up to it, and transfers of its results to the host."""
        with self.dropped.wait():
            self.forward()
            self.grouped = name
        try:
            yield
        finally:
            self.grouped = ""
            self._submitted = True  # so that the next call begins another run

    fill_cache = _whole(kv_updates.fill_cache)
    update_cache = _whole(kv_updates.update_cache)
    paged_update_cache = _whole(kv_updates.paged_update_cache)
    paged_fill_cache = _whole(kv_updates.paged_fill_cache)

    def block_table(self, cache: Handle, rows: Sequence[Sequence[int]]) -> BlockTable:
        """A table of the blocks of a paged cache, by sequence."""
        return BlockTable(rows, cache.shape[0], cache.shape[2])

    deallocate = _whole(releases.deallocate)
    release = _whole(releases.release)
    let_go = releases.dropped

    @_whole
    def duplicate(self, handle: Handle) -> Handle:
        """Another handle with the same wrapper, like a copy of a runtime tensor."""
        self.need(handle, "duplicate", host=True)
        handle.wrapper.handles += 1
        return self.handle(handle.wrapper, handle.name, "handle", f"copy of handle #{handle.number}")

    @_whole
    def set_retain(self, handle: Handle, retain: bool) -> None:
        """The same as ``handle.retain = …``."""
        if handle.wrapper.retain != retain:
            handle.wrapper.retain = retain
            self.mark(
                "retain" if retain else "retain off", handle.wrapper, f"handle #{handle.number}.retain = {retain}"
            )

    def close(self) -> None:
        """End the use of the device; whatever is still allocated (as landed: still held) is reported as a leak."""
        if not self.closed and self.contract == "landed" and any(self.live_bytes.values()):
            gc.collect()  # whether a cycle was collected before must not decide what a leak is
        self._close()

    @_whole
    def _close(self) -> None:
        if not self.closed:
            self.const_eval.clear()
        releases.close(self)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    @property
    def live_bytes(self) -> dict[str, int]:
        """Bytes of allocated tensors, by memory; the programs' own weights are `constant_bytes`."""
        with self.dropped.wait():
            live = dict.fromkeys(self.banks, 0)
            for buffer in self.buffers.values():
                live[buffer.memory] += buffer.extent
            return live

    @property
    def time(self) -> float:
        """The host's simulated time, in microseconds."""
        return self.clock.now

    def memory_view(self) -> dict[str, MemoryView]:
        """The table of blocks of each memory, in bytes of all of its banks."""
        with self.dropped.wait():
            names = {number: owners[0].name for number in self.buffers if (owners := self.by_buffer.get(number))}
            return {memory: banks.view(names) for memory, banks in self.banks.items()}

    @property
    def trace(self) -> Trace:
        """The recording so far; it does not grow afterwards."""
        with self.dropped.wait():
            version = self.writer.version
            if self._trace is None or self._trace[0] != version:
                self._trace = version, self.writer.finish()
            return self._trace[1]
