"""Why ggml's allocator did not give a node the memory of a source: every reason, in its words and in the log's."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kvviz.ggml.tensor import Tensor
from kvviz.trace import blockers as b

CAN_INPLACE = frozenset(
    [
        "FILL",
        "SCALE",
        "DIAG_MASK_ZERO",
        "DIAG_MASK_INF",
        "ADD",
        "ADD_ID",
        "ADD1",
        "SUB",
        "MUL",
        "DIV",
        "SQR",
        "SQRT",
        "LOG",
        "UNARY",
        "ROPE",
        "ROPE_BACK",
        "SILU_BACK",
        "RMS_NORM",
        "RMS_NORM_BACK",
        "CLAMP",
        "SOFT_MAX",
        "SOFT_MAX_BACK",
    ]
)
"""``ggml_op_can_inplace`` (``src/ggml-alloc.c``, version 0.25.3; CLAMP is there since autumn 2026)."""


class Refusal(str, Enum):
    """One kind of reason. ``words`` tells it of a node, its source and who stands in the way."""

    OP_NOT_LISTED = "OP_NOT_LISTED"
    IS_VIEW = "IS_VIEW"
    EXTERNAL = "EXTERNAL"
    OUTPUT = "OUTPUT"
    TYPE_DIFFERS = "TYPE_DIFFERS"
    SHAPE_DIFFERS = "SHAPE_DIFFERS"
    STRIDES_DIFFER = "STRIDES_DIFFER"
    CHILDREN_LEFT = "CHILDREN_LEFT"
    READ_TWICE = "READ_TWICE"
    VIEWS_LEFT = "VIEWS_LEFT"

    def __str__(self) -> str:
        return self.value

    @property
    def words(self) -> str:
        """A sentence with ``{node}``, ``{op}``, ``{src}`` and ``{who}`` to fill in."""
        return _WORDS[self]


_WORDS = {
    Refusal.OP_NOT_LISTED: "{op} is not in gallocr's list of ops that may run in place",
    Refusal.IS_VIEW: "{src} is a view, and gallocr counts no view as its own: the branch for views is never reached",
    Refusal.EXTERNAL: "{src} has memory that gallocr did not allocate",
    Refusal.OUTPUT: "{src} is flagged OUTPUT, or is a view of what is",
    Refusal.TYPE_DIFFERS: "{src} has another type than {node}",
    Refusal.SHAPE_DIFFERS: "{src} has another shape than {node}",
    Refusal.STRIDES_DIFFER: "{src} has other strides than {node}",
    Refusal.CHILDREN_LEFT: "{src} has children left: {who}",
    Refusal.READ_TWICE: "{op} reads {src} twice, which counts as two children",
    Refusal.VIEWS_LEFT: "{src} has views left: {who}",
}

RULES = (
    "{op} cannot take {input}: it is a view, and gallocr never counts a view as its own",
    "{op} cannot take {input}: gallocr did not allocate it",
    "{op} cannot take {input}: its strides are not those of the output",
)
"""Sentences of the reasons that only this policy has, as `kvviz.trace.policy_facts.PolicyFacts` keeps them."""

MASKS = {
    Refusal.OP_NOT_LISTED: b.OP_CANNOT,
    Refusal.IS_VIEW: b.rule(0),
    Refusal.EXTERNAL: b.rule(1),
    Refusal.OUTPUT: b.REQUESTED_OUTPUT,
    Refusal.TYPE_DIFFERS: b.DTYPE_DIFFERS,
    Refusal.SHAPE_DIFFERS: b.SHAPE_DIFFERS,
    Refusal.STRIDES_DIFFER: b.rule(2),
    Refusal.CHILDREN_LEFT: b.NOT_LAST_USE,
    Refusal.READ_TWICE: b.SAME_OP_TWICE,
    Refusal.VIEWS_LEFT: b.ALIASED,
}
"""What each reason is in the log; a weight is a CONSTANT there besides."""


class Refused(NamedTuple):
    """A source that was not taken, for one reason; ``position`` is -1 where the op itself is the reason."""

    position: int
    source: Tensor | None
    reason: Refusal
    who: tuple[Tensor, ...] = ()

    def told(self, node: Tensor) -> str:
        """One sentence."""
        who = ", ".join(one.name for one in self.who)
        src = "" if self.source is None else self.source.name
        return self.reason.words.format(node=node.name, op=node.op, src=src, who=who)

    @property
    def mask(self) -> int:
        """The bits of `kvviz.trace.blockers`."""
        weight = self.reason is Refusal.EXTERNAL and self.source is not None and self.source.root.role == "weight"
        return b.CONSTANT if weight else MASKS[self.reason]
