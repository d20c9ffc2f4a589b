"""What each ggml op reads and writes: one table for the log, the re-order rules and the allocator's reports.

Source: ``ggml-cpu/ops.cpp`` for what kernels touch. Row ops touch the rows that their index tensor names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvviz.ggml.graph.tensor import VIEW_OPS, Tensor, elements, type_size, word
from kvviz.trace.schema.regions import Region, stored_bytes

ROW_AXIS = -2
"""The axis of a tensor's region along which rows are counted: ``ne[1]``."""


class Effect(NamedTuple):
    """Bytes of a root that an op reads or writes through a tensor. ``rows``: the touched rows, if only some are.
    ``part``: the touched region, if it has another form than the tensor. ``most``: the most bytes touched, if it is not
    known which."""

    tensor: Tensor
    writes: bool
    rows: tuple[int, ...] | None = None
    part: Region | None = None
    most: int | None = None

    @property
    def region(self) -> Region:
        region = self.tensor.region if self.part is None else self.part
        if self.rows is not None:
            return region.only(self.rows, ROW_AXIS)
        if self.most is None or self.most >= stored_bytes(region):
            return region
        known = "range" if region.known == "exact" else region.known
        return region._replace(known=known, most=self.most)

    @property
    def whole(self) -> bool:
        """Whether all of its tensor is touched, at a known place."""
        return self.rows is None and self.part is None and self.region.known == "exact"


def is_empty(node: Tensor) -> bool:
    return node.op in VIEW_OPS or node.op == "NONE"


def is_noop(node: Tensor) -> bool:
    """Whether it executes nothing: views, leafs, and tensors without elements."""
    return is_empty(node) or 0 in node.ne


def is_source(node: Tensor, other: Tensor) -> bool:
    return any(source is other for source in node.src)


def effects(node: Tensor) -> tuple[Effect, ...]:
    """What an executed node touches, reads first.

    Notes
    -----
    CPY does not read its destination and writes its own layout in the root. SET_ROWS does not read its destination and
    writes only the rows that its index names; GET_ROWS reads only those. SET and ACC in place write their patch only,
    and SET does not read what was there. FILL reads nothing. OPT_STEP_ADAMW writes its two moments besides its result.
    Other ops read every source in full.
    """
    if is_noop(node):
        return ()
    sources = node.sources
    if node.op == "FILL":
        return (Effect(node, True),)
    if node.op == "CPY":
        return Effect(sources[0], False), Effect(node, True, most=_as_type(sources[0], node.type))
    if node.op == "SET_ROWS":
        rows, index = sources[:2]
        return Effect(rows, False), Effect(index, False), _of_rows(node, True, index, rows)
    if node.op == "GET_ROWS":
        table, index = sources[:2]
        return _of_rows(table, False, index, node), Effect(index, False), Effect(node, True)
    if node.op in ("SET", "ACC") and word(node, 4):
        into, patch = sources[:2]
        part = patch_of(node).region
        there = (Effect(into, False, part=part),) if node.op == "ACC" else ()
        return (*there, Effect(patch, False), Effect(node, True, part=part))
    moments = sources[2:4] if node.op == "OPT_STEP_ADAMW" else []
    reads = (Effect(source, False) for source in node.others)
    return (*reads, *(Effect(one, True) for one in (node, *moments)))


def _of_rows(table: Tensor, writes: bool, index: Tensor, rows: Tensor) -> Effect:
    """The rows of a table that an index names. Without a known index, as many of its bytes as the rows have."""
    return Effect(table, writes, rows_named(table, index), most=_as_type(rows, table.type))


def _as_type(tensor: Tensor, type_: str) -> int | None:
    """Bytes of a tensor's elements in another type; None if a DOT file leaves out the fourth of its sizes."""
    block, size = type_size(type_)
    return None if tensor.id and tensor.ne[2] != 1 else -(-elements(tensor) // block) * size


def patch_of(node: Tensor) -> Tensor:
    """The part into which SET and ACC write their second source, as a view."""
    b = node.src[1]
    assert b is not None
    nb = (type_size(b.type)[1], word(node, 0), word(node, 1), word(node, 2))
    start = node.view_offs + word(node, 3)
    return Tensor(f"{node.name} (patch)", node.type, b.ne, nb, "VIEW", view_src=node.root, view_offs=start)


def rows_named(table: Tensor, index: Tensor) -> tuple[int, ...] | None:
    """Rows of a table that an index tensor names; None if unknown, or if they are the whole table."""
    values = index.root.values
    # An index of one axis names the same rows in all planes of a table; a table of one row is touched in full.
    if values is None or table.ne[1] < 2 or index.ne[1:] != (1, 1, 1) or not index.nb[0]:
        return None
    flat = np.asarray(values).reshape(-1)
    start = index.view_offs // index.nb[0]
    chosen = flat[start : start + index.ne[0]]
    return None if len(chosen) != index.ne[0] else tuple(int(row) for row in chosen)
