"""The parts that all attention operators share: scores, softmax, the product with the values, and appending to a
cache."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.maths.matmul import product
from kvviz.ops.numeric import contiguous


def to_heads(x: np.ndarray, heads: int, name: str) -> np.ndarray:
    """View (batch, sequence, heads·size) as (batch, heads, sequence, size)."""
    if x.ndim != 3:
        raise OpError(f"{name} must have 3 dimensions, but has shape {x.shape}")
    batch, length, width = x.shape
    if heads <= 0 or width % heads:
        raise OpError(f"{name} of shape {x.shape} does not divide into {heads} heads")
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def from_heads(x: np.ndarray) -> np.ndarray:
    batch, heads, length, size = x.shape
    # Heads of one element can be joined as a view, which is not in C order.
    return contiguous(x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size))


def scores(q: np.ndarray, k: np.ndarray, scale: float) -> np.ndarray:
    """Scaled products of queries and keys, ``(batch, query heads, queries, keys)``. Query heads that share a key head
    are folded into the rows of one product, so keys are never repeated in memory. Half precisions follow ONNX step by
    step: √scale into both sides, the product rounded once."""
    batch, heads, length, size = q.shape
    shared = k.shape[1]
    if q.dtype.itemsize < 4:
        root = q.dtype.type(math.sqrt(scale))
        q, k, kind = (q * root).astype(np.float32), (k * root).astype(np.float32), q.dtype
    else:
        q, kind = q * q.dtype.type(scale), None
    rows = heads // shared * length
    if heads != shared:
        q = q.reshape(batch, shared, rows, size)
    found = product(q, k.swapaxes(2, 3))
    if kind is not None:
        found = found.astype(kind)
    return found.reshape(batch, heads, length, k.shape[2])


def weigh(p: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Probabilities times values: ``(batch, query heads, queries, value size)`` in C order."""
    batch, heads, length, keys = p.shape
    shared, size = v.shape[1], v.shape[3]
    half = p.dtype.itemsize < 4
    if half:
        kind, p, v = p.dtype, p.astype(np.float32), v.astype(np.float32)
    rows = heads // shared * length
    p = p.reshape(batch, shared, rows, keys)
    y = np.matmul(p, v)
    return (y.astype(kind) if half else y).reshape(batch, heads, length, size)


def cap(x: np.ndarray, softcap: float) -> np.ndarray:
    limit = x.dtype.type(softcap)
    x /= limit
    np.tanh(x, out=x)
    x *= limit
    return x


