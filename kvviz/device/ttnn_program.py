"""TTNN's IR as a trace: where the compiler lets every tensor live, what it moves, and when it frees it.

Nothing runs: the text says residency, layouts and deallocation, and these are drawn.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kvviz.device.ttnn_layouts import TensorType
from kvviz.device.ttnn_text import TtnnFunction, TtnnOp, parse
from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace
from kvviz.trace.writer import Writer

IN_PLACE = {
    "ttnn.fill_cache": 0,
    "ttnn.update_cache": 0,
    "ttnn.paged_update_cache": 0,
    "ttnn.paged_fill_cache": 0,
}
"""Ops that write an operand and give no result (``TTNN_InplaceOp``), and which operand."""

_MOVES = {"ttnn.to_device", "ttnn.from_device", "ttnn.to_memory_config", "ttnn.to_layout", "ttnn.to_dtype"}
_BOUND = {"parameter": "weight", "constant": "weight", "kv_cache": "donated"}
_ORIGINS = {"weight": "weights", "donated": "donated", "borrowed": "caller"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the text that costs memory or is wrong.

    ``code``: ``"USE_AFTER_FREE"``, ``"DOUBLE_FREE"``, ``"LEAK"`` (never deallocated and not returned), ``"LATE_FREE"``
    (freed later than behind the last use) or ``"HOST_ROUND_TRIP"``.
    """

    code: str
    value: str
    line: int
    nbytes: int
    sentence: str


@dataclass(frozen=True, slots=True)
class TtnnModule:
    """A module of TTNN's IR: its functions, the trace of each as a run, and what was found."""

    functions: tuple[TtnnFunction, ...]
    trace: Trace
    findings: tuple[Finding, ...]


def load_ttnn(source: str | os.PathLike[str]) -> TtnnModule:
    """Read TTNN's IR, a file or its text, as a trace with a run for each function.

    Parameters
    ----------
    source : str or path
        The name of a file, or the text itself where it has more than one line.

    Raises
    ------
    KvvizError
        With the line, where the text is not what ``ttmlir-opt`` prints.

    Notes
    -----
    Where a reshape gives a view follows ``isAliasingViewOp`` of tt-mlir (``DataMovementRules.cpp``). A deallocation
    without force frees memory when its last name is gone; one with force frees it at once.

    Examples
    --------
    >>> module = kvviz.device.load_ttnn("decode_ttnn.mlir")                 # doctest: +SKIP
    >>> module.trace.peak_bytes                                             # doctest: +SKIP
    """
    text, where = str(source), "TTNN text"
    if "\n" not in text:
        where = os.path.basename(text)
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise KvvizError(f"{where} cannot be read as text: {error}") from error
    functions = parse(text, where)
    drawn = [function for function in functions if function.ops]
    if not drawn:
        raise KvvizError(f"{where}: its functions have no ops")
    writing = _Writing(Writer(where, "tt-mlir", "the compiler's text: nothing ran"), where)
    returned: list[int] = []
    for function in drawn:
        returned = writing.function(function)
    return TtnnModule(functions, writing.writer.finish(returned), tuple(writing.findings))


