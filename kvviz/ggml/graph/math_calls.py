"""Ops that compute element by element or row by row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from typing import Any

from kvviz.ggml.graph.new_nodes import Nodes
from kvviz.ggml.graph.tensor import Tensor, can_repeat, elements, has_whole_rows, is_contiguous, is_padded, need, words

UNARY = (
    *("ABS", "SGN", "NEG", "STEP", "TANH", "ELU", "RELU", "SIGMOID", "GELU", "GELU_QUICK", "SILU"),
    *("HARDSWISH", "HARDSIGMOID", "EXP", "EXPM1", "SOFTPLUS", "GELU_ERF", "XIELU", "FLOOR", "CEIL", "ROUND", "TRUNC"),
)
"""Kinds of UNARY by their number (``ggml_unary_op``)."""

GLU = ("REGLU", "GEGLU", "SWIGLU", "SWIGLU_OAI", "GEGLU_ERF", "GEGLU_QUICK", "SWIGLU_CLAMP")
"""Kinds of GLU by their number (``ggml_glu_op``)."""


def _two(op: str, inplace: bool = False) -> Callable[[Any, Tensor, Tensor], Tensor]:
    def call(self: MathCalls, a: Tensor, b: Tensor) -> Tensor:
        need(can_repeat(b, a), op.lower(), "the second must repeat to the sizes of the first", a, b)
        return self._like(op, a, [a, b], inplace=inplace)

    call.__name__ = op.lower() + _SUFFIX[inplace]
    call.__doc__ = f"{op} of two tensors, the second one repeated{_WHERE[inplace]}."
    return call


def _one(op: str, inplace: bool = False) -> Callable[[Any, Tensor], Tensor]:
    def call(self: MathCalls, a: Tensor) -> Tensor:
        return self._like(op, a, [a], inplace=inplace)

    call.__name__ = op.lower() + _SUFFIX[inplace]
    call.__doc__ = f"{op} of each element{_WHERE[inplace]}."
    return call


def _kind(kind: str, inplace: bool = False) -> Callable[[Any, Tensor], Tensor]:
    def call(self: MathCalls, a: Tensor) -> Tensor:
        return self.unary(a, kind, inplace=inplace)

    call.__name__ = kind.lower() + _SUFFIX[inplace]
    call.__doc__ = f"UNARY {kind} of each element{_WHERE[inplace]}."
    return call


def _split(kind: str) -> Callable[[Any, Tensor, Tensor], Tensor]:
    def call(self: MathCalls, a: Tensor, b: Tensor) -> Tensor:
        return self.glu_split(a, b, kind)

    call.__name__ = f"{kind.lower()}_split"
    call.__doc__ = f"GLU {kind}: the activation of ``a``, times ``b``."
    return call


def _halves(kind: str) -> Callable[[Any, Tensor], Tensor]:
    def call(self: MathCalls, a: Tensor) -> Tensor:
        return self.glu(a, kind)

    call.__name__ = kind.lower()
    call.__doc__ = f"GLU {kind}: the activation of the first half of a row, times the second."
    return call


_SUFFIX, _WHERE = ("", "_inplace"), ("", ", written into the first")


class MathCalls(Nodes):
    """Arithmetic, activations, norms, sums."""

    add, add_inplace = _two("ADD"), _two("ADD", True)
    sub, sub_inplace = _two("SUB"), _two("SUB", True)
    mul, mul_inplace = _two("MUL"), _two("MUL", True)
    div, div_inplace = _two("DIV"), _two("DIV", True)
    sqr, sqr_inplace = _one("SQR"), _one("SQR", True)
    sqrt, sqrt_inplace = _one("SQRT"), _one("SQRT", True)
    log, log_inplace = _one("LOG"), _one("LOG", True)
    sin, sin_inplace = _one("SIN"), _one("SIN", True)
    cos, cos_inplace = _one("COS"), _one("COS", True)
    abs, abs_inplace = _kind("ABS"), _kind("ABS", True)
    sgn, sgn_inplace = _kind("SGN"), _kind("SGN", True)
    neg, neg_inplace = _kind("NEG"), _kind("NEG", True)
    step, step_inplace = _kind("STEP"), _kind("STEP", True)
    tanh, tanh_inplace = _kind("TANH"), _kind("TANH", True)
    elu, elu_inplace = _kind("ELU"), _kind("ELU", True)
    relu, relu_inplace = _kind("RELU"), _kind("RELU", True)
    sigmoid, sigmoid_inplace = _kind("SIGMOID"), _kind("SIGMOID", True)
    gelu, gelu_inplace = _kind("GELU"), _kind("GELU", True)
    gelu_erf, gelu_erf_inplace = _kind("GELU_ERF"), _kind("GELU_ERF", True)
    gelu_quick, gelu_quick_inplace = _kind("GELU_QUICK"), _kind("GELU_QUICK", True)
    silu, silu_inplace = _kind("SILU"), _kind("SILU", True)
    exp, exp_inplace = _kind("EXP"), _kind("EXP", True)
    reglu, reglu_split = _halves("REGLU"), _split("REGLU")
    geglu, geglu_split = _halves("GEGLU"), _split("GEGLU")
    swiglu, swiglu_split = _halves("SWIGLU"), _split("SWIGLU")
    geglu_erf, geglu_erf_split = _halves("GEGLU_ERF"), _split("GEGLU_ERF")
    geglu_quick, geglu_quick_split = _halves("GEGLU_QUICK"), _split("GEGLU_QUICK")

    def add1(self, a: Tensor, b: Tensor) -> Tensor:
        """A tensor plus one number, which is a tensor too."""
        need(elements(b) == 1, "add1", f"the second must have one element, not {elements(b)}", a, b)
        need(is_padded(a), "add1", "only the rows of the first may be apart", a, b)
        return self._like("ADD1", a, [a, b])

    def unary(self, a: Tensor, kind: str, *, inplace: bool = False) -> Tensor:
        """A function of each element; ``kind`` is one of `UNARY`."""
        need(
            kind in UNARY and kind != "XIELU", "unary", f"there is no kind {kind!r}: take one of {', '.join(UNARY)}", a
        )
        need(has_whole_rows(a), kind.lower(), "its rows must be contiguous", a)
        return self._like("UNARY", a, [a], words(UNARY.index(kind)), inplace, kind)

    def glu(self, a: Tensor, kind: str, swapped: bool = False) -> Tensor:
        """An activation of the first half of each row times the second; the other way round if ``swapped``."""
        return self._glu(kind, a, [a, None], (a.ne[0] // 2, *a.ne[1:]), swapped)

    def glu_split(self, a: Tensor, b: Tensor, kind: str) -> Tensor:
        """An activation of ``a`` times ``b``; ``kind`` is one of `GLU`."""
        need(a.ne == b.ne and a.type == b.type, kind.lower(), "both must have the same sizes and type", a, b)
        need(is_contiguous(b, 1), kind.lower(), "both must be contiguous but for their rows", a, b)
        return self._glu(kind, a, [a, b], a.ne, False)

    def _glu(self, kind: str, a: Tensor, src: list[Tensor | None], ne: tuple[int, ...], swapped: bool) -> Tensor:
        known = [one for one in GLU if one not in ("SWIGLU_OAI", "SWIGLU_CLAMP")]
        need(kind in known, "glu", f"there is no kind {kind!r}: take one of {', '.join(known)}", a)
        need(is_contiguous(a, 1), kind.lower(), "it must be contiguous but for its rows", a)
        while src[-1] is None:
            src.pop()
        return self._new("GLU", a.type, ne, src, words(GLU.index(kind), int(swapped)), desc=kind)

    def scale(self, a: Tensor, s: float, *, inplace: bool = False) -> Tensor:
        """Times a number."""
        return self.scale_bias(a, s, 0.0, inplace=inplace)

    def scale_bias(self, a: Tensor, s: float, b: float, *, inplace: bool = False) -> Tensor:
        """Times a number, plus another one."""
        need(is_padded(a), "scale", "only its rows may be apart", a)
        return self._like("SCALE", a, [a], words(float(s), float(b)), inplace)

    def fill(self, a: Tensor, c: float, *, inplace: bool = False) -> Tensor:
        """A number in the form of ``a``."""
        need(is_contiguous(a), "fill", "it must be contiguous", a)
        return self._like("FILL", a, [a], words(float(c)), inplace)

    def clamp(self, a: Tensor, low: float, high: float) -> Tensor:
        """Between two numbers."""
        return self._like("CLAMP", a, [a], words(float(low), float(high)))

    def norm(self, a: Tensor, eps: float) -> Tensor:
        """Each row less its mean, divided by its standard deviation."""
        return self._like("NORM", a, [a], words(float(eps)))

    def rms_norm(self, a: Tensor, eps: float, *, inplace: bool = False) -> Tensor:
        """Each row divided by the root of the mean of its squares."""
        return self._like("RMS_NORM", a, [a], words(float(eps)), inplace)

    scale_inplace = partialmethod(scale, inplace=True)
    fill_inplace = partialmethod(fill, inplace=True)
    rms_norm_inplace = partialmethod(rms_norm, inplace=True)

    def sum(self, a: Tensor) -> Tensor:
        """The sum of all elements."""
        return self._new("SUM", a.type, (1,), [a])

    def sum_rows(self, a: Tensor) -> Tensor:
        """The sum of each row."""
        return self._new("SUM_ROWS", a.type, (1, *a.ne[1:]), [a])

    def mean(self, a: Tensor) -> Tensor:
        """The mean of each row."""
        return self._new("MEAN", "f32", (1, *a.ne[1:]), [a])

    def argmax(self, a: Tensor) -> Tensor:
        """The place of the largest element of each row, as i32; the last one of equal ones."""
        need(a.ne[2:] == (1, 1), "argmax", "it must be a matrix", a)
        return self._new("ARGMAX", "i32", (a.ne[1],), [a])
