"""Masks of attention as booleans: which keys each query may see, where control inputs alone decide it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvviz.caches.control_values import Known
from kvviz.caches.path_search import SCORES
from kvviz.graph.model import Node

# A score that gets less than this added has no weight after the softmax, even in double precision.
HIDDEN = -800.0
# Pairs of a query and a key that are looked at one by one.
MOST = 1 << 22


def with_mask(known: Known, frame: int, name: str, allowed: np.ndarray | None) -> np.ndarray | None:
    """The keys that a mask tensor leaves as well; one that is too short hides what it does not reach."""
    if not name or allowed is None:
        return allowed
    if (frame, name) not in known.masks:
        mask = known.value(frame, name)
        known.masks[frame, name] = None if mask is None else _by_entry(_seen(mask))
    seen = known.masks[frame, name]
    if seen is None:
        return None
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
        # Batch and heads may have been joined; then what any of them sees counts.
        if len(seen) not in (1, shape[0]):
            seen = np.asarray(seen.any(axis=0, keepdims=True))
        allowed = np.asarray(allowed & seen)
    return allowed


def _masks(known: Known, frame: int, scores: str) -> Iterator[np.ndarray | None]:
    """Booleans of everything that is added to the scores, or chosen in their place; None for what is not known."""
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
        # What is not known holds the scores, or a bias that the network computes, which may have a mask inside.
        stack += [one for one, value in zip(given, values) if value is None]
        if node.op_type == "Where" and len(given) == 3:
            yield _chosen(*values)
        elif node.op_type in ("Add", "Sub"):
            for place, value in enumerate(values):
                if value is not None:
                    yield _seen(-value if node.op_type == "Sub" and place else value)


def _chosen(condition: np.ndarray | None, yes: np.ndarray | None, no: np.ndarray | None) -> np.ndarray | None:
    """Where a Where lets the scores through: it may put a number in their place that hides them."""
    fixed = no if yes is None else yes
    if fixed is None or condition is None:
        return None
    if not np.all(fixed < HIDDEN):
        return np.ones_like(condition)
    return condition if yes is None else ~condition


def _seen(mask: np.ndarray) -> np.ndarray:
    """A mask as booleans: true where a key may be seen."""
    return mask if mask.dtype == np.bool_ else np.logical_not(mask < HIDDEN)


def _by_entry(seen: np.ndarray) -> np.ndarray:
    """Any shape that broadcasts to (batch, heads, queries, keys), as (batch, queries, keys): what any head sees."""
    seen = seen.reshape((1,) * (4 - seen.ndim) + seen.shape) if seen.ndim < 4 else seen
    return np.asarray(seen.any(axis=tuple(range(1, seen.ndim - 2))))
