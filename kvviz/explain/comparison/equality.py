"""Whether two traces gave the same results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvviz.trace.recording import Trace
from kvviz.trace.units import short

TOLERANCE = 1e-5


def unlike(trace: Trace, reference: Trace) -> tuple[bool | None, str]:
    """Compare the results of a trace with those of another one.

    ``equal``: whether all common results agree within `TOLERANCE`, relative or absolute; tokens, integers and shapes
      exactly. None if one of them is a dry run.
    ``text``: the largest difference, or what one of them lacks; empty if everything agrees.
    """
    if trace.dry or reference.dry:
        return None, "dry run, no results"
    if trace is reference:
        return True, ""
    worst, text, equal = 0.0, "", True
    for name, have, want in _results(trace, reference):
        difference = _difference(have, want)
        if isinstance(difference, str):
            return False, f"{short(name, 40)} {difference}"
        size, within = difference
        if size > worst or (not within and equal):
            worst, text = size, f"{short(name, 40)}: off by {size:.2g}"
        equal = equal and within
    missing = [name for name in reference.outputs if name not in trace.outputs]
    missing += [name for name in trace.outputs if name not in reference.outputs]
    if missing and not text:
        text = f"only one of them computed {', '.join(short(name, 40) for name in missing[:3])}"
    return equal, text


def _results(trace: Trace, reference: Trace) -> Iterator[tuple[str, Any, Any]]:
    """Name and both values of every result: tokens and logits of a decode, results of every run of a stream."""
    if trace.prompt or reference.prompt:
        yield "tokens", [np.array(row) for row in trace.batch_tokens], [np.array(r) for r in reference.batch_tokens]
        for run, (have, want) in enumerate(zip(trace.logits, reference.logits)):
            yield f"the logits of run {run}", have, want
    for run, (have, want) in enumerate(zip(trace.results, reference.results)):
        for name in have:
            yield f"{name} of run {run}", have[name], want[name]
    for name, have in trace.outputs.items():
        if name in reference.outputs:
            yield name, have, reference.outputs[name]


def _difference(have: Any, want: Any) -> tuple[float, bool] | str:
    """The largest difference and whether it is within the tolerance, or a text on a difference in kind."""
    if isinstance(have, (list, tuple)) and isinstance(want, (list, tuple)):
        if len(have) != len(want):
            return f"has {len(have)} elements, not {len(want)}"
        found = [_difference(mine, theirs) for mine, theirs in zip(have, want)]
        wrong = next((f for f in found if isinstance(f, str)), None)
        if wrong is not None:
            return wrong
        pairs = [f for f in found if not isinstance(f, str)]
        return max((size for size, _ in pairs), default=0.0), all(within for _, within in pairs)
    if not (isinstance(have, np.ndarray) and isinstance(want, np.ndarray)):
        return (0.0, True) if type(have) is type(want) else "is of another kind"
    if have.shape != want.shape or have.dtype != want.dtype:
        return f"is {have.dtype}{list(have.shape)}, not {want.dtype}{list(want.shape)}"
    if have.dtype == object or have.dtype.kind in "USb":
        same = bool((have == want).all())
        return (0.0, True) if same else "has other elements"
    if have.tobytes() == want.tobytes():
        return 0.0, True
    kind: type = np.complex128 if have.dtype.kind == "c" else np.float64
    mine: np.ndarray = have.astype(kind)
    theirs: np.ndarray = want.astype(kind)
    exact = have.dtype.kind in "iu"
    within = bool(np.allclose(mine, theirs, 0 if exact else TOLERANCE, 0 if exact else TOLERANCE, equal_nan=True))
    if (np.isnan(mine) != np.isnan(theirs)).any():
        return "has NaN at other places"
    with np.errstate(invalid="ignore"):
        gaps = np.abs(mine - theirs)
    return float(gaps.max(initial=0.0, where=~np.isnan(gaps))), within
