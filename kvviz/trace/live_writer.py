"""A trace that grows while it is written: what a debugger shows of a producer other than the ONNX engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import Program
from kvviz.trace.schema.log import Log
from kvviz.trace.writer import Writer


class LiveWriter(Writer):
    """A writer of runs whose ops are all known beforehand, and may run in another order."""

    def declare(
        self,
        op_type: str,
        inputs: Sequence[int] = (),
        outputs: Sequence[int] = (),
        *,
        name: str = "",
        scope: Sequence[str] = (),
    ) -> None:
        """Declare an op of this run that has not run yet, so that the growing trace has the whole program from the
        start. All ops of the run are declared in program order before the first one runs. `op` recognises each by its
        outputs."""
        for value in inputs:
            self.use(value)
        run = self.run()
        read, made = self.named(inputs), self.named(outputs)
        run.made.update(outputs)
        place = run.node(op_type, name or (made[0] if outputs else op_type), read, made, None, None, scope)
        run.declared[tuple(made)] = place

    def live(self, outputs: Sequence[int] = ()) -> LiveTrace:
        """A trace that grows with everything written from now on: in the present run, all of whose ops are declared,
        and in runs passed to `LiveTrace.begin`. ``outputs``: those of this run."""
        return LiveTrace(self, tuple(self.named(outputs)))


class LiveTrace:
    """Moves into one trace what a `LiveWriter` has written since the last call. Storages and declarations are the
    writer's own; rows go from its runs into the log as they come."""

    def __init__(self, writer: Writer, outputs: tuple[str, ...]) -> None:
        self._writer, self._log = writer, Log()
        self._log.storages, self._log.declared = writer.log.storages, writer.log.declared
        self._known: dict[Any, Program] = {}
        self._died = 0  # storages that died with the last op, and are in the log
        self._open = writer.run().open(self._log, 0, writer.title, outputs, self._known)
        self.trace = Trace(self._log.frames[0].program.graph, writer.policy, self._log, writer.title)
        self.trace.runs = [self._open.record]

    def begin(self, outputs: tuple[str, ...]) -> None:
        """Take over the run that the writer has begun and declared; ``outputs``: those of the run."""
        self._let_go()
        runs, writer = self.trace.runs, self._writer
        self._open = writer.run().open(self._log, len(runs), writer.title, outputs, self._known)
        runs.append(self._open.record)

    def follow(self) -> None:
        self._let_go()
        before = len(self._log)
        self._writer.run().pour(self._log, self._open, self._writer.freed)
        if len(self._log) > before:
            self._died = len(self._writer.freed.get(len(self._log) - 1, ()))

    def summarise(self) -> None:
        self.trace.value_summaries = self._writer.arrays.summaries(len(self._log))

    def _let_go(self) -> None:
        died = self._writer.freed.get(len(self._log) - 1, ())[self._died :] if len(self._log) else ()
        if died:
            self._log.free(died)
            self._died += len(died)
