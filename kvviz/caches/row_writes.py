"""Which rows the ops of one run wrote, and which tokens they hold afterwards: the ops of a cache, replayed on spans."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeVar

import numpy as np

from kvviz.caches.control_values import Known
from kvviz.caches.path_search import Link, Way
from kvviz.caches.row_contents import (
    EMPTY,
    NO_TOKEN,
    NOTHING,
    Book,
    Unknown,
    batch_axis,
    held_in,
    pick_entries,
    pick_rows,
    put,
    renumber,
    store,
    store_at,
    store_rows,
    store_window,
    without,
)
from kvviz.graph.model import Node
from kvviz.ops.transformer.contrib_attention import first_rows

Fact = TypeVar("Fact")


def replay(known: Known, way: Way, book: Book, output: str, axis: int, rows: int) -> None:
    """Apply the ops of a run to a book; ``rows`` is the length of the cache's input."""
    book.wrote, book.lost = [()] * len(book.held), [0] * len(book.held)
    if book.given and len(book.held) == 1 and book.is_empty and not any(_overwrites(link.node) for link in way.spine):
        book.held = [put(NOTHING, (0, rows, 0))]
    if way.spine and way.spine[0].kind == "make":
        shape = known.shape(0, output)
        if shape is None or axis >= len(shape):
            raise Unknown
        book.held, book.given = [NOTHING] * len(book.held), False
        store(book, [((0, shape[axis], 0),)], 0)
    else:
        at: int | None = axis
        for link in way.spine:
            if link.kind != "join":
                at = _apply(known, link, book, at)
        after = known.shape(0, output)
        # The axes of the output may be in another order, so that the same number means another axis.
        if at != axis or (after is not None and any((cells[after[axis] :] != EMPTY).any() for cells in book.held)):
            raise Unknown
    if book.padding is not None:
        book.spread(len(book.padding))
        padded = zip(book.held, book.padding if len(book.padding) > 1 else book.padding * len(book.held))
        book.held = [without(cells, positions) for cells, positions in padded]


def _overwrites(node: Node) -> bool:
    """Whether an op writes inside its input, so that not all rows of it need hold tokens."""
    if node.op_type == "MultiHeadAttention":
        return bool(node.given(8))
    return node.op_type in ("TensorScatter", "ScatterND", "ScatterElements", "Scatter", "GroupQueryAttention")


def _apply(known: Known, link: Link, book: Book, axis: int | None) -> int | None:
    """Apply one op that carries the cache on; returns the sequence axis of its output."""
    node = link.node
    before = known.shape(link.frame, node.inputs[link.past])
    after = known.shape(link.frame, node.outputs[link.output])
    if before is None or after is None or axis is None or axis >= len(before):
        raise Unknown
    if link.kind == "write":
        _write(known, link, book, before, after, axis)
        return axis
    if node.op_type == "Slice":
        first = first_kept(known, link.frame, node, before[axis], after[axis], axis)
        renumber(book, -first, after[axis])
    elif node.op_type == "Gather":
        _gather(known, link, book, before, axis)
    return _axis_after(known, link.frame, node, before, after, axis)


def _gather(known: Known, link: Link, book: Book, before: Sequence[int], axis: int) -> None:
    node = link.node
    along = node.attributes.get("axis", 0) % len(before)
    if along not in (axis, batch_axis(before, axis)):
        return
    indices = known.value(link.frame, node.inputs[1])
    if indices is None:
        if along != axis and len({*map(held_in, book.held)}) == 1:
            return
        raise Unknown
    picked = [int(place) % before[along] for place in np.ravel(indices)]
    if along == axis:
        pick_rows(book, picked)
    else:
        pick_entries(book, picked)


def _write(known: Known, link: Link, book: Book, before: Sequence[int], after: Sequence[int], axis: int) -> None:
    node, frame = link.node, link.frame
    if node.op_type == "Concat":
        if node.attributes.get("axis", 1) % len(before) != axis:
            return
        ahead = rows_ahead(known, frame, node, link.past, axis)
        new = after[axis] - before[axis] - ahead
        renumber(book, ahead, after[axis])
        end = ahead + before[axis]
        store(book, [((0, ahead, 0), (end, end + new, ahead))], before[axis])
    elif node.op_type == "TensorScatter":
        update = _sure(known.shape(frame, node.inputs[1]))
        circular = node.attributes.get("mode") == "circular"
        store_at(book, _starts(known, frame, node, 2), update[axis], before[axis], circular)
    elif node.op_type in ("ScatterND", "ScatterElements", "Scatter"):
        store_rows(book, _scattered(known, frame, node, before, axis))
    elif node.op_type == "GroupQueryAttention":
        _store_grouped(known, link, book, before[axis])
    elif node.op_type == "MultiHeadAttention" and node.given(8):
        store_at(book, _starts(known, frame, node, 8), _new_keys(known, frame, node), before[axis], False)
    elif after[axis] >= before[axis] and node.op_type not in ("SparseAttention", "PagedAttention"):
        store(book, [((before[axis], after[axis], 0),)], before[axis])
    else:
        raise Unknown


