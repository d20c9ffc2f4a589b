"""The hidden dependencies of a trace in a few words: how many pairs, of which kinds, and what keeps them in order."""

from __future__ import annotations

from itertools import islice
from typing import Any

from kvviz.explain.hidden_pairs import HiddenPair, doubts, folded, hidden_pairs
from kvviz.trace.units import count

# Runs are looked at up to so many steps, and so many kinds of pairs are named.
_MOST_STEPS, _NAMED = 40_000, 2
NONE_HIDDEN = "no hidden dependencies: the graph itself keeps all in order that share bytes"
NONE_SHOWN = "no hidden dependencies that the file shows; it does not say which ops write into memory of another tensor"

Told = tuple[str, tuple[tuple[str, str], ...], int, int | None]
"""Kind, parts of the sentence, bytes, and the step that it leads to; see `kvviz.explain.verdict.Verdict`."""


def hidden_verdict(trace: Any) -> list[Told]:
    """What is broken first, then what is hidden, or that nothing is.

    Nothing is said where ops did not declare what they touch: there finding the pairs takes longer than all the rest.
    """
    if not trace.log.declared.accesses or trace.live is not None:
        return []
    runs = [run for run in trace.runs if run.last > run.first]
    looked = [run for run in runs if run is runs[0] or run.last - runs[0].first <= _MOST_STEPS]
    where = f" in the first {count(len(looked), 'run')} of {len(runs):,}" if len(looked) < len(runs) else ""
    found = [pair for run in looked for pair in hidden_pairs(trace, run.index) if pair.exact]
    broken = [pair for pair in found if pair.hazard.broken]
    hidden = [pair for pair in found if not pair.hazard.broken]
    told: list[Told] = []
    if broken:
        words = f"{count(len(broken), 'pair')} in the wrong order{where}"
        told.append(_told("broken", words, f": {broken[0].hazard.sentence}{_ids(trace, broken[0])}", broken))
    if hidden:
        words = f"{count(len(hidden), 'hidden pair')}{doubts(hidden)}{where}"
        rest = f"; nothing but the order of the list keeps {'them' if len(hidden) > 1 else 'it'}"
        # Where the runtime itself chose what to overwrite, it did so for the order that it kept.
        rest += "" if trace.policy.decides else f": {_kinds(hidden)}"
        told.append(_told("hidden", words, f"{rest}{_ids(trace, hidden[0])}", hidden))
    none = NONE_SHOWN if any(_id(trace, run.first) for run in looked) else NONE_HIDDEN
    return told or [("unhidden", ((f"{none}{where}", ""),), 0, None)]


def _told(kind: str, words: str, rest: str, pairs: list[HiddenPair]) -> Told:
    nbytes = sum(pair.exact for pair in pairs)
    return kind, ((words, "step"), (rest, "")), nbytes, pairs[0].hazard.second


def _ids(trace: Any, pair: HiddenPair) -> str:
    """What a DOT file calls the two nodes of the first pair."""
    ids = [_id(trace, step) for step in (pair.hazard.first, pair.hazard.second)]
    return f" (the first: {ids[0]} → {ids[1]})" if all(ids) else ""


def _id(trace: Any, step: int) -> Any:
    """What the DOT file that a graph was read from calls a node; None in graphs from elsewhere."""
    return trace.steps[step].graph_node.attributes.get("id")


def _kinds(pairs: list[HiddenPair]) -> str:
    titles = folded(pairs)[1]
    more = f" and {count(len(titles) - _NAMED, 'other kind')}" if len(titles) > _NAMED else ""
    return "; ".join(islice(titles, _NAMED)) + more
