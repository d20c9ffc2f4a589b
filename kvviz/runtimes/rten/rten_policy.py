"""The policy ``rten``, and ``rten(quirks=False)``: the same runtime with every quirk put right."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from kvviz.engine.plans.policy import Policy
from kvviz.errors import KvvizError
from kvviz.runtimes.rten.buffer_pool import RtenPool
from kvviz.runtimes.rten.dispatch_rule import RULES, Rules
from kvviz.runtimes.rten.fed_values import beginning_at
from kvviz.runtimes.rten.output_identity import homes
from kvviz.runtimes.rten.quirks import QUIRKS
from kvviz.runtimes.rten.rten_planner import look_ahead
from kvviz.runtimes.rten.rten_planner import rten as rten_order

BY_REFERENCE = "by_reference"
VERSION = "c7f7bad9 (after v0.25.0)"
_ABOUT = (
    "rten's planner and dispatch rule: an op runs in place if every in-place input is owned and read for the last "
    "time; there are no views, freed buffers go to a pool"
)


def variant(quirks: bool | Iterable[str] = True, captures: str = "by_value") -> Policy:
    """rten as it is, or with some of its quirks corrected, or as it was before it handed captured values over.

    ``quirks``: true for all of them, False for none, or the names of those to keep: see `QUIRKS`.
    ``captures``: ``"by_value"``: a body takes over what only it needs, as since v0.14.1 (rten's issue 399, pull
      request 407: ``CaptureEnv`` has values of its own since). ``"by_reference"``: it borrows whatever it captures.

    Raises `KvvizError`: for a name that is not a quirk's, or another way to capture.
    """
    if isinstance(quirks, bool):
        quirks = QUIRKS if quirks else ()
    elif isinstance(quirks, str) or not isinstance(quirks, Iterable):
        raise KvvizError(f"quirks of rten are True, False or a list of names, not {quirks!r}")
    kept = frozenset(quirks)
    unknown = kept - set(QUIRKS)
    if unknown:
        raise KvvizError(f"rten has no quirk {sorted(unknown)[0]!r}; its quirks are {', '.join(QUIRKS)}")
    if captures not in ("by_value", BY_REFERENCE):
        raise KvvizError(f"rten captures 'by_value' or 'by_reference', not {captures!r}")
    return _made(kept, captures == BY_REFERENCE)


@cache
def _made(kept: frozenset[str], lends: bool) -> Policy:
    rules = Rules(kept, lends)
    return Policy(
        _name(kept) + (", captures by reference" if lends else ""),
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
