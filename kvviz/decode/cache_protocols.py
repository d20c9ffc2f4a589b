"""How a cache is kept if the graph leaves a choice: rows of fixed-size ones, and room for growing ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kvviz.errors import InputError
from kvviz.graph.cache_pairs import CachePair
from kvviz.graph.model import Graph
from kvviz.memory.ghosts import with_room
from kvviz.memory.storage import find_room, root_of
from kvviz.trace.recording import Trace
from kvviz.trace.records import Cache, CacheRun

CACHES = ("growing", "shared", "window")
_GROUPED = "com.microsoft.GroupQueryAttention"


def kept_as(pairs: tuple[CachePair, ...], cache: str) -> tuple[CachePair, ...]:
    """The pairs of a decode whose caches grow (``"growing"``), or whose past and present are one buffer (``"shared"``).
    GroupQueryAttention (onnxruntime 1.31) accepts both: a past longer than ``total_sequence_length`` is a buffer, and
    the present has its shape."""
    if cache not in CACHES:
        raise InputError(f"cache must be 'growing', 'shared' or 'window', not {cache!r}")
    if cache != "shared":
        return pairs
    shared = tuple(replace(pair, protocol="shared") if may_share(pair) else pair for pair in pairs)
    if shared == pairs:
        kinds = ", ".join(sorted({op for pair in pairs for op in writers(pair)}))
        why = f"its caches are written by {kinds}" if kinds else "it has none"
        raise InputError(
            f"no cache of this graph can be shared: {why}; "
            "only GroupQueryAttention can use one buffer for past and present"
        )
    return shared


def padded_for(
    pairs: tuple[CachePair, ...], roles: Mapping[str, str], tokens: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Prompts of unequal length, padded where the graph can distinguish padding from tokens. A mask hides padding on
    the left. GroupQueryAttention has no mask: it counts rows from the first one on, so padding must come last. If
    nothing is carried from run to run, tokens do not see later ones."""
    if mask.all():
        return tokens, mask
    if all(pair.protocol == "cross" for pair in pairs) or any(_GROUPED in writers(pair) for pair in pairs):
        order = np.argsort(1 - mask, axis=1, kind="stable")
        return np.take_along_axis(tokens, order, 1), np.take_along_axis(mask, order, 1)
    if "attention_mask" not in roles:
        raise InputError(
            "prompts of unequal length need padding, and the graph has no attention_mask to tell it from tokens; "
            "decode them one by one"
        )
    return tokens, mask


def last_logits(logits: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The scores of the token after the last real one of each sequence, ``(batch, vocabulary)``. Logits are ``(batch,
    length, vocabulary)``, of all tokens or the last ones; ``(batch, vocabulary)`` of the last token; ``(batch × length,
    vocabulary)`` or, for a batch of one, ``(vocabulary,)``."""
    (batch, new), shape = mask.shape, list(logits.shape)
    if logits.ndim == 1:
        logits = logits[None]
    if logits.ndim == 2:
        rows = new if len(logits) == batch * new else 1
        logits = logits.reshape(-1, rows, logits.shape[-1])
    if logits.ndim != 3 or len(logits) != batch or not logits.shape[1]:
        raise InputError(
            f"logits of shape {shape} do not tell the next tokens of {batch} sequence{'s' * (batch > 1)} "
            f"of {new}; they must be (batch, length, vocabulary) or (batch, vocabulary): use kvviz.run for single runs"
        )
    if logits.shape[1] != mask.shape[1]:
        if not mask[:, -1].all():
            raise InputError(
                f"logits of shape {shape} are not those of all {new} tokens, and the last one is padding; "
                "decode prompts that need none"
            )
        return logits[:, -1]
    last = mask.shape[1] - 1 - np.argmax(mask[:, ::-1] != 0, axis=1)
    return logits[np.arange(len(logits)), last]


def writers(pair: CachePair) -> tuple[str, ...]:
    """Operators that write a cache, one per branch, with their domain if it is not ONNX's own."""
    return tuple(ops.split("<-")[-1] for ops in pair.ops)


def is_fixed(pair: CachePair) -> bool:
    if pair.protocol == "window":
        return any(op in ("TensorScatter", _GROUPED) for op in writers(pair))
    return pair.protocol in ("static", "shared")


def fixed_rows(graph: Graph, pair: CachePair, capacity: int | None, rows: int) -> int:
    """Rows of a fixed-size cache that the model leaves open: the caller's capacity, else those of the model's window,
    else the ``rows`` that the decode will need."""
    windows = [node.attributes.get("local_window_size", -1) for node in graph.nodes if node.name in pair.writer]
    window = int(max(windows, default=-1)) if pair.protocol == "window" else -1
    if capacity is not None:
        if capacity < window:
            raise InputError(f"kv_capacity={capacity}: cache {pair.input!r} holds a window of {window} rows at least")
        return capacity
    if pair.protocol != "window":
        return rows
    if window > 0:
        return window
    raise InputError(f"the model leaves the length of cache {pair.input!r} open; pass kv_capacity=")


def may_share(pair: CachePair) -> bool:
    return pair.protocol == "growing" and set(writers(pair)) == {_GROUPED}


def make_room(trace: Trace, pairs: tuple[CachePair, ...], caches: dict[str, Any], capacity: int | None) -> None:
    """Move growing caches that are full into buffers of twice their length, or of ``capacity`` rows if that is more.
    Moved ones are replaced in ``caches``. These bytes are noted in the last run of the trace and in the meters of its
    caches. rten-generate does the same after every run (commit c7f7bad9)."""
    metered = {cache.input: cache for cache in trace.caches}
    for pair in pairs:
        past = caches[pair.input]
        if pair.protocol != "growing" or pair.axis is None or not isinstance(past, np.ndarray):
            continue
        room, length = find_room(root_of(past), past), past.shape[pair.axis]
        if room is not None and room.axis == pair.axis and room.rows > length:
            continue
        caches[pair.input] = with_room(past, pair.axis, max(capacity or 0, 2 * length, 1))
        trace.runs[-1].bytes_moved_outside += past.nbytes
        if pair.input in metered:
            metered[pair.input].later(partial(_note, past.nbytes))


def _note(moved: int, _: Cache, runs: list[CacheRun]) -> None:
    runs[-1] = replace(runs[-1], bytes_moved_outside=moved)
