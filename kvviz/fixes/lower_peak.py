"""Another order of the main graph with a lower peak: searched in a model of the run, then tried on ghosts.

Invariant: the reported peak is that of a run in that order under the policy in force. A trace that cannot be run again
gets one only if the model of its runs is exact. No order has a lower peak than the reported bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvviz.errors import KvvizError
from kvviz.fixes.best_order import BestOrder, best_order
from kvviz.fixes.changes import Reorder
from kvviz.fixes.fix import Fix, is_repeatable, made_fix, replays_of
from kvviz.fixes.order_model import OrderModel, order_model
from kvviz.runtimes.schedules import Picks
from kvviz.trace.index.value_index import Index
from kvviz.trace.recording import Trace
from kvviz.trace.units import keeps_all, size

# An order is offered if it saves more than this share of the peak besides the weights.
WORTH = 1 / 10
# Larger graphs are not searched. Longer traces are not run again as a whole: an order is tried in this many runs.
_MOST_NODES, _MOST_STEPS, _RUNS = 20_000, 50_000, 16
CODE = "kvviz.explain(trace).other_order.order"


@dataclass(frozen=True, slots=True)
class OtherOrder:
    """An order that needs less memory than the one that ran; ``str()`` of it is a sentence.

    Attributes
    ----------
    name : str
        ``"the order of least peak"``, or ``"an order of lower peak"`` where it is not proven to be that.
    bytes : int
        Its peak.
    least : int
        A lower bound for the peak of all orders.
    order : Picks
        The order, as a schedule.
    fix : Fix
    """

    name: str
    bytes: int
    least: int
    order: Picks
    fix: Fix

    def __str__(self) -> str:
        return self.fix.sentence


def lower_peak(index: Index) -> OtherOrder | None:
    """The best order that is found for the run with the highest peak, if it needs much less than that of the trace.
    Main graphs of up to 20,000 ops are searched. For a graph of some tens of ops, or a long chain, the best order is
    exact."""
    trace = index.trace
    if not index.rows or not trace.policy.decides or trace.graph.spelled is not None or not keeps_all(trace):
        return None
    if len(index.frames[0].program.order) > _MOST_NODES or not is_repeatable(index, len(index.rows) - 1):
        return None
    run = max((run for run in trace.runs if run.index in index.mains), key=lambda run: run.peak_bytes)
    model = order_model(index, run.index)
    enough = trace.peak_bytes - int(WORTH * (trace.peak_bytes - model.weights)) - 1
    bound = model if model.exact else order_model(index, run.index, loose=True)
    found = best_order(bound, enough)
    least = found.least
    if least > enough:
        return None
    if bound is not model:
        found = best_order(model)
    order = _picks(trace, model, found)
    peak = _tried(index, order)
    looked_at = len(index.mains)
    if peak is None:
        peak, looked_at = _modelled(index, model, found)
    if peak is None or peak > enough:
        return None
    name = "the order of least peak" if peak == least else "an order of lower peak"
    return OtherOrder(name, peak, least, order, _fix(index, model.weights, name, order, peak, least, looked_at))


def _picks(trace: Trace, model: OrderModel, found: BestOrder) -> Picks:
    recorded = Picks.of(trace)
    main = tuple(((), model.nodes[place].index) for place in found.order)
    return Picks((*main, *(pick for pick in recorded.picks if pick[0] != ())), recorded.model)


def _tried(index: Index, order: Picks) -> int | None:
    """The peak of a run on ghosts in another order, under the policy in force; None if it is not known."""
    if len(index.rows) > _MOST_STEPS:
        return None
    trace = index.trace
    try:
        replays = replays_of(index, False)
        peak: int = replays.whole((Reorder("", CODE, order),)).peak_bytes
        # A file does not have the sizes of weights that no op reads.
        return peak if trace.recipe is not None else peak + trace.peak_bytes - replays.whole(()).peak_bytes
    except KvvizError:
        return None


def _modelled(index: Index, model: OrderModel, found: BestOrder) -> tuple[int | None, int]:
    """The peak by models of the runs, None if they are not exact, and the number of runs."""
    runs, few = list(index.mains), len(index.rows) <= _MOST_STEPS
    looked_at = runs if few else sorted({runs[at * (len(runs) - 1) // (_RUNS - 1)] for at in range(_RUNS)})
    most = found.peak
    for run in looked_at:
        other = order_model(index, run)
        place = {node.index: place for place, node in enumerate(other.nodes)}
        order = [place.get(model.nodes[op].index, -1) for op in found.order]
        if not other.exact or sorted(order) != list(range(len(other.nodes))):
            return None, 0
        most = max(most, other.peak(order))
    return most, len(looked_at)


def _fix(index: Index, weights: int, name: str, order: Picks, peak: int, least: int, looked_at: int) -> Fix:
    trace, changes = index.trace, (Reorder(name, CODE, order),)
    beside = " beside the weights" if weights else ""
    part = (
        "" if looked_at == len(index.mains) else f" in the {looked_at} of {len(index.mains):,} runs that were looked at"
    )
    text = (
        f"Another order of the main graph needs {size(peak - weights)} instead of "
        f"{size(trace.peak_bytes - weights)}{beside}{part}; {_bound(peak - weights, least - weights)}."
    )
    return made_fix(trace, changes, text, trace.peak_bytes - peak)


def _bound(peak: int, least: int) -> str:
    if peak == least:
        return "no order needs less"
    text = f"no order needs less than {size(least)}"
    part = math.ceil(100 * (peak / least - 1)) if least else 100
    return f"{text} (within {part} % of any order)" if part <= 50 else text
