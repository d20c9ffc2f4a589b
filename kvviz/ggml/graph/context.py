"""A context: small graphs are made in it with ggml's own functions."""

from __future__ import annotations

from functools import partialmethod

from kvviz.ggml.graph.new_nodes import MoveCalls, Nodes
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

PREC_F32 = 10
"""``GGML_PREC_F32``, the precision that llama.cpp asks of the product of K and Q."""

NORMAL, NEOX = 0, 2
"""Which elements ``rope`` rotates together: neighbours, or those half a row apart (``GGML_ROPE_TYPE_*``)."""


class AttentionCalls(Nodes):
    """``ggml_mul_mat``, ``ggml_soft_max*``, ``ggml_diag_mask_inf*``, ``ggml_rope*``, ``ggml_flash_attn_ext``."""

    def mul_mat(self, a: Tensor, b: Tensor) -> Tensor:
        """Each row of ``a`` times each row of ``b``, f32 [a.ne1, b.ne1, …]; ``a`` is repeated over dims 2 and 3."""
        need(a.ne[0] == b.ne[0], "mul_mat", f"rows of {a.ne[0]} and {b.ne[0]} elements have no product", a, b)
        need(_repeats(a, b), "mul_mat", "ne2 and ne3 of the second must be multiples of the first", a, b)
        need(a.nb[0] <= a.nb[1], "mul_mat", "the first must not be transposed: take cont of it", a, b)
        return self._new("MUL_MAT", "f32", (a.ne[1], *b.ne[1:]), [a, b])

    def mul_mat_set_prec(self, a: Tensor, prec: int = PREC_F32) -> Tensor:
        """Request a precision for a product; returns the tensor."""
        need(a.op == "MUL_MAT", "mul_mat_set_prec", "it must be a MUL_MAT", a)
        a.op_params = words(prec, *a.op_params[1:])
        return a

    def soft_max(self, a: Tensor, *, inplace: bool = False) -> Tensor:
        """Softmax of each row."""
        need(is_contiguous(a), "soft_max", "it must be contiguous", a)
        return self._like("SOFT_MAX", a, [a], words(1.0, 0.0), inplace)

    def soft_max_ext(self, a: Tensor, mask: Tensor | None, scale: float, max_bias: float) -> Tensor:
        """Softmax of each row times ``scale``, plus a mask, weighted by head if ``max_bias`` is above 0 (ALiBi)."""
        need(is_contiguous(a), "soft_max", "it must be contiguous", a)
        if mask is None:
            need(max_bias <= 0, "soft_max", "max_bias needs a mask", a)
            return self._like("SOFT_MAX", a, [a], words(float(scale), float(max_bias)))
        need(mask.type in ("f16", "f32"), "soft_max", "the mask must be f16 or f32", a, mask)
        need(is_contiguous(mask), "soft_max", "the mask must be contiguous", a, mask)
        fits = mask.ne[0] == a.ne[0] and mask.ne[1] >= a.ne[1] and _repeats(mask, a)
        need(fits, "soft_max", "the mask must have the same ne0, as many rows, and repeat over ne2 and ne3", a, mask)
        return self._like("SOFT_MAX", a, [a, mask], words(float(scale), float(max_bias)))

    def diag_mask_inf(self, a: Tensor, n_past: int, *, inplace: bool = False) -> Tensor:
        """−∞ where an element is more than ``n_past`` right of the diagonal."""
        return self._like("DIAG_MASK_INF", a, [a], words(n_past), inplace)

    def diag_mask_zero(self, a: Tensor, n_past: int) -> Tensor:
        """0 where an element is more than ``n_past`` right of the diagonal."""
        return self._like("DIAG_MASK_ZERO", a, [a], words(n_past))

    soft_max_inplace = partialmethod(soft_max, inplace=True)
    diag_mask_inf_inplace = partialmethod(diag_mask_inf, inplace=True)

    def rope(self, a: Tensor, b: Tensor, n_dims: int, mode: int = NORMAL) -> Tensor:
        """Rotate the first ``n_dims`` elements of each row by the angles of the positions ``b`` (i32, one per ne2)."""
        return self.rope_ext(a, b, None, n_dims, mode)

    def rope_ext(
        self,
        a: Tensor,
        b: Tensor,
        c: Tensor | None,
        n_dims: int,
        mode: int = NORMAL,
        n_ctx_orig: int = 0,
        freq_base: float = 10000.0,
        freq_scale: float = 1.0,
        ext_factor: float = 0.0,
        attn_factor: float = 1.0,
        beta_fast: float = 0.0,
        beta_slow: float = 0.0,
    ) -> Tensor:
        """As `rope`, with all its parameters; ``c`` divides the frequencies (f32, ``n_dims / 2`` of them)."""
        need(mode in (NORMAL, NEOX), "rope", f"mode {mode} is none of {NORMAL} (normal) and {NEOX} (neox)", a)
        need(0 < n_dims <= a.ne[0] and n_dims % 2 == 0, "rope", f"{n_dims} dims must be even, at most {a.ne[0]}", a)
        need(b.type == "i32" and b.ne[1:] == (1, 1, 1), "rope", "positions must be a vector of i32", a, b)
        need(a.ne[2] == b.ne[0], "rope", f"it needs {a.ne[2]} positions, not {b.ne[0]}", a, b)
        sources: list[Tensor | None] = [a, b]
        if c is not None:
            need(c.type == "f32" and c.ne[0] >= n_dims // 2, "rope", f"it needs {n_dims // 2} f32 factors", a, c)
            sources.append(c)
        floats = (freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow)
        return self._like("ROPE", a, sources, words(0, n_dims, mode, 0, n_ctx_orig, *map(float, floats)))

    def flash_attn_ext(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        scale: float,
        max_bias: float = 0.0,
        logit_softcap: float = 0.0,
    ) -> Tensor:
        """Attention of q [D, tokens, heads, …] to k [D, kv, kv heads, …] and v [DV, kv, kv heads, …], with a mask f16
        [kv, tokens, …]; the result is [DV, heads, tokens, …]."""
        need(q.ne[0] == k.ne[0], "flash_attn_ext", f"rows of {k.ne[0]} and {q.ne[0]} elements have no product", q, k)
        fits = _repeats(k, q) and _repeats(v, q) and q.ne[3] == k.ne[3] == v.ne[3]
        need(fits, "flash_attn_ext", "ne2 of Q must be a multiple of that of K and V, ne3 the same", q, k, v)
        need(k.ne[1] == v.ne[1], "flash_attn_ext", f"{k.ne[1]} keys need as many values, not {v.ne[1]}", k, v)
        sources: list[Tensor | None] = [q, k, v]
        if mask is None:
            need(max_bias <= 0, "flash_attn_ext", "max_bias needs a mask", q)
        else:
            need(mask.type == "f16" and is_contiguous(mask), "flash_attn_ext", "the mask: f16, contiguous", q, mask)
            fits = mask.ne[0] == k.ne[1] and mask.ne[1] >= q.ne[1] and _repeats(mask, q)
            need(fits, "flash_attn_ext", "the mask must be [keys, queries], and repeat over ne2 and ne3", q, k, mask)
            sources.append(mask)
        floats = words(float(scale), float(max_bias), float(logit_softcap))
        return self._new("FLASH_ATTN_EXT", "f32", (v.ne[0], q.ne[2], q.ne[1], q.ne[3]), sources, floats)

    def flash_attn_ext_set_prec(self, a: Tensor, prec: int = PREC_F32) -> Tensor:
        """Request a precision; returns the tensor."""
        need(a.op == "FLASH_ATTN_EXT", "flash_attn_ext_set_prec", "it must be a FLASH_ATTN_EXT", a)
        a.op_params = words(*(*a.op_params, 0, 0, 0)[:3], prec, *a.op_params[4:])
        return a


def _repeats(small: Tensor, large: Tensor) -> bool:
    """Whether one tensor may be repeated over axes 2 and 3 of another."""
    return all(m and n % m == 0 for n, m in zip(large.ne[2:], small.ne[2:]))


class MathCalls(Nodes):
    """Arithmetic, activations, norms, sums. Methods that end in ``_inplace`` write into their first source."""

    def _two(self, op: str, a: Tensor, b: Tensor, *, inplace: bool = False) -> Tensor:
        need(can_repeat(b, a), op.lower(), "the second must repeat to the sizes of the first", a, b)
        return self._like(op, a, [a, b], inplace=inplace)

    def _one(self, op: str, a: Tensor, *, inplace: bool = False) -> Tensor:
        return self._like(op, a, [a], inplace=inplace)

    def add1(self, a: Tensor, b: Tensor) -> Tensor:
        """A tensor plus a one-element tensor."""
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
        """Each element times a number."""
        return self.scale_bias(a, s, 0.0, inplace=inplace)

    def scale_bias(self, a: Tensor, s: float, b: float, *, inplace: bool = False) -> Tensor:
        """Each element times a number, plus another number."""
        need(is_padded(a), "scale", "only its rows may be apart", a)
        return self._like("SCALE", a, [a], words(float(s), float(b)), inplace)

    def fill(self, a: Tensor, c: float, *, inplace: bool = False) -> Tensor:
        """A tensor of the form of ``a``, filled with a number."""
        need(is_contiguous(a), "fill", "it must be contiguous", a)
        return self._like("FILL", a, [a], words(float(c)), inplace)

    def clamp(self, a: Tensor, low: float, high: float) -> Tensor:
        """Each element limited to a range."""
        return self._like("CLAMP", a, [a], words(float(low), float(high)))

    def norm(self, a: Tensor, eps: float) -> Tensor:
        """Each row minus its mean, divided by its standard deviation."""
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
        """The index of the largest element of each row, as i32; the last one of equal elements."""
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


class Context(MoveCalls, MathCalls, AttentionCalls):
    """A ``ggml_context``: its methods are ggml's functions, without the context as their first argument.

    Sizes ``ne`` and strides ``nb`` are in ggml's order, the innermost first; NumPy's shapes are the other way round.
    Names are ggml's too: ``"k (view)"``, ``"k (view) (copy of k_cur)"``.

    Parameters
    ----------
    check : bool
        Refuse views that reach beyond their root. ggml looks at packed sizes only and lets strided ones pass.
    set_rows_destination : bool
        Whether SET_ROWS has its destination among its sources, as since llama.cpp#16318 (September 2025). Before,
        it had no edge.

    Examples
    --------
    >>> ctx = Context()
    >>> k = ctx.new_tensor("f32", 4, 8, name="k")
    >>> k_cur = ctx.new_tensor("f32", 4, 2, name="k_cur", data=[1] * 4 + [2] * 4)
    >>> write = ctx.cpy(k_cur, ctx.view_2d(k, 4, 2, k.nb[1], 3 * k.nb[1]))
    >>> write.name, write.view_src.name, write.view_offs
    ('k (view) (copy of k_cur)', 'k', 48)
    >>> kq = ctx.mul_mat(ctx.view_2d(k, 4, 8, k.nb[1], 0), ctx.new_tensor("f32", 4, 1, name="q", data=[1] * 4))
    >>> [node.op for node in ctx.new_graph().expand(write).expand(kq).nodes]
    ['VIEW', 'CPY', 'VIEW', 'MUL_MAT']
    """
