"""Which rows of a cache the attention of a run may see, by lengths, windows and known masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kvviz.caches.control_values import Known
from kvviz.caches.path_search import SCORES, Reader
from kvviz.caches.row_contents import spans_of
from kvviz.caches.row_writes import first_kept, grouped_rows, rows_ahead
from kvviz.graph.cache_writes import MS
from kvviz.graph.model import Node
from kvviz.ops.transformer.attention_core import padding_seen, visible
from kvviz.ops.transformer.contrib_attention import resident
from kvviz.trace.records import Span


@dataclass(frozen=True, slots=True)
class Sight:
    allowed: np.ndarray  # ``(batch or 1, queries, keys)``
    start: int  # the cache's row (after the run) that key 0 is; negative where earlier rows have left the cache
    keys: int  # how many of the keys are rows of the cache

    def rows(self) -> list[tuple[Span, ...]]:
        """Rows that at least one query may see, by batch entry; one entry if all are alike."""
        seen = self.allowed[..., : self.keys].any(axis=1)
        found = [spans_of(row) for row in np.atleast_2d(seen)]
        found = found[:1] if len(set(found)) == 1 else found
        return [tuple((a + self.start, b + self.start) for a, b in spans) for spans in found]


def sight_of(known: Known, reader: Reader, axis: int) -> Sight | None:
    """What a reader may see; None if its mask depends on more than the control inputs, or if it did not run."""
    if known.step(reader.frame, reader.node.index) is None:
        return None
    allowed = _allowed(known, reader)
    if allowed is None:
        return None
    start, keys = cut_of(known, reader, axis, allowed.shape[-1])
    return Sight(allowed, start, keys)


def cut_of(known: Known, reader: Reader, axis: int, keys: int) -> tuple[int, int]:
    """The row of the cache (after the run) that is key 0 of a reader, and the number of its keys that are rows."""
    start = -_dropped(known, reader, axis)
    if reader.node.op_type == "GroupQueryAttention" and reader.node.attributes.get("sliding_window_cache"):
        start -= _evicted(known, reader)
    for frame, node, name in reader.cuts:
        start, keys = _through(known, frame, node, name, start, keys)
    return start, keys


def _allowed(known: Known, reader: Reader) -> np.ndarray | None:
    """The keys that the queries of an attention may see, ``(batch or 1, queries, keys)``."""
    if reader.kind == "softmax":
        return of_softmax(known, reader.frame, reader.node)
    rule = _OPERATORS.get((reader.node.domain, reader.node.op_type))
    return None if rule is None else rule(known, reader)


def window_of(reader: Reader) -> int:
    """The maximum number of tokens that a query sees by the operator's attributes, its own included; 0 for no limit."""
    given = reader.node.attributes
    if given.get("left_window_size", -1) >= 0:
        return int(given["left_window_size"]) + 1
    return max(int(given.get("local_window_size", 0)), 0)


def _dropped(known: Known, reader: Reader, axis: int) -> int:
    """Number of rows at the front that left the cache after it was read."""
    gone = 0
    for link in reader.after:
        before = known.shape(link.frame, link.node.inputs[link.past]) if link.past >= 0 else None
        after = known.shape(link.frame, link.node.outputs[link.output])
        if link.node.op_type == "Slice" and before and after and axis < len(before):
            gone += first_kept(known, link.frame, link.node, before[axis], after[axis], axis)
    return gone


def _through(known: Known, frame: int, node: Node, name: str, start: int, keys: int) -> tuple[int, int]:
    """A Slice or a Concat between the cache and the attention."""
    before, after = known.shape(frame, name), known.shape(frame, node.outputs[0])
    if before is None or after is None or len(before) != len(after):
        return start, keys
    axis = next((i for i, (n, m) in enumerate(zip(before, after)) if n != m), None)
    # Slices and joins along the head dimension do not affect rows.
    if axis is None or after[axis] != keys:
        return start, keys
    if node.op_type == "Slice":
        return start + first_kept(known, frame, node, before[axis], after[axis], axis), keys
    ahead = rows_ahead(known, frame, node, node.inputs.index(name), axis)
    return (start, min(keys, before[axis])) if not ahead else (start - ahead, keys)


