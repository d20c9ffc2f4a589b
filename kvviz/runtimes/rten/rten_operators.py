"""Which inputs rten's operators declare as in-place inputs, which are commutative, and the quirks of rten's rules."""

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


QUIRKS = {
    "greedy_order": "the planner runs ops that can run in place by kind in the order in which they became ready, "
    "although another one could overwrite its input now",
    "cached_plan": "a plan is kept for the set of outputs: a run that asks for them in another order gets "
    "the plan made for the first one",
    "one_operand": "of a commutative op only the operand with the most elements is tried, the last one on ties; "
    "a captured value counts as empty",
    "sticky_count": "uses are counted in a byte, and 255 is never counted down: such a value is never overwritten",
    "counted_twice": "a value that several bodies of an op name is counted once for each, so they borrow it",
    "one_level": "a captured value is handed over to the next body only, not to a body inside it",
    "kept_captures": "a value that was handed over to a body stays until the end of that body, whoever read it last",
    "unread_outputs": "an output that nobody reads stays until the end of the run",
    "loop_copies": "a value that is handed over to a Loop is copied for every iteration",
}
