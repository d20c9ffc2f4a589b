"""A session of one run, and one of a recurrent graph that gets chunks of input and carries its states along."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.caches.cache_meter import new_caches, read_meters
from kvviz.collector import unwatched
from kvviz.decode.run_inputs import first_caches
from kvviz.engine.plan import Counts, Plan
from kvviz.engine.planning import main_plan
from kvviz.engine.policy import Policy
from kvviz.engine.program.step_program import StepProgram
from kvviz.engine.sessions.recipe import Kept, Recipe, fresh
from kvviz.engine.sessions.replay import BUDGET
from kvviz.engine.sessions.session import Session, note_interrupt, whole
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from kvviz.interrupts import held_back
from kvviz.other_names import with_other_names
from kvviz.runtimes.named_policies import facts_of, find_policy
from kvviz.trace.model_or_trace import as_graph, as_inputs
from kvviz.trace.recording import Trace
from kvviz.trace.schema.run_options import RunOptions, names_in

_NOTHING = frozenset[str]()


class SingleRun(Session):
    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        donate: Sequence[str] = (),
        policy: str | Policy = "ideal",
        record: bool = True,
        poison: bool = False,
        dry: Counts | None = None,
        plan: Plan | None = None,
    ) -> None:
        policy = find_policy(policy)
        donate = names_in(donate)
        begun = policy.feeds_inner(graph, tuple(inputs), donate, outputs) if policy.feeds_inner else graph
        super().__init__(begun, outputs, policy, record, poison, dry, plan)
        self.feeds = as_inputs(inputs)
        self.trace.policy = facts_of(policy)
        self.trace.options = RunOptions("run", donate, dry=dry is not None)
        self.begin(self.feeds, donate)
        runs = self.trace.replayer.runs
        self.trace.recipe = Recipe(
            SingleRun,
            {
                "graph": graph,
                "outputs": outputs,
                "donate": donate,
                "policy": self.policy,
                "record": record,
                "poison": poison,
                "dry": dry,
            },
            lambda: {"inputs": fresh(runs[0] and runs[0].kept)},
        )

    def ended(self, outputs: dict[str, Any]) -> None:
        if self.recorder.on:
            pairs = tuple(pair for pair in cache_pairs(self.graph) if pair.output in outputs)
            self.trace.caches = new_caches(pairs)
            read_meters(self.trace, self.feeds)


def again(graph: Graph, inputs: Any, outputs: Sequence[str] | None, policy: str | Policy, record: bool) -> Trace | None:
    """Run a graph that ran before on such inputs, by its `PreparedCall`; None if it has none for them. The trace is
    made, by a second run, when something of it is asked but the outputs."""
    policy = find_policy(policy)
    if policy.feeds_inner or not isinstance(inputs, Mapping):
        return None
    plan = main_plan(graph, None if outputs is None else tuple(outputs), policy)
    program: StepProgram | None = plan.programs.get(_NOTHING)
    call = None if program is None or program.watches else program.call
    if program is None or call is None or not call.fits(inputs) or Kept.size(inputs) > BUDGET:
        return None

    def step_by_step(feeds: Mapping[str, Any]) -> Trace:
        return SingleRun(graph, feeds, outputs, (), policy, record, plan=plan).run_to_end()

    def made() -> Trace:
        call.was_read()
        return whole(step_by_step(kept.fresh()))

    with held_back(), unwatched(), np.errstate(all="ignore"):
        results = call.run(inputs)
        program.called(results is not None)
        if results is None:
            return step_by_step(inputs)
        kept = Kept(inputs, call.options.given)
        return note_interrupt(Trace.later(made, results, call.options))


@with_other_names
def stream(
    graph: Graph | str | os.PathLike[str],
    chunks: Sequence[Mapping[str, Any]],
    states: Mapping[str, Any] | None = None,
    policy: str | Policy = "ideal",
    *,
    record: bool = True,
    poison: bool = False,
    donate: Sequence[str] = (),
) -> Trace:
    """Run a recurrent graph over chunks of input, carrying its states along.

    Parameters
    ----------
    graph : Graph or path
    chunks : sequence of mappings
        The inputs of each run, without the states.
    states : mapping, optional
        Initial states; zeros by default.
    policy : str or Policy
    record, poison : bool
        As in `kvviz.run`.
    donate : sequence of str
        Inputs that every run may overwrite: those of the chunks, and the states to start from. The states of earlier
        runs are always donated.

    Returns
    -------
    Trace
        ``results`` has the outputs of every run that are not states.
    """
    graph = as_graph(graph, "kvviz.stream")
    return StreamSession(graph, chunks, states or {}, policy, record, poison, donate).run_to_end()


class StreamSession(Session):
    def __init__(
        self,
        graph: Graph,
        chunks: Sequence[Mapping[str, Any]],
        states: Mapping[str, Any],
        policy: str | Policy = "ideal",
        record: bool = True,
        poison: bool = False,
        donate: Sequence[str] = (),
    ) -> None:
        super().__init__(graph, None, find_policy(policy), record, poison)
        self.chunks = list(chunks)
        self.donated = names_in(donate)
        self.pairs = cache_pairs(graph)
        self.given = frozenset(states)
        self.states: dict[str, Any] = first_caches(graph, self.pairs, 1, None, states, 0)
        self.carried: dict[str, tuple[int, str]] = {}
        self.trace.caches = new_caches(self.pairs)
        self.trace.policy = facts_of(self.policy)
        self.trace.options = RunOptions("stream", self.donated)
        self.trace.recipe = self._recipe(tuple(states))

    def next_run(self) -> bool:
        run = len(self.trace.runs)
        if run >= len(self.chunks):
            return False
        self.feeds = {**self.chunks[run], **self.states}
        # The initial states of the first run are the caller's, unless zeros were made for it.
        own = [pair.input for pair in self.pairs if run or pair.input not in self.given]
        self.begin(self.feeds, list(dict.fromkeys((*own, *self.donated))), self.carried)
        return True

    def ended(self, outputs: dict[str, Any]) -> None:
        if self.recorder.on:
            read_meters(self.trace, self.feeds)
        carried = {pair.output for pair in self.pairs}
        self.trace.results.append({name: value for name, value in outputs.items() if name not in carried})
        for pair in self.pairs:
            self.states[pair.input] = outputs[pair.output]
            self.carried[pair.input] = (len(self.trace.runs) - 1, pair.output)

    def _recipe(self, states: tuple[str, ...]) -> Recipe:
        """How to run the same stream again; chunks that have not run are the caller's current ones."""
        options = {
            "graph": self.graph,
            "policy": self.policy,
            "record": self.recorder.on,
            "poison": self.recorder.ledger.poisoned,
            "donate": self.donated,
        }
        runs, chunks = self.trace.replayer.runs, self.chunks

        def given() -> dict[str, Any]:
            fed = [fresh(run and run.kept) for run in runs]
            first = fed[0] if fed else {}
            ran = [{name: inputs[name] for name in chunk} for inputs, chunk in zip(fed, chunks)]
            return {"chunks": [*ran, *chunks[len(ran) :]], "states": {name: first[name] for name in states}}

        return Recipe(StreamSession, options, given)
