"""What ggml's allocator decided for a graph: where each tensor lies, which node took over which source and why others
could not, and what stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

from kvviz.ggml.graph.tensor import Tensor
from kvviz.trace import blockers as b

CAN_INPLACE = frozenset(
    {
        *("FILL", "SCALE", "DIAG_MASK_ZERO", "DIAG_MASK_INF", "ADD", "ADD_ID", "ADD1", "SUB", "MUL", "DIV", "SQR"),
        *("SQRT", "LOG", "UNARY", "ROPE", "ROPE_BACK", "SILU_BACK", "RMS_NORM", "RMS_NORM_BACK", "CLAMP", "SOFT_MAX"),
        "SOFT_MAX_BACK",
    }
)
"""``ggml_op_can_inplace`` (``src/ggml-alloc.c``, version 0.25.3; CLAMP is there since autumn 2026)."""

RULES = (
    "{op} cannot take {input}: it is a view, and gallocr never counts a view as its own",
    "{op} cannot take {input}: gallocr did not allocate it",
    "{op} cannot take {input}: its strides are not those of the output",
)
"""Sentences of the reasons that only this policy has, as `kvviz.trace.trace_data.PolicyFacts` keeps them."""


class Refusal(Enum):
    """One kind of reason, as the log has it: bits of `kvviz.trace.blockers`."""

    OP_NOT_LISTED = b.OP_CANNOT
    IS_VIEW = b.rule(0)
    EXTERNAL = b.rule(1)
    OUTPUT = b.REQUESTED_OUTPUT
    TYPE_DIFFERS = b.DTYPE_DIFFERS
    SHAPE_DIFFERS = b.SHAPE_DIFFERS
    STRIDES_DIFFER = b.rule(2)
    CHILDREN_LEFT = b.NOT_LAST_USE
    READ_TWICE = b.SAME_OP_TWICE
    VIEWS_LEFT = b.ALIASED


class Refused(NamedTuple):
    """A source that was not taken, for one reason; ``position`` is -1 where the op itself is the reason."""

    position: int
    source: Tensor | None
    reason: Refusal
    who: tuple[Tensor, ...] = ()

    @property
    def mask(self) -> int:
        """Its bits; a weight is a CONSTANT."""
        weight = self.reason is Refusal.EXTERNAL and self.source is not None and self.source.root.role == "weight"
        return b.CONSTANT if weight else self.reason.value


class TensorPlace(NamedTuple):
    """Where an allocated tensor lies.

    ``size``: its bytes, not rounded up. ``source``: whose memory it took over, or None.
    """

    buffer: str
    chunk: int
    offset: int
    size: int
    source: Tensor | None = None

    @property
    def arena(self) -> str:
        """What an address of it counts in: the buffer, or one chunk of it."""
        return f"{self.buffer} chunk {self.chunk}" if self.chunk else self.buffer


class NodePlan(NamedTuple):
    """What was decided for one node.

    ``taken``: position of the source whose memory it took over, or None.
    ``refused``: every reason against every source that was tried before that one; empty for a view, which needs none.
    ``freed``: whose memory was given back when it had run.
    ``withheld``: whose memory would have been, were it not flagged OUTPUT.
    """

    node: Tensor
    taken: int | None
    refused: tuple[Refused, ...]
    freed: tuple[Tensor, ...]
    withheld: tuple[Tensor, ...] = ()

    @property
    def masks(self) -> dict[int, int]:
        """The reasons by position of a source, as bits of `kvviz.trace.blockers`; none for what is not in the list."""
        found: dict[int, int] = {}
        if not any(refused.position < 0 for refused in self.refused):
            for refused in self.refused:
                found[refused.position] = found.get(refused.position, 0) | refused.mask
        return found


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The plan of a graph.

    Attributes
    ----------
    places : mapping of Tensor to TensorPlace
        All tensors that gallocr allocated; views lie in their roots.
    nodes : tuple of NodePlan
        In the order of the graph.
    sizes : mapping of (str, int) to int
        Bytes of each chunk of each buffer.
    """

    places: Mapping[Tensor, TensorPlace] = field(repr=False)
    nodes: tuple[NodePlan, ...] = field(repr=False)
    sizes: Mapping[tuple[str, int], int]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(self.sizes.values())

    def owner(self, tensor: Tensor) -> Tensor:
        """The tensor that the memory of a tensor was allocated for: its root, or whom that took over from."""
        one = tensor.root
        while one in self.places:
            source = self.places[one].source
            if source is None:
                break
            one = source
        return one

    def of(self, node: Tensor) -> NodePlan | None:
        """What was decided for a node."""
        return next((plan for plan in self.nodes if plan.node is node), None)


def place_data(plan: MemoryPlan) -> None:
    """Give the tensors of a plan their memory. What leafs hold is carried over; the rest of the memory is zero."""
    arenas = {key: np.zeros(size, np.uint8) for key, size in plan.sizes.items()}
    for tensor, place in plan.places.items():
        part = arenas[place.buffer, place.chunk][place.offset : place.offset + place.size]
        if tensor.op == "NONE" and tensor.data is not None:
            part[...] = tensor.data
        tensor.data = part