# -- attention inside an operator -------------------------------------------------------------------------------------


def _of_attention(known: Known, reader: Reader) -> np.ndarray | None:
    frame, node = reader.frame, reader.node
    query, key = (known.shape(frame, node.inputs[place]) for place in (0, 1))
    if query is None or key is None:
        return None
    queries, keys = query[-2], key[-2]
    past = known.shape(frame, node.given(4))
    offsets = [0 if past is None else past[2]]
    keys += offsets[0]
    valid = None
    if node.given(6):
        counts = known.value(frame, node.given(6))
        if counts is None:
            return None
        valid = [int(count) for count in np.ravel(counts)]
        offsets = [count - queries for count in valid]
    causal = bool(node.attributes.get("is_causal", 0))
    left, right = (node.attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    allowed = _bounds(queries, keys, offsets, causal, left, right, valid)
    return with_mask(known, frame, node.given(3), allowed)


def _of_grouped(known: Known, reader: Reader) -> np.ndarray | None:
    frame, node = reader.frame, reader.node
    found, past = grouped_rows(known, frame, node), known.shape(frame, node.given(3))
    if found is None:
        return None
    length, total, starts, valid = found
    window = node.attributes.get("local_window_size", -1)
    causal = bool(node.attributes.get("causal", 1))
    if node.attributes.get("sliding_window_cache") and past is not None:
        if len(set(valid)) > 1:
            return None
        held = resident(starts[0], past[2], window)
        starts, valid = [held], [held + valid[0] - starts[0]]
        total = valid[0]
    allowed = _bounds(length, total, starts, causal, window - 1 if window > 0 else -1, -1, valid)
    return with_mask(known, frame, node.given(10), allowed)


def _of_contrib(known: Known, reader: Reader) -> np.ndarray | None:
    frame, node = reader.frame, reader.node
    inside = node.op_type == "Attention"
    query = known.shape(frame, node.inputs[0])
    shape = known.shape(frame, node.outputs[1]) if len(node.outputs) > 1 and node.outputs[1] else None
    if shape is None and node.given(1) and not inside:
        shape = known.shape(frame, node.inputs[1])
    if query is None or shape is None:
        return None
    queries, keys = query[1], shape[-2] if len(shape) != 3 else shape[1]
    past = keys - queries
    if not inside and node.given(8):
        start = known.value(frame, node.given(8))
        if start is None:
            return None
        past = int(start.item())
        keys = past + queries
    causal = bool(node.attributes.get("unidirectional", 0))
    allowed = _bounds(queries, keys, [past], causal, -1, -1, None)
    mask, bias = (3, 5) if inside else (4, 5)
    if node.given(mask):
        seen = known.value(frame, node.given(mask))
        if allowed is None or seen is None or node.attributes.get("mask_filter_value", -10000.0) > HIDDEN:
            return None
        padded = padding_seen(seen, query[0], queries, keys)
        if padded is None:
            return None
        allowed = allowed & padded
    return with_mask(known, frame, node.given(bias), allowed)


_OPERATORS: dict[tuple[str, str], Callable[[Known, Reader], np.ndarray | None]] = {
    ("", "Attention"): _of_attention,
    (MS, "GroupQueryAttention"): _of_grouped,
    (MS, "MultiHeadAttention"): _of_contrib,
    (MS, "Attention"): _of_contrib,
}


def _evicted(known: Known, reader: Reader) -> int:
    """Rows that GroupQueryAttention drops from a window after it has read them."""
    frame, node = reader.frame, reader.node
    found, past = grouped_rows(known, frame, node), known.shape(frame, node.given(3))
    assert past is not None and found is not None
    before, after = found[2][0], found[3][0]
    window = node.attributes.get("local_window_size", -1)
    return resident(before, past[2], window) + after - before - resident(after, past[2], window)


def _bounds(
    queries: int, keys: int, offsets: list[int], causal: bool, left: int, right: int, valid: list[int] | None
) -> np.ndarray | None:
    """What each query may see by lengths and windows; None if that is more than `MOST` booleans."""
    if queries * keys > MOST:
        return None
    seen = visible(queries, keys, offsets=offsets, causal=causal, left=left, right=right, valid=valid, trim=False)
    if seen.stop <= seen.start or seen.allowed is None:
        return np.full((1, queries, keys), seen.stop > seen.start)
    allowed = seen.allowed.reshape(-1, *seen.allowed.shape[-2:])
    return allowed if allowed.shape[1] == queries else np.broadcast_to(allowed, (len(allowed), queries, keys))


# -- known masks ------------------------------------------------------------------------------------------------------
# Masks of attention as booleans: which keys each query may see, if control inputs alone decide it.


# A score to which less than this is added has no weight after the softmax, even in double precision.
HIDDEN = -800.0
# The maximum number of pairs of a query and a key.
MOST = 1 << 22


def with_mask(known: Known, frame: int, name: str, allowed: np.ndarray | None) -> np.ndarray | None:
    """The keys that a mask tensor allows as well; a mask that is too short hides the rest."""
    if not name or allowed is None:
        return allowed
    mask = known.value(frame, name)
    if mask is None:
        return None
    seen = _by_entry(_seen(mask))
    short = allowed.shape[-1] - seen.shape[-1]
    if short > 0 and seen.shape[-1] > 1:
        seen = np.pad(seen, ((0, 0), (0, 0), (0, short)))
    return allowed & seen


def of_softmax(known: Known, frame: int, node: Node) -> np.ndarray | None:
    shape = known.shape(frame, node.inputs[0])
    if shape is None or len(shape) < 2 or shape[-2] * shape[-1] > MOST:
        return None
    allowed = np.ones((1, *shape[-2:]), np.bool_)
    for mask in _masks(known, frame, node.inputs[0]):
        if mask is None:
            return None
        seen = _by_entry(mask)
        if seen.shape[-1] not in (1, shape[-1]):
            return None
        # Batch and heads may have been joined; then a key counts if any of them sees it.
        if len(seen) not in (1, shape[0]):
            seen = np.asarray(seen.any(axis=0, keepdims=True))
        allowed = np.asarray(allowed & seen)
    return allowed


def _masks(known: Known, frame: int, scores: str) -> Iterator[np.ndarray | None]:
    """Masks that are added to the scores, or chosen in their place, as booleans; None for unknown ones."""
    graph = known.frames.graph(frame)
    stack, seen = [scores], set()
    while stack:
        name = stack.pop()
        node = graph.producers.get(name)
        if node is None or node.op_type not in SCORES or name in seen:
            continue
        seen.add(name)
        given = [one for one in node.inputs if one]
        values = [known.value(frame, one) for one in given]
        # Unknown values hold the scores, or a bias of the network, which may contain a mask.
        stack += [one for one, value in zip(given, values) if value is None]
        if node.op_type == "Where" and len(given) == 3:
            yield _chosen(*values)
        elif node.op_type in ("Add", "Sub"):
            for place, value in enumerate(values):
                if value is not None:
                    yield _seen(-value if node.op_type == "Sub" and place else value)


def _chosen(condition: np.ndarray | None, yes: np.ndarray | None, no: np.ndarray | None) -> np.ndarray | None:
    """Where a Where keeps the scores; elsewhere it may put a number that hides them."""
    fixed = no if yes is None else yes
    if fixed is None or condition is None:
        return None
    if not np.all(fixed < HIDDEN):
        return np.ones_like(condition)
    return condition if yes is None else ~condition


def _seen(mask: np.ndarray) -> np.ndarray:
    """A mask as booleans: true if a key may be seen."""
    return mask if mask.dtype == np.bool_ else np.logical_not(mask < HIDDEN)


def _by_entry(seen: np.ndarray) -> np.ndarray:
    """A mask that broadcasts to (batch, heads, queries, keys), as (batch, queries, keys): keys that any head sees."""
    seen = seen.reshape((1,) * (4 - seen.ndim) + seen.shape) if seen.ndim < 4 else seen
    return np.asarray(seen.any(axis=tuple(range(1, seen.ndim - 2))))