class _Writing:
    """A trace while it is written; names are those of one function."""

    def __init__(self, writer: Writer, where: str) -> None:
        self.writer = writer
        self.where = where
        self.findings: list[Finding] = []

    def function(self, function: TtnnFunction) -> list[int]:
        """Write a function as a run; gives the values that it returns."""
        self.writer.begin_run(function.name)
        self.values: dict[str, int] = {}
        self.types: dict[str, TensorType | None] = {}  # of all names, devices too
        self.names: dict[int, set[str]] = {}  # of a storage: those that hold it
        self.gone: dict[str, int] = {}  # names that were deallocated, and the line
        self.came: dict[str, str] = {}  # of what was moved from another space: what it was before
        for argument in function.arguments:
            how = _BOUND.get(argument.kind, "borrowed")
            self._define(argument.name, argument.type, function.line, _ORIGINS[how])
            if argument.name in self.values:
                self.writer.bind(self.values[argument.name], how)
        self.freed: set[int] = set()
        self.used: dict[str, int] = {}  # of a name: how many ops had run when it was used last, or made
        self.ran = 0
        for op in function.ops:
            self._operands(op)
            if op.name == "ttnn.deallocate":
                self._deallocate(op)
            else:
                self.ran += 1
                self._op(op)
                self.used.update(dict.fromkeys((*op.operands, *op.results), self.ran))
        self._leaks(function)
        for name in function.returned:
            if name not in self.types:
                raise KvvizError(f"{self.where}: @{function.name} returns {name}, which nothing defines")
        return [self.values[name] for name in function.returned if name in self.values]

    def _define(self, name: str, type_: TensorType | None, line: int, origin: str, storage: int | None = None) -> None:
        if name in self.types:
            raise KvvizError(f"{self.where}, line {line}: {name} is defined twice")
        self.types[name] = type_
        if type_ is not None:
            try:
                if storage is None:
                    storage = self.writer.storage(type_.nbytes, origin=origin, space=type_.space)
                self.values[name] = self.writer.value(name, type_.shape, type_.dtype, storage)
            except KvvizError as error:
                raise KvvizError(f"{self.where}, line {line}: {name}: {error}") from error
            self.names.setdefault(storage, set()).add(name)

    def _operands(self, op: TtnnOp) -> None:
        for name in op.operands:
            if name not in self.types:
                raise KvvizError(f"{self.where}, line {op.line}: {op.name} uses {name}, which nothing defines before")
            if name in self.gone:
                since = f"which line {self.gone[name]} deallocates"
                if op.name == "ttnn.deallocate":
                    self._found("DOUBLE_FREE", name, op.line, f"line {op.line} deallocates {name}, {since}")
                else:
                    said = f"{op.name} in line {op.line} uses {name}, {since}: other bytes may lie there"
                    self._found("USE_AFTER_FREE", name, op.line, said)

    def _op(self, op: TtnnOp) -> None:
        """Write an op; one that gives and writes nothing, as asking for the device, is none."""
        target = IN_PLACE.get(op.name)
        inputs = [self.values[name] for name in op.operands if name in self.values]
        view = None if target is not None else self._viewed(op)
        for name, type_ in zip(op.results, op.types):
            self._define(name, type_, op.line, "run", view)
        outputs = [self.values[name] for name in op.results if name in self.values]
        if not outputs and target is None:
            return
        writes = [inputs[target]] if target is not None else [] if view is not None else outputs
        moved = 0
        if view is None and op.name in _MOVES and inputs:
            moved = sum(self._bytes(name) for name in op.results)
            self._round_trip(op)
        short = op.name.removeprefix("ttnn.")
        self.writer.op(
            short,
            inputs,
            outputs,
            name=op.results[0] if op.results else f"line {op.line}",
            reads=[] if view is not None else [value for value in inputs if value not in writes],
            writes=writes,
            copied=moved,
        )

    def _viewed(self, op: TtnnOp) -> int | None:
        """The storage that the result shares with the first operand; None where it is new."""
        if op.name != "ttnn.reshape" or not op.operands or len(op.types) != 1:
            return None
        old, new = self.types[op.operands[0]], op.types[0]
        if (
            old is None
            or new is None
            or (old.place, old.dtype) != (new.place, new.dtype)
            or not (old.shape and new.shape)
        ):
            return None
        rows = [type_.shape[-2] if len(type_.shape) > 1 else 1 for type_ in (old, new)]
        fits = not old.tiled or rows[0] == rows[1] or not (rows[0] % 32 or rows[1] % 32)
        same = old.shape[-1] == new.shape[-1] and fits and old.nbytes == new.nbytes
        return self.writer.storage_of(self.values[op.operands[0]]) if same else None

    def _round_trip(self, op: TtnnOp) -> None:
        """Remember what was moved out of which space, and say so where it comes back as it was."""
        name, result = op.operands[0], op.results[0]
        before, after = self.types[name], self.types[result]
        if before is None or after is None or before.space == after.space:
            return
        self.came[result] = before.space
        if self.came.get(name) == after.space != "host" and before.space == "host":
            size = self._bytes(result)
            said = (
                f"{result} in line {op.line} brings {name} back to {after.space}: {size:,} B went to the host and back"
            )
            self._found("HOST_ROUND_TRIP", result, op.line, said)

    def _deallocate(self, op: TtnnOp) -> None:
        name = op.operands[0] if op.operands else ""
        if name not in self.values or name in self.gone:
            return
        storage = self.writer.storage_of(self.values[name])
        holders = self.names[storage]
        forced = op.attributes.get("force") == "true"
        self.gone[name] = op.line
        holders.discard(name)
        if holders and not forced:
            self.writer.free(
                storage, f"deallocate {name} (line {op.line}): {_listed(holders)} lies there too", done=False
            )
            return
        if storage in self.freed:
            return
        self.freed.add(storage)
        late = self.ran - self.used.get(name, 0)
        if late:
            ops = "one op" if late == 1 else f"{late} ops"
            said = f"line {op.line} deallocates {name} {ops} later than its last use allows"
            self._found("LATE_FREE", name, op.line, said)
        for other in holders:
            self.gone[other] = op.line
        self.writer.free(storage, f"deallocate {name} (line {op.line})" + (", forced" if forced else ""))

    def _leaks(self, function: TtnnFunction) -> None:
        """What the program made on the device, and neither frees nor returns nor keeps for the next call."""
        kept = {self.writer.storage_of(self.values[name]) for name in function.returned if name in self.values}
        kept |= {self.writer.storage_of(self.values[a.name]) for a in function.arguments if a.name in self.values}
        cached = {name for op in function.ops if op.callee for name in op.results}
        for storage, names in self.names.items():
            if storage not in kept | self.freed and names and not names <= cached:
                name = min(names)
                type_ = self.types[name]
                if type_ is not None and type_.space != "host":
                    said = f"{_listed(names)} stays in {type_.space} when @{function.name} ends: nothing deallocates it"
                    self._found("LEAK", name, function.line, said)

    def _bytes(self, name: str) -> int:
        type_ = self.types.get(name)
        return type_.nbytes if type_ is not None else 0

    def _found(self, code: str, name: str, line: int, sentence: str) -> None:
        self.findings.append(Finding(code, name, line, self._bytes(name), sentence))


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
