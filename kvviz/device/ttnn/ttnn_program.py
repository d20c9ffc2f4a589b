"""TTNN's IR as a trace: where the compiler places every tensor, what it moves, and when it frees it.

Nothing runs: the text states residency, layouts and deallocation, and these are drawn.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kvviz.device.ttnn.ttnn_effects import (
    CODE,
    MOVES,
    CacheCopy,
    copies_text,
    freed_activation,
    is_view,
    reads_what_it_writes,
    whole_cache_copies,
    written,
)
from kvviz.device.ttnn.ttnn_layouts import TensorType
from kvviz.device.ttnn.ttnn_text import TtnnFunction, TtnnOp, parse
from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace
from kvviz.trace.writer import Writer

_BOUND = {"parameter": "weight", "constant": "weight", "kv_cache": "donated"}
_ORIGINS = {"weight": "weights", "donated": "donated", "borrowed": "caller"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the text that costs memory or is wrong. ``code``: ``"WHOLE_CACHE_COPY"`` (one for each function,
    with the bytes of all copies of a call), and ``"USE_AFTER_FREE"``, ``"DOUBLE_FREE"``, ``"LEAK"`` (never deallocated
    and not returned), ``"LATE_FREE"`` (freed later than behind the last use) or ``"HOST_ROUND_TRIP"``."""

    code: str
    value: str
    line: int
    nbytes: int
    sentence: str


@dataclass(frozen=True, slots=True)
class TtnnModule:
    """A module of TTNN's IR: its functions, the trace of each as a run, and what was found, copies of caches first."""

    functions: tuple[TtnnFunction, ...]
    trace: Trace
    findings: tuple[Finding, ...]


def load_ttnn(source: str | os.PathLike[str]) -> TtnnModule:
    """Read TTNN's IR, a file or its text, as a trace with a run for each function.

    Parameters
    ----------
    source : str or path
        The name of a file, or the text itself if it has more than one line.

    Raises
    ------
    KvvizError
        With the line, if the text is not as ``ttmlir-opt`` prints it.

    Notes
    -----
    Whether a reshape is a view follows ``isAliasingViewOp`` of tt-mlir (``DataMovementRules.cpp``). A deallocation
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
    findings = sorted(writing.findings, key=lambda found: found.code != CODE)
    return TtnnModule(functions, writing.writer.finish(returned), tuple(findings))


class _Writing:
    def __init__(self, writer: Writer, where: str) -> None:
        self.writer = writer
        self.where = where
        self.findings: list[Finding] = []

    def function(self, function: TtnnFunction) -> list[int]:
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
        copies = whole_cache_copies(function)
        copying = {id(copy.op): copy for copy in copies}
        for op in function.ops:
            self._operands(op)
            if op.name == "ttnn.deallocate":
                self._deallocate(op)
            else:
                self.ran += 1
                self._op(op)
                self.used.update(dict.fromkeys((*op.operands, *op.results), self.ran))
                self._after(op, copying.get(id(op)))
        self._leaks(function)
        if copies:
            total = sum(copy.nbytes for copy in copies)
            self.findings.append(
                Finding(CODE, copies[0].cache, copies[0].op.line, total, copies_text(function, copies))
            )
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
        """Write an op, unless it has no results and writes nothing, like requests for the device."""
        names, inputs = written(op), [self.values[name] for name in op.operands if name in self.values]
        view = self.values.get(op.operands[0]) if is_view(op, self.types) else None
        for name, type_ in zip(op.results, op.types):
            self._define(name, type_, op.line, "run", None if view is None else self.writer.storage_of(view))
        outputs = [self.values[name] for name in op.results if name in self.values]
        if not outputs and names is None:
            return
        writes = [self.values[name] for name in names or () if name in self.values]
        reads = [] if view is not None else [v for v in inputs if v not in writes or reads_what_it_writes(op)]
        writes += [] if view is not None else outputs
        moved = 0
        if op.name in MOVES and inputs and view is None:
            moved = sum(self._bytes(name) for name in names or op.results)
            self._round_trip(op)
        self.writer.op(
            op.name.removeprefix("ttnn."),
            inputs,
            outputs,
            name=op.results[0] if op.results else f"line {op.line}",
            reads=reads,
            writes=writes,
            copied=moved,
        )

    def _after(self, op: TtnnOp, copy: CacheCopy | None) -> None:
        """Record side effects of an op: a copied cache, a freed activation."""
        if copy is not None:
            text = f"{op.name} in line {op.line} copies the whole of {copy.cache} into {copy.target}: {copy.nbytes:,} B"
            self._mark(CODE, copy.target, op.line, copy.nbytes, text)
        name = freed_activation(op, self.types)
        if name in self.values and name not in self.gone:
            self._free(name, op, True, f"{op.name} frees its activation {name} (line {op.line})")

    def _round_trip(self, op: TtnnOp) -> None:
        """Remember what was moved out of which space, and report if it comes back unchanged."""
        if not op.results:
            return
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
        forced = op.attributes.get("force") == "true"
        self._free(name, op, forced, f"deallocate {name} (line {op.line})")

    def _free(self, name: str, op: TtnnOp, forced: bool, why: str) -> None:
        storage = self.writer.storage_of(self.values[name])
        holders = self.names[storage]
        self.gone[name] = op.line
        holders.discard(name)
        if holders and not forced:
            self.writer.free(storage, f"{why}: {_listed(holders)} lies there too", done=False)
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
        self.writer.free(storage, why + (", forced" if forced else ""))

    def _leaks(self, function: TtnnFunction) -> None:
        """Report tensors that the program made on the device, and neither frees nor returns nor keeps for the next
        call."""
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
        self._mark(code, name, line, self._bytes(name), sentence)

    def _mark(self, code: str, name: str, line: int, nbytes: int, text: str) -> None:
        where = f"{self.where}:{line}"
        self.writer.mark(f"warning {code}", self.values.get(name), text=text, line=where, nbytes=nbytes)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
