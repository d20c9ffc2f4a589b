"""A place in which small graphs are made in ggml's own words."""

from __future__ import annotations

from kvviz.ggml.graph.attention_calls import AttentionCalls
from kvviz.ggml.graph.math_calls import MathCalls
from kvviz.ggml.graph.move_calls import MoveCalls


class Context(MoveCalls, MathCalls, AttentionCalls):
    """A ``ggml_context``: its methods are ggml's functions, without the context as their first argument.

    Sizes ``ne`` and strides ``nb`` are in ggml's order, the innermost first; NumPy's shapes are the other way round.
    Names are ggml's too: ``"k (view)"``, ``"k (view) (copy of k_cur)"``.

    Parameters
    ----------
    check : bool
        Refuse views that reach beyond their root. ggml looks at packed sizes only and lets strided ones pass.
    set_rows_destination : bool
        Whether SET_ROWS has what it writes into among its sources, as since llama.cpp#16318 (September 2025). Before,
        no edge of the graph led to it.

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
