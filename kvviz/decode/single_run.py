"""One run of a graph, with its cache meters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.caches.cache_meter import new_caches, read_meters
from kvviz.engine.plan import Counts
from kvviz.engine.policy import Policy
from kvviz.engine.recipe import Recipe, fresh
from kvviz.engine.session import Session
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from kvviz.other_names import with_other_names
from kvviz.runtimes.named_policies import find_policy
from kvviz.runtimes.policy_data import facts_of
from kvviz.trace.model_or_trace import as_graph
from kvviz.trace.recording import Trace
from kvviz.trace.run_options import RunOptions


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
        donate = (donate,) if isinstance(donate, str) else tuple(donate)
        begun = policy.feeds_inner(graph, tuple(inputs), donate, outputs) if policy.feeds_inner else graph
        super().__init__(begun, outputs, policy, record, poison, dry)
        self.feeds = dict(inputs)
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


@with_other_names
def run(
    graph: Graph | str | os.PathLike[str],
    inputs: Mapping[str, Any],
    outputs: Sequence[str] | None = None,
    donate: Sequence[str] = (),
    policy: str | Policy = "ideal",
    *,
    record: bool = True,
    poison: bool = False,
) -> Trace:
    """Run a graph once and record what it does to memory.

    Parameters
    ----------
    graph : Graph or path
        From `kvviz.load`, or the path of a model.
    inputs : mapping of str to array_like
        By name. Only donated inputs may change. The policy ``rten`` also accepts inner values: nodes that only compute
        these do not run, and inputs that nothing else reads may be left out.
    outputs : sequence of str, optional
        Values to compute (any value of the main graph); the graph's outputs by default.
    donate : sequence of str
        Inputs that the run may overwrite, or append to if they come from `kvviz.reserve`.
    policy : str or Policy
        ``"ideal"``, ``"never"``, or a `kvviz.Policy`.
    record : bool
        False counts bytes but records no steps.
    poison : bool
        Overwrite freed storages with a pattern, to catch a use after free.

    Returns
    -------
    Trace
        With ``outputs``. If the run was stopped from the keyboard, ``interrupted`` is set and the trace holds what ran.

    Raises
    ------
    InputError, UnsupportedOpsError, GraphError, OpError
        The message is one sentence. An input error changes nothing.

    Examples
    --------
    >>> trace = kvviz.run(graph, {"x": np.ones((2, 3), np.float32)}, donate=["x"])
    >>> trace.outputs["y"].shape
    (2, 3)
    """
    graph = as_graph(graph, "kvviz.run")
    return SingleRun(graph, inputs, outputs, donate, policy, record, poison).run_to_end()
