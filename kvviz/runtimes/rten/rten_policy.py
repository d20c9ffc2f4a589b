"""The policy ``rten``, and ``rten(quirks=False)``: the same runtime with every quirk put right."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from kvviz.engine.policy import Policy
from kvviz.errors import KvvizError
from kvviz.runtimes.rten.buffer_pool import RtenPool
from kvviz.runtimes.rten.dispatch_rule import RULES, Rules
from kvviz.runtimes.rten.fed_values import beginning_at
from kvviz.runtimes.rten.mended_planner import look_ahead
from kvviz.runtimes.rten.output_identity import homes
from kvviz.runtimes.rten.quirks import QUIRKS
from kvviz.runtimes.rten.rten_planner import rten as rten_order

VERSION = "c7f7bad9 (after v0.25.0)"
_ABOUT = (
    "rten's planner and dispatch rule: an op runs in place if every in-place input is owned and read for the last "
    "time; there are no views, freed buffers go to a pool"
)


def variant(quirks: bool | Iterable[str] = True) -> Policy:
    """rten as it is, or with some of its quirks corrected.

    ``quirks``: true for all of them, False for none, or the names of those to keep: see `QUIRKS`.

    Raises `KvvizError`: for a name that is not a quirk's.
    """
    kept = frozenset(QUIRKS if quirks is True else quirks or ())
    unknown = kept - set(QUIRKS)
    if unknown:
        raise KvvizError(f"rten has no quirk {sorted(unknown)[0]!r}; its quirks are {', '.join(QUIRKS)}")
    return _made(kept)


@cache
def _made(kept: frozenset[str]) -> Policy:
    rules = Rules(kept)
    return Policy(
        _name(kept),
        _ABOUT,
        VERSION,
        in_place=rules.in_place,
        schedule=rten_order if "greedy_order" in kept else look_ahead,
        captures=rules.captures,
        pool=RtenPool,
        prepare=rules.prepare,
        homes=homes,
        one_plan="cached_plan" in kept,
        feeds_inner=beginning_at,
        growth="after",
        rules=RULES,
        variants=variant,
    )


def _name(kept: frozenset[str]) -> str:
    dropped = [name for name in QUIRKS if name not in kept]
    if not dropped:
        return "rten"
    return "rten without " + ("quirks" if len(dropped) == len(QUIRKS) else ", ".join(dropped))


rten = variant()
