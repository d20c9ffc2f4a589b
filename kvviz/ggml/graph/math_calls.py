"""Ops that compute element by element or row by row."""

from __future__ import annotations

from functools import partialmethod

from kvviz.ggml.graph.new_nodes import Nodes
from kvviz.ggml.graph.tensor import (
    GLU,
    UNARY,
    Tensor,
    can_repeat,
    elements,
    has_whole_rows,
    is_contiguous,
    is_padded,
    need,
    words,
)


class MathCalls(Nodes):
    """Arithmetic, activations, norms, sums. What ends with ``_inplace`` is written into its first source."""

    def _two(self, op: str, a: Tensor, b: Tensor, *, inplace: bool = False) -> Tensor:
        need(can_repeat(b, a), op.lower(), "the second must repeat to the sizes of the first", a, b)
        return self._like(op, a, [a, b], inplace=inplace)

    def _one(self, op: str, a: Tensor, *, inplace: bool = False) -> Tensor:
        return self._like(op, a, [a], inplace=inplace)

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

    add, add_inplace = partialmethod(_two, "ADD"), partialmethod(_two, "ADD", inplace=True)
    sub, sub_inplace = partialmethod(_two, "SUB"), partialmethod(_two, "SUB", inplace=True)
    mul, mul_inplace = partialmethod(_two, "MUL"), partialmethod(_two, "MUL", inplace=True)
    div, div_inplace = partialmethod(_two, "DIV"), partialmethod(_two, "DIV", inplace=True)
    sqrt, sqrt_inplace = partialmethod(_one, "SQRT"), partialmethod(_one, "SQRT", inplace=True)
    sqr = partialmethod(_one, "SQR")
    log = partialmethod(_one, "LOG")
    sin = partialmethod(_one, "SIN")
    cos = partialmethod(_one, "COS")
    abs = partialmethod(unary, kind="ABS")
    sgn = partialmethod(unary, kind="SGN")
    neg = partialmethod(unary, kind="NEG")
    step = partialmethod(unary, kind="STEP")
    tanh = partialmethod(unary, kind="TANH")
    elu = partialmethod(unary, kind="ELU")
    relu = partialmethod(unary, kind="RELU")
    sigmoid = partialmethod(unary, kind="SIGMOID")
    gelu = partialmethod(unary, kind="GELU")
    gelu_erf = partialmethod(unary, kind="GELU_ERF")
    gelu_quick = partialmethod(unary, kind="GELU_QUICK")
    silu = partialmethod(unary, kind="SILU")
    exp = partialmethod(unary, kind="EXP")
    reglu, reglu_split = partialmethod(glu, kind="REGLU"), partialmethod(glu_split, kind="REGLU")
    geglu, geglu_split = partialmethod(glu, kind="GEGLU"), partialmethod(glu_split, kind="GEGLU")
    swiglu, swiglu_split = partialmethod(glu, kind="SWIGLU"), partialmethod(glu_split, kind="SWIGLU")
    geglu_erf = partialmethod(glu, kind="GEGLU_ERF")
    geglu_quick = partialmethod(glu, kind="GEGLU_QUICK")
