"""Which inputs rten's operators declare as in-place inputs, and which operators are commutative.

A static property of the operator type: neither the planner nor the dispatch rule looks at sizes or at who owns what.
Source: ``Operator::in_place_inputs`` and ``is_commutative`` of rten at commit c7f7bad9.
"""

from __future__ import annotations

from kvviz.graph.model import Node

MICROSOFT = "com.microsoft"

_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
    "LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish "
    "Tan Tanh ThresholdedRelu"
)
_ARITHMETIC = ("Add", "Mul", "Sub", "Div", "Pow", "Clip")
_NORMALIZATION = ("Softmax", "LogSoftmax", "BatchNormalization", "InstanceNormalization", "LpNormalization")
_LAYOUT = (
    "Identity Cast CastLike Reshape Flatten Squeeze Unsqueeze Expand Slice Resize Tile Concat "
    "SequenceInsert SequenceErase"
)

_TABLE: dict[tuple[str, str], tuple[int, ...]] = {
    **{("", name): (0,) for name in (*_UNARY.split(), *_ARITHMETIC, *_NORMALIZATION, *_LAYOUT.split())},
    ("", "Attention"): (4, 5),
    (MICROSOFT, "Gelu"): (0,),
    (MICROSOFT, "QuickGelu"): (0,),
    (MICROSOFT, "MultiHeadAttention"): (6, 7),
    (MICROSOFT, "GroupQueryAttention"): (3, 4),
}
_COMMUTATIVE = {"Add", "Mul", "And", "Or", "Xor", "Equal"}


def in_place_inputs(node: Node) -> tuple[int, ...]:
    """Positions that the operator declares; empty where rten never runs it in place."""
    return _TABLE.get((node.domain, node.op_type), ())


def is_commutative(node: Node) -> bool:
    """Whether rten lets the larger operand take the place of the declared one."""
    return node.domain == "" and node.op_type in _COMMUTATIVE
