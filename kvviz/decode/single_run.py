"""One run of a graph, with its cache meters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.caches.cache_meter import new_caches, read_meters
from kvviz.engine.plans.plan import Counts
from kvviz.engine.plans.policy import Policy
from kvviz.engine.sessions.recipe import Recipe, fresh
from kvviz.engine.sessions.session import Session
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from kvviz.runtimes.named_policies import facts_of, find_policy
from kvviz.trace.model_or_trace import as_inputs
from kvviz.trace.schema.run_options import RunOptions, names_in


class SingleRun(Session):
    """One run that can be advanced op by op; parameters as in `run`."""

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
    ) -> None:
        policy = find_policy(policy)
        donate = names_in(donate)
        begun = policy.feeds_inner(graph, tuple(inputs), donate, outputs) if policy.feeds_inner else graph
        super().__init__(begun, outputs, policy, record, poison, dry)
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
