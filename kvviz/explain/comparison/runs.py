"""Runs of the same thing again and again: what one run may overwrite is copied for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.decode.public_runs import decode, dry, run
from kvviz.engine.policy import Policy
from kvviz.errors import InputError
from kvviz.graph.model import Graph
from kvviz.memory.storage import find_room, reserve, root_of


def runner(
    graph: Graph,
    inputs: Mapping[str, Any],
    prompt: Any,
    donate: Sequence[str],
    options: Mapping[str, Any],
    layouts_only: bool = False,
) -> Callable[[Policy], Any]:
    """A function that runs or decodes a graph under a policy, each time from the same inputs.

    ``layouts_only``: dry runs; without a prompt the options are those of `kvviz.dry`.

    Raises `InputError`: if something is donated to a decode, which donates its caches by itself.
    """
    donated = (donate,) if isinstance(donate, str) else tuple(donate)
    if prompt is not None:
        if donated:
            raise InputError("donate is for a single run; a decode always donates its caches")
        # Caches that the caller gave to start from are borrowed in the first run, so nothing of his is overwritten.
        quiet = {"progress": False, "dry": layouts_only, **options}
        return lambda policy: decode(graph, prompt, inputs=inputs, policy=policy, **quiet)

    if layouts_only:
        return lambda policy: dry(graph, inputs, policy=policy, donate=donated, **options)

    def once(policy: Policy) -> Any:
        fresh = {name: own_copy(value) if name in donated else value for name, value in inputs.items()}
        return run(graph, fresh, donate=donated, policy=policy, **options)

    return once


def own_copy(value: Any) -> Any:
    """A copy of an array, or of all arrays in a sequence; one that `kvviz.reserve` made keeps its room."""
    if isinstance(value, (list, tuple)):
        return [own_copy(element) for element in value]
    if not isinstance(value, np.ndarray):
        return value
    room = find_room(root_of(value), value)
    return value.copy() if room is None else reserve(value, room.axis, room.rows)
