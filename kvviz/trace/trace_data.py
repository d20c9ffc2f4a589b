"""The data of a trace: the rows of its log, and everything else that is kept. Rows are written once and never
change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from kvviz.errors import ReplayError
from kvviz.graph.model import Dims, Graph, Value
from kvviz.trace.guided_tour import Tour
from kvviz.trace.index.lifetimes import storage_records
from kvviz.trace.records import Branch, Cache, Caches, Live, Placed, Run, StorageRecord, TraceFrame
from kvviz.trace.schema.element_types import name_of, nbytes
from kvviz.trace.schema.log import Log
from kvviz.trace.schema.run_options import RunOptions
from kvviz.trace.value_summaries import ValueSummaries


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """A policy as data; `kvviz.runtimes.named_policies` makes it, and finds the policy again.

    ``rules``: sentences for reasons that only this policy has.
    ``places_outputs``: it decides where each output lives.
    ``decides``: it made in-place decisions; a recording of another runtime says what happened, not why.
    ``base``: the named policy whose in-place rule it has; empty for a rule of the caller.
    ``options``: of the base: rten's quirks, ``"mem_reuse"`` and ``"parallel"`` of onnxruntime.
    ``captures``: the named policy whose capture rule it has; empty for that of its base.
    ``schedule``: ``(name,)`` of a schedule without parameters; ``("own", label)``: the caller's; ``("picks", picks,
      model)``; ``("before", schedule, pairs)``; ``("least_live", sizes)``.
    ``growth``: as in `kvviz.Policy`.
    """

    name: str
    about: str = ""
    version: str = ""
    rules: tuple[str, ...] = ()
    places_outputs: bool = False
    decides: bool = True
    base: str = ""
    options: tuple[str, ...] = ()
    captures: str = ""
    schedule: tuple[Any, ...] = ("model",)
    growth: str = "start"


_USUAL = RunOptions()

GONE = "gone"
"""Kind of a value that is no longer known."""


class GraphTypes(NamedTuple):
    """The types of one graph's own values. ``path``: of the graph in its model: nodes and attributes, outermost first.
    ``fixed``: those that change when the free dimensions get lengths. ``written``: nodes whose inputs the runtime has
    changed, with those of the model."""

    path: tuple[tuple[int, str], ...]
    types: tuple[Value, ...]
    fixed: tuple[Value, ...]
    written: tuple[tuple[int, tuple[str, ...]], ...]


class TypeFacts(NamedTuple):
    """The types of all values of a model. ``dims``: the free dimensions of the inputs, with their lengths in every
    run."""

    dims: Dims
    graphs: tuple[GraphTypes, ...]


Data = TypeVar("Data", bound="TraceData")
Noted = TypeVar("Noted")


def noted(notes: dict[Any, Any], key: Any, make: Callable[[], Noted]) -> Noted:
    """The note under a key, made on first use."""
    if key not in notes:
        notes[key] = make()
    found: Noted = notes[key]
    return found


class Recorded:
    """An attribute that a dry run lacks; `Trace.known` reads it without an error."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, trace: TraceData | None, owner: type) -> Any:
        if trace is None:
            return self
        if trace.dry:
            raise ReplayError(f"{self.name} were not recorded: a dry run works out layouts and no numbers")
        return trace.__dict__[self.name]

    def __set__(self, trace: TraceData, value: Any) -> None:
        trace.__dict__[self.name] = value


class TraceData:
    """The data of a trace, without the methods that need more than it; see `kvviz.trace.recording.Trace`."""

    outputs = Recorded()
    tokens = Recorded()
    batch_tokens = Recorded()
    logits = Recorded()

    def __init__(self, graph: Graph, policy: PolicyFacts, log: Log, title: str = "") -> None:
        self.graph = graph
        self.policy = policy
        self.log = log
        self.title = title or graph.name
        self.model = graph.file
        self.options = _USUAL
        self.runs: list[Run] = []
        self.caches: list[Cache] = Caches()
        self.outputs = {}
        self.prompt: list[int] = []
        self.tokens = []
        self.batch_tokens = []
        self.logits = []
        self.results: list[dict[str, Any]] = []
        self.words: list[str] | None = None
        self.interrupted = False
        self.live: Live | None = None
        self.replayer: Any = None
        self.recipe: Any = None
        self.branch: Branch | None = None
        self.tour: Tour | None = None
        # The types that a runtime plans by: computed when a file is written, and read from a file.
        self.types_of: Callable[[TraceData], TypeFacts] | None = None
        self.type_facts: TypeFacts | None = None
        self.value_summaries: ValueSummaries | None = None
        self.notes: dict[Any, Any] = {}
        self._frames: list[TraceFrame] = []
        self._lives: tuple[Any, list[StorageRecord]] = (None, [])

    @property
    def dry(self) -> bool:
        """Whether only layouts were worked out, and no numbers; see `kvviz.dry`."""
        return self.options.dry

    def known(self, name: str) -> Any:
        """``outputs``, ``tokens`` or ``logits``, if they are known; in a dry run the outputs are layouts."""
        return self.__dict__[name]

    @property
    def label(self) -> str:
        """A name for this trace among others of the same inputs: the change that made it, or its policy."""
        return self.policy.name if self.branch is None else self.branch.label

    @property
    def peak_bytes(self) -> int:
        """The largest number of bytes alive at any time (weights and the caller's arrays counted)."""
        return self.log.peak

    @property
    def bytes_copied(self) -> int:
        """Bytes that kernels only moved."""
        return self.log.copied

    @property
    def bytes_written(self) -> int:
        """Bytes that kernels stored."""
        return self.log.written

    @property
    def bytes_allocated(self) -> int:
        """Bytes of new storage capacity."""
        return self.log.allocated

    @property
    def frames(self) -> list[TraceFrame]:
        """All activations of graphs, in the order in which they were opened."""
        rows = self.log.frames
        for id in range(len(self._frames), len(rows)):
            row = rows[id]
            path = () if row.parent is None else (*self._frames[row.parent].path, row.label)
            bindings = tuple(
                Placed(name, storage, generation, how, shape, name_of(dtype), offset, None, nbytes(shape, dtype))
                for name, storage, generation, how, shape, dtype, offset in row.bindings
            )
            order = tuple(planned.node for planned in row.program.order)
            node = row.caller.node if row.caller else None
            place = (row.attribute, row.iteration, row.run, path)
            self._frames.append(TraceFrame(id, row.program.graph, row.parent, node, *place, order, bindings))
        return self._frames

    @property
    def storages(self) -> list[StorageRecord]:
        """All storages, by id, with the value that first lived there and when they were born and freed."""
        version = self.log.version
        if self._lives[0] != version:
            self._lives = (version, storage_records(self.log))
        return self._lives[1]

    def step_of(self, frame: int, node_index: int) -> int | None:
        """The step at which a node of a frame ran, or None if it has not."""
        return self.log.step_of(frame, node_index)

    def forget(self, frame: int) -> None:
        """Drop what was derived from the last frames and their steps, which are gone."""
        del self._frames[frame:]
        if self.value_summaries is not None:
            self.value_summaries = self.value_summaries.until(len(self.log), len(self.runs) - 1)
        if "meters" in self.notes:
            # The recording that the meters hold has records of its own.
            self.notes["meters"].forget(frame)
        self._lives = (None, [])

    def apart(self: Data) -> Data:
        """A shallow copy of the recording for caches of the trace: a cycle would delay freeing both."""
        twin = type(self).__new__(type(self))
        vars(twin).update(vars(self))
        twin.notes, twin.caches = {}, []
        return twin
