"""The trace: all that views know of a run. Rows are written once and never change; records are derived from them."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np

from kvviz.errors import ReplayError
from kvviz.late import late
from kvviz.other_names import not_there
from kvviz.trace.guided_tour import Tour
from kvviz.trace.records import Step
from kvviz.trace.step_sequence import Steps
from kvviz.trace.trace_data import TraceData
from kvviz.trace.trace_reader import load
from kvviz.trace.trace_writer import save
from kvviz.trace.values_view import Values


class Trace(TraceData):
    """A recording of one or more runs of a graph.

    Attributes
    ----------
    graph : Graph
    policy : PolicyFacts
    options : RunOptions
    model : ModelFile
        Name and SHA-256 of the model file; empty for a model that was made in memory.
    steps, frames, storages, runs, caches
        Records of what ran, where, in which memory.
    outputs : dict of str to ndarray
        What the last run returned.
    prompt, tokens : list of int
        In a decode: the prompt and the generated tokens (batch item 0).
    words : list of str or None
        Texts of prompt and tokens together.
    interrupted : bool
        The run was stopped; what ran until then is valid.
    live : Live or None
        What may run next, or None when everything has run.
    recipe : Recipe or None
        How to make this trace again with a change; None for a trace that was loaded.
    value_summaries : ValueSummaries or None
        What is kept of the values; see `summarise` and `values`.
    branch : Branch or None
        Where and by which change it was forked from another trace; None for a trace that was not forked.
    tour : Tour or None
        Captions that lead through it; see `kvviz.lessons.Tour`.
    dry : bool
        Only layouts were worked out (`kvviz.dry`): ``outputs``, ``tokens`` and ``logits`` were not recorded.
    notes : dict
        Results that readers computed and keep here.
    """

    # -- a trace is the sequence of its steps -----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.log)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice | str) -> list[Step]: ...
    def __getitem__(self, index: int | slice | str) -> Step | list[Step]:
        """As of ``steps``: by number, by slice, or all steps of a node by its name."""
        return self.steps[index]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return not_there(self, name)

    # -- records ----------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> Steps:
        """All steps, in the order in which they were completed; ``steps["name"]`` are those of one node."""
        return Steps(self)

    def value(self, name: str, step: int | None = None) -> np.ndarray:
        """A value as it was right after a step, recomputed by replaying the run up to that step.

        Parameters
        ----------
        name : str
            Value name in the step's frame.
        step : int, optional
            The last one by default.

        Raises
        ------
        ReplayError
            If the run's inputs were not kept, or the value does not exist there.
        """
        if self.dry:
            raise ReplayError(f"value {name!r} was not recorded: a dry run works out layouts and no numbers")
        if self.replayer is None:
            raise ReplayError("values were not recorded: this trace was loaded from a file")
        return cast("np.ndarray", self.replayer.value(self, name, len(self.steps) - 1 if step is None else step))

    def summarise(self, budget: int | str = "2 MB") -> Values | None:
        """Store summaries of the values in the recording: numbers, histograms, pictures, and attention weights.

        The runs are repeated for this. Saved files and the page include the summaries.

        Parameters
        ----------
        budget : int or str
            Maximum size of the summaries in bytes; 0 removes them. Numbers of all values come first, then histograms,
            attention, and pictures; caches and logits first, then the largest values.

        Raises
        ------
        ReplayError
            If the trace was loaded from a file, or has no values (`kvviz.dry`). The summaries that it has are kept.
        """
        if self.dry:
            raise ReplayError("there are no values to look at: a dry run works out layouts and no numbers")
        own = getattr(self.replayer, "summarise", None)
        return cast(
            "Values | None", late("engine.value_pass:summarise")(self, budget) if own is None else own(self, budget)
        )

    @property
    def values(self) -> Values | None:
        """The summaries that `summarise` stored."""
        return None if self.value_summaries is None else Values(self, self.value_summaries)

    def save(self, path: Any) -> None:
        """Write the trace (not the model's weights) to one file; see `Trace.load`.

        An existing file is replaced when the new one is complete.

        Raises
        ------
        SaveError
            If the file cannot be written. An existing file is not changed.
        """
        save(self, path)

    @staticmethod
    def load(path: Any) -> Trace:
        """Read a trace that `save` wrote. Every view works on it, but it cannot run on."""
        return load(path, Trace)

    def explain(self) -> Any:
        """The report on the trace; see `kvviz.explain`."""
        return late("report.explain:explain")(self)

    def to_markdown(self, step: int | None = None) -> str:
        """A step in Markdown, ready for a GitHub thread; see `Report.to_markdown`.

        Parameters
        ----------
        step : int, optional
            Its number; by default the report on the whole trace.
        """
        return str(late("report.markdown:to_markdown")(self.explain(), step))

    def table(self, steps: Any = None) -> Any:
        """The steps as a table, which prints as text, has a display in notebooks, and has ``rows``."""
        return late("report.steps_table:steps_table")(self, steps)

    def find(self, query: str) -> Any:
        """The steps that a query finds, as a sequence of `Step` that displays as a table.

        Words find names, decisions, reasons, decoded words and buffers; a field is compared with a value. All parts of
        a query must hold. ``or`` joins alternatives, and ``-`` negates the part after it. `kvviz.query.grammar` lists
        all fields. The same query finds the same steps in the page.

        Examples
        --------
        >>> trace.find("op:Concat layer:3 copied>0 sort:-copied")  # doctest: +SKIP
        >>> trace.find("missed -op:Reshape live>=1.5MB or why:NO_CAPACITY")  # doctest: +SKIP

        Raises
        ------
        KvvizError
            If the query cannot be read; it says which word is not understood, and what may stand there.
        """
        return late("query.found_steps:find")(self, query)

    def to_pandas(self) -> Any:
        """The steps as a ``pandas.DataFrame``: the columns of `table`, bytes as numbers.

        Raises
        ------
        KvvizError
            If pandas is not installed.
        """
        return self.table().to_pandas()

    def caches_at(self, step: int) -> list[Any]:
        """The caches after a step, in the order of ``caches``: a `kvviz.caches.row_steps.CacheAt` for each.

        ``written`` are the rows that the run has stored up to this step, ``pending`` those that later ops of the run
        store, and ``steps`` the steps that store them. They are derived from what the ops touched, so they are empty
        for runs whose steps were not kept.

        >>> [cache.name for cache in trace.caches_at(1300) if cache.pending]  # doctest: +SKIP
        ['1.key', '1.value', '2.key', '2.value']
        """
        return list(late("caches.row_steps:caches_at")(self, step))

    def to_html(
        self, path: Any = None, *, values: int | str | None = None, hazards: bool = False, tour: Tour | None = None
    ) -> str:
        """Write the debugger to one file, without a kernel or a network; see `kvviz.view.export.to_html`."""
        return str(late("view.export:to_html")(self, path, values=values, hazards=hazards, tour=tour))

    def to_graphviz(self, step: int | None = None, *, fold: bool = True, hidden: bool = True) -> Any:
        """The graph around a step as a ``graphviz.Digraph``, which renders in a notebook where ``dot`` is installed.

        Fill, border and letter say how every op ended as of that step, as in the page's legend. Dashed red edges are
        hidden pairs: steps on the same bytes that only the schedule keeps in order; see `kvviz.hazards`.

        Parameters
        ----------
        step : int, optional
            The last one by default. Its frame is drawn: the main graph, or the body that it ran in.
        fold : bool
            Draw layers that are alike once, as they are in the layer of the step; False draws all of them.
        hidden : bool
            False leaves hidden pairs out.

        Raises
        ------
        InputError
            If there is no such step.
        """
        return late("view.graphviz_drawing:trace_drawing")(self, step, fold, hidden)

    def to_perfetto(self, path: Any) -> None:
        """Write the trace for Perfetto or chrome://tracing: slices by op, counters for memory and caches."""
        late("view.perfetto:export_perfetto")(self, path)

    def _repr_html_(self) -> str:
        return str(late("view.cards:trace_card")(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as a file holds it, with what the last run returned: it can be looked at, but not run on."""
        file = BytesIO()
        self.save(file)
        results = ({}, [], []) if self.dry else (self.outputs, self.logits, self.batch_tokens)
        return _unpickled, (file.getvalue(), *results)

    def __repr__(self) -> str:
        counts = ((len(self.steps), "step"), (len(self.runs), "run"))
        size = ", ".join(f"{n:,} {what}{'s' * (n != 1)}" for n, what in counts) + f", peak {self.peak_bytes:,} B"
        return f"<Trace of {self.title!r}: {size}, policy {self.policy.name}>"


def _unpickled(file: bytes, outputs: dict[str, Any], logits: list[np.ndarray], tokens: list[list[int]]) -> Trace:
    trace = Trace.load(BytesIO(file))
    trace.outputs, trace.logits, trace.batch_tokens = outputs, logits, tokens
    return trace
