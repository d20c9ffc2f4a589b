"""Which keys each query may see, from lengths and windows, and from mask tensors.

A query at absolute position ``p = offset + i`` sees the keys ``[lo, hi)``: causal gives ``hi = p + 1``, a right
window ``hi = p + right + 1``, a left window ``lo = p - left``, a count of valid rows ``hi = valid``. The narrowest
bound wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvviz.errors import OpError


@dataclass(frozen=True, slots=True)
class Visible:
    """What the queries of one call may see; keys outside ``start`` and ``stop`` need not be read."""

    start: int
    stop: int
    # ``(queries, stop - start)`` or ``(batch, 1, queries, stop - start)``; None where all see all of the span
    allowed: np.ndarray | None = None


def visible(
    queries: int,
    keys: int,
    *,
    offsets: Sequence[int] = (0,),
    causal: bool = False,
    left: int = -1,
    right: int = -1,
    valid: Sequence[int] | None = None,
    trim: bool = True,
) -> Visible:
    """The keys that causality, a window and the count of ``valid`` rows leave to each query. ``offsets`` has the
    position of query 0 among the keys, once or by batch entry. A query sees ``left`` keys before and ``right`` keys
    after its own; -1 is no bound. ``trim``: the span may be narrower than all keys."""
    if not causal and left < 0 and right < 0 and valid is None:
        return Visible(0, keys)
    if trim and queries == 1 and len(offsets) == 1 and (valid is None or len(valid) == 1):
        # One token of one sequence, the case of every decode step, sees one run of keys.
        place = offsets[0]
        stop = keys if valid is None else min(keys, valid[0])
        if causal:
            stop = min(stop, place + 1)
        if right >= 0:
            stop = min(stop, place + right + 1)
        return Visible(max(0, place - left) if left >= 0 else 0, max(stop, 0))
    places = np.array(offsets, np.int64).reshape(-1, 1) + np.arange(queries)
    high = np.full((1, 1), keys) if valid is None else np.array(valid, np.int64).reshape(-1, 1).clip(0, keys)
    if causal:
        high = np.minimum(high, places + 1)
    if right >= 0:
        high = np.minimum(high, places + right + 1)
    low = places - left if left >= 0 else np.zeros((1, 1), np.int64)
    start, stop = 0, keys
    if trim:
        start, stop = max(int(low.min(initial=keys)), 0), max(int(high.max(initial=0)), 0)
    if stop <= start:
        return Visible(0, 0)
    if low.max(initial=0) <= start and high.min(initial=keys) >= stop:
        return Visible(start, stop)
    ramp = np.arange(start, stop)
    allowed = ramp < high[..., None]
    if left >= 0:
        allowed = allowed & (ramp >= low[..., None])
    return Visible(start, stop, allowed[0] if len(allowed) == 1 else allowed[:, None])


def padding_seen(mask: np.ndarray, batch: int, queries: int, keys: int) -> np.ndarray | None:
    """Keys that a mask of onnxruntime's encoder operators leaves, ``(batch, 1 or queries, keys)``; None for other forms
    than ``(batch,)`` ends, ``(2·batch,)`` ends and then starts, ``(3·batch + 2,)`` ends and then offsets that nobody
    reads, or 1 (seen) and 0 by key or by pair."""
    places = np.arange(keys)
    if mask.shape == (batch, keys):
        return (mask > 0)[:, None]
    if mask.shape == (batch, queries, keys):
        return mask > 0
    if mask.shape in ((batch,), (3 * batch + 2,)):
        return (places < mask[:batch, None])[:, None]
    if mask.shape == (2 * batch,):
        ends, starts = mask.reshape(2, batch, 1)
        return ((places < ends) & (places >= starts))[:, None]
    return None


def reaching(mask: np.ndarray, keys: int) -> np.ndarray:
    """A mask of Attention-23, which broadcasts to all keys as NumPy does; only opset 24 brought shorter ones."""
    if not mask.ndim or mask.shape[-1] == keys:
        return mask
    if mask.shape[-1] != 1:
        raise OpError(f"attn_mask of shape {mask.shape} does not broadcast to {keys} keys, as it must before opset 24")
    return np.broadcast_to(mask, (*mask.shape[:-1], keys))


def check_bias(bias: np.ndarray | None, batch: int, heads: int, queries: int, keys: int) -> None:
    """An attention_bias of com.microsoft has four dimensions and repeats over the first two only."""
    if bias is not None and (
        bias.ndim != 4
        or bias.shape[0] not in (1, batch)
        or bias.shape[1] not in (1, heads)
        or bias.shape[2:] != (queries, keys)
    ):
        wanted = f"(1 or {batch}, 1 or {heads}, {queries}, {keys})"
        raise OpError(f"attention_bias must have shape {wanted}, but has {bias.shape}")


def with_mask(
    seen: Visible, mask: np.ndarray, shape: tuple[int, int, int, int], dtype: np.dtype
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Join a mask tensor, of booleans or numbers to add, to what lengths allow: (allowed, added) over the span. A mask
    that is shorter on the last axis hides the keys that it does not reach. A key with -inf to add counts as not
    allowed, so that rows without any key are known. ``shape`` is that of the scores before the span is cut out."""
    keys = shape[3]
    reach = mask.shape[-1] if mask.ndim else 0
    if reach > keys:
        raise OpError(f"attn_mask of shape {mask.shape} is longer than the {keys} keys")
    tail = shape[4 - mask.ndim :] if mask.ndim <= 4 else ()
    if not tail or any(have not in (1, want) for have, want in zip(mask.shape[:-1], tail)):
        raise OpError(f"attn_mask of shape {mask.shape} does not broadcast to {shape}")
    allowed, added = seen.allowed, None
    if reach < seen.stop:
        hidden = np.arange(seen.start, seen.stop) < reach
        allowed = hidden if allowed is None else allowed & hidden
        fill = np.zeros((*mask.shape[:-1], seen.stop - reach), mask.dtype)
        mask = np.concatenate((mask, fill), axis=-1)
    part = mask[..., seen.start : seen.stop]
    if mask.dtype == np.bool_:
        return part if allowed is None else allowed & part, None
    if not part.any():
        # Nothing but zeros, as in a decode step without padding: to add them would be two more passes.
        return allowed, None
    added = part.astype(dtype, copy=False)
    finite = added != -np.inf
    if not finite.all():
        allowed = finite if allowed is None else allowed & finite
    return allowed, added