def _store_grouped(known: Known, link: Link, book: Book, held: int) -> None:
    """GroupQueryAttention: rows by ``seqlens_k`` and ``total_sequence_length``, or a window kept by compaction."""
    node, frame = link.node, link.frame
    length, _, starts, valid = _sure(grouped_rows(known, frame, node))
    book.spread(1 if len(set(valid)) == 1 else len(valid))
    if node.attributes.get("sliding_window_cache"):
        store_window(book, starts, valid, held, node.attributes.get("local_window_size", -1))
        return
    if book.given and book.is_empty:
        book.held = [put(NOTHING, (0, start, 0)) for start in starts[: len(book.held)]]
    writes = []
    for start, stop in list(zip(starts, valid))[: len(book.held)]:
        real = min(start + length, max(stop, start))
        padding = ((real, start + length, NO_TOKEN),) if real < start + length else ()
        writes.append(((start, real, 0), *padding))
    store(book, writes, min(starts))


def _sure(fact: Fact | None) -> Fact:
    if fact is None:
        raise Unknown
    return fact


def _starts(known: Known, frame: int, node: Node, place: int) -> list[int]:
    """Start rows from an input: one if all batch entries have the same; row 0 if the input is absent."""
    name = node.given(place)
    if not name:
        return [0]
    starts = [int(start) for start in np.ravel(_sure(known.value(frame, name)))]
    return starts[:1] if len(set(starts)) == 1 else starts


def _scattered(known: Known, frame: int, node: Node, shape: Sequence[int], axis: int) -> list[int]:
    indices = _sure(known.value(frame, node.inputs[1]))
    if node.op_type == "ScatterND":
        if axis >= indices.shape[-1]:
            return list(range(shape[axis]))
        indices = indices[..., axis]
    elif node.attributes.get("axis", 0) % len(shape) != axis:
        return list(range(indices.shape[axis]))
    return [int(row) % shape[axis] for row in dict.fromkeys(np.ravel(indices).tolist())] if shape[axis] else []


def grouped_rows(known: Known, frame: int, node: Node) -> tuple[int, int, list[int], list[int]] | None:
    """Of a GroupQueryAttention: new rows, the total length, and by batch entry the first new row and the end."""
    query = known.shape(frame, node.inputs[0])
    last, whole = (known.value(frame, node.inputs[place]) for place in (5, 6))
    if query is None or last is None or whole is None:
        return None
    length, total, lasts = query[1], int(whole.item()), np.ravel(last).tolist()
    return length, total, first_rows(lasts, length, total), [row + 1 for row in lasts]


def _new_keys(known: Known, frame: int, node: Node) -> int:
    shape = _sure(known.shape(frame, node.given(1) or node.inputs[0]))
    return shape[2 if len(shape) == 4 else 1]


def rows_ahead(known: Known, frame: int, node: Node, place: int, axis: int) -> int:
    shapes = [known.shape(frame, name) for name in node.inputs[:place]]
    return sum(shape[axis] if shape else 0 for shape in shapes)


def first_kept(known: Known, frame: int, node: Node, before: int, after: int, axis: int) -> int:
    """The first row that a Slice keeps; if its start is not known, it keeps the newest rows."""
    if before == after:
        return 0
    starts, axes = node.attributes.get("starts"), node.attributes.get("axes")
    if starts is None and len(node.inputs) > 1:
        starts = known.value(frame, node.inputs[1])
    if axes is None and node.given(3):
        axes = known.value(frame, node.inputs[3])
    if starts is not None:
        rank = len(known.shape(frame, node.inputs[0]) or ())
        places = range(len(np.ravel(starts))) if axes is None else [int(one) % rank for one in np.ravel(axes)]
        start = next((int(one) for place, one in zip(places, np.ravel(starts)) if place == axis), 0)
        return min(max(start + before if start < 0 else start, 0), before - after)
    return before - after


def _axis_after(
    known: Known, frame: int, node: Node, before: Sequence[int], after: Sequence[int], axis: int
) -> int | None:
    """The sequence axis after a view; None if it is lost."""
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm") or tuple(reversed(range(len(before))))
        return list(perm).index(axis)
    if node.op_type == "Gather":
        along = node.attributes.get("axis", 0) % len(before)
        return axis if along >= axis else axis + len(after) - len(before)
    if node.op_type not in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        return axis
    # Dimensions before it may be joined or split, but have as many elements together.
    ahead = prod(before[:axis])
    found = [i for i, size in enumerate(after) if size == before[axis] and prod(after[:i]) == ahead]
    return min(found, key=lambda i: abs(i - axis), default=None)
