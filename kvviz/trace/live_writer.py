"""A trace that grows while it is written: what a debugger steps through live, of a producer of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.trace.recording import Trace
from kvviz.trace.records import Run
from kvviz.trace.schema.events import Program
from kvviz.trace.schema.log import Log
from kvviz.trace.trace_data import PolicyFacts
from kvviz.trace.value_summaries import SeenArrays
from kvviz.trace.writer import Writer
from kvviz.trace.written_run import OpenRun, WrittenRun


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
        """An op of this run that has not run yet, so that a trace that grows has the whole program from the start.

        All ops of the run are declared then, in the order of the program, before the first one runs. `op` knows it by
        its outputs.
        """
        for value in inputs:
            self.use(value)
        run = self.run()
        read, made = self.named(inputs), self.named(outputs)
        run.made.update(outputs)
        place = run.node(op_type, name or (made[0] if outputs else op_type), read, made, None, None, scope)
        run.declared[tuple(made)] = place

    def live(self, outputs: Sequence[int] = ()) -> LiveTrace:
        """A trace that grows with what is written from now on: in the present run, all of whose ops are declared, and
        in those that `LiveTrace.begin` is called for. ``outputs``: what this run hands out."""
        state = (self.title, self.policy, self.log, self._runs, self.freed, self.arrays)
        return LiveTrace(*state, tuple(self.named(outputs)))


class LiveTrace:
    """Moves into one trace what a `LiveWriter` has written since the last call.

    Storages and declarations are the writer's own; rows go from its runs into the log as they come.

    Attributes
    ----------
    trace : Trace
    """

    def __init__(
        self,
        title: str,
        policy: PolicyFacts,
        written: Log,
        runs: Sequence[WrittenRun],
        freed: Mapping[int, Sequence[int]],
        arrays: SeenArrays,
        outputs: tuple[str, ...],
    ) -> None:
        self._title, self._runs, self._freed, self._arrays = title, runs, freed, arrays
        self._log = Log()
        self._log.storages, self._log.declared = written.storages, written.declared
        self._open: OpenRun | None = None
        self._known: dict[Any, Program] = {}
        self._died = 0  # storages that died with the last op, and are in the log
        self.trace = self._begun(policy, outputs)

    def _begun(self, policy: PolicyFacts, outputs: tuple[str, ...]) -> Trace:
        runs: list[Run] = []
        self._begin(runs, outputs)
        trace = Trace(self._log.frames[0].program.graph, policy, self._log, self._title)
        trace.runs = runs
        return trace

    def _begin(self, runs: list[Run], outputs: tuple[str, ...]) -> None:
        run = self._runs[-1]
        self._open = run.open(self._log, len(runs), self._title, outputs, self._known)
        runs.append(Run(len(runs), run.first, run.first, None, run.text))

    def begin(self, outputs: tuple[str, ...]) -> None:
        """Take over the run that the writer has begun, and declared; ``outputs``: what it hands out."""
        self._let_go()
        self._begin(self.trace.runs, outputs)

    def follow(self) -> None:
        """Take over the ops that are new in the present run."""
        trace, log = self.trace, self._log
        self._let_go()
        run, record = self._runs[-1], trace.runs[-1]
        assert self._open is not None
        since = len(log) - run.first
        if since < len(run.rows):
            run.pour(log, self._open, since, self._freed)
            self._died = len(self._freed.get(len(log) - 1, ()))
        record.last = len(log)
        record.peak_bytes = run.peak
        for row in run.rows[since:]:
            record.bytes_allocated += row.allocated
            record.bytes_copied += row.copied
            record.bytes_written += row.written

    def summarise(self) -> None:
        """Put the summaries of values into the trace."""
        self.trace.value_summaries = self._arrays.summaries(len(self._log))

    def _let_go(self) -> None:
        """Log the storages that died after the last op of the log."""
        died = self._freed.get(len(self._log) - 1, ())[self._died :] if len(self._log) else ()
        if died:
            self._log.free(died)
            self._died += len(died)