def softmax_rows(x: np.ndarray, guarded: bool, sink: np.ndarray | None = None) -> np.ndarray:
    """Softmax of the last axis, in place. ``guarded``: a row that is -inf throughout becomes 0, not NaN. ``sink``: one
    more score per row that takes its share and has no value."""
    if x.shape[-1] == 0:
        return x
    top = np.maximum.reduce(x, axis=-1, keepdims=True)
    if sink is not None:
        np.maximum(top, sink, out=top)
    elif guarded:
        dead = top == -np.inf
        guarded = bool(dead.any())
        if guarded:
            top[dead] = 0
    x -= top
    np.exp(x, out=x)
    total = np.add.reduce(x, axis=-1, keepdims=True)
    if sink is not None:
        total += np.exp(sink - top)
    elif guarded:
        total[dead] = 1
    x /= total
    return x


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float,
    *,
    softcap: float = 0.0,
    added: Iterable[np.ndarray | None] = (),
    allowed: np.ndarray | None = None,
    sink: np.ndarray | None = None,
    precision: np.dtype | None = None,
    kept: int = -1,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Attention by head, and one intermediate result: the scores (``kept`` 0), capped (1), with ``added`` and without
    hidden keys (2), or the weights (3). ``allowed``: keys that each query may see; ``sink``: as in `softmax_rows`;
    ``precision``: of the softmax."""
    x, hidden = scores(q, k, scale), None if allowed is None else ~allowed
    found = x.copy() if kept == 0 else None
    if softcap > 0:
        x = cap(x, softcap)
    if kept == 1:
        found = x.copy()
    for part in added:
        if part is not None:
            x += part
    if hidden is not None:
        np.copyto(x, -np.inf, where=hidden)
    if kept == 2:
        found = x.copy()
    if precision is not None:
        x = x.astype(precision, copy=False)
    p = softmax_rows(x, guarded=hidden is not None, sink=sink).astype(q.dtype, copy=False)
    return weigh(p, v), p if kept == 3 else found


def attend_wide(q, k, v, scale, *, sink=None, **how):
    kind = q.dtype
    if kind.itemsize < 4:
        q, k, v = q.astype(np.float32), k.astype(np.float32), v.astype(np.float32)
    y, kept = attend(q, k, v, scale, sink=None if sink is None else sink.astype(q.dtype, copy=False), **how)
    with np.errstate(over="ignore"):
        # Half precision has no equal of a mask's lowest number.
        return y.astype(kind, copy=False), None if kept is None else kept.astype(kind, copy=False)


def check_pasts(key: np.ndarray | None, value: np.ndarray | None, k: np.ndarray, v: np.ndarray) -> None:
    """Keys and values have both a past or neither, of as many rows, and both accept the new rows ``k`` and ``v``:
    checked before anything is written."""
    if key is None and value is None:
        return
    if key is None or value is None:
        raise OpError("past_key and past_value must be given together")
    for past, new, name in ((key, k, "past_key"), (value, v, "past_value")):
        if past.ndim != 4:
            raise OpError(f"{name} must have 4 dimensions, but has shape {past.shape}")
        if past.shape[:2] != new.shape[:2] or past.shape[3] != new.shape[3]:
            raise OpError(f"{name} of shape {past.shape} does not take new rows of shape {new.shape}")
    if key.shape[2] != value.shape[2]:
        raise OpError(f"past_key holds {key.shape[2]} rows and past_value {value.shape[2]}")


def append(past: np.ndarray, new: np.ndarray, grown: np.ndarray | None) -> np.ndarray:
    """The past followed by the new rows, along axis 2; only the new rows are written if ``grown`` holds the past."""
    batch, heads, rows, size = past.shape
    if grown is None:
        grown = np.empty((batch, heads, rows + new.shape[2], size), past.dtype)
        grown[:, :, :rows] = past
    grown[:, :, rows:] = new
    return grown


def cache_cost(
    args: Sequence[Any], outs: Any, pairs: Sequence[tuple[int, int]], sources: Sequence[int], new: int
) -> tuple[int, int]:
    """Bytes (written, copied) by an operator that keeps its cache inside. ``pairs``: positions of pasts and presents.
    ``sources``: inputs that a present may be a view of, if there is no past. ``new``: bytes of new rows of the
    first present; rows of the other may have another size."""
    outs = outs if isinstance(outs, (tuple, list)) else (outs,)
    caches = {output: position for position, output in pairs}
    first = next((outs[at].nbytes for at in caches if at < len(outs) and outs[at] is not None), 0)
    written = copied = 0
    for i, out in enumerate(outs):
        if out is None:
            continue
        if i not in caches:
            written += out.nbytes
            continue
        past = args[caches[i]] if caches[i] < len(args) else None
        if past is None:
            views = (args[s] for s in sources if s < len(args) and args[s] is not None)
            written += 0 if any(np.may_share_memory(out, x) for x in views) else out.nbytes
        elif past.size and np.may_share_memory(out, past):
            written += new * out.nbytes // (first or 1)
        else:
            written += out.nbytes
            copied += min(past.nbytes, out.nbytes)
    return written, copied


# -- attention mask ---------------------------------------------------------------------------------------------------
# Which keys each query may see, from lengths and windows, and from mask tensors.
#
# A query at absolute position ``p = offset + i`` sees the keys ``[lo, hi)``: causal gives ``hi = p + 1``, a right
# window ``hi = p + right + 1``, a left window ``lo = p - left``, a count of valid rows ``hi = valid``. The narrowest
# bound wins.


@dataclass(frozen=True, slots=True)
class Visible:
    """The keys that the queries of one call may see; keys outside ``start`` and ``stop`` need not be read."""

    start: int
    stop: int
    # ``(queries, stop - start)`` or ``(batch, 1, queries, stop - start)``; None if all see all of the span
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
    after its own; -1 is no limit. ``trim``: the span may be narrower than all keys."""
    if not causal and left < 0 and right < 0 and valid is None:
        return Visible(0, keys)
    if trim and queries == 1 and len(offsets) == 1 and (valid is None or len(valid) == 1):
        # One token of one sequence, as in every decode step, sees one run of keys.
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
    """Keys that a mask of onnxruntime's encoder operators leaves, ``(batch, 1 or queries, keys)``; None for forms other
    than ``(batch,)`` ends, ``(2·batch,)`` ends and then starts, ``(3·batch + 2,)`` ends and then unused offsets, or 1
    (seen) and 0 by key or by pair."""
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
    """A mask of Attention-23, which broadcasts to all keys as NumPy does; opset 24 introduced shorter ones."""
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
    """Combine a mask tensor, of booleans or numbers to add, with what lengths allow: (allowed, added) over the span. A
    mask that is shorter on the last axis hides the keys beyond. A key with -inf to add counts as not allowed, so that
    rows without any key are known. ``shape`` is that of the scores before the span is cut out."""
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
        # Only zeros, as in a decode step without padding: adding them would take two more passes.
        return allowed, None
    added = part.astype(dtype, copy=False)
    finite = added != -np.inf
    if not finite.all():
        allowed = finite if allowed is None else allowed & finite
    return allowed, added
