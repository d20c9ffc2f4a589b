"""Ops that are only another look at memory: nothing is executed for them."""

from __future__ import annotations

from math import prod

from kvviz.ggml.new_nodes import Nodes
from kvviz.ggml.op_params import wide, words
from kvviz.ggml.tensor import Tensor, elements, packed
from kvviz.ggml.tensor_forms import is_contiguous, need


class ViewCalls(Nodes):
    """``ggml_view_*``, ``ggml_reshape_*``, ``ggml_permute``, ``ggml_transpose``."""

    def view_1d(self, a: Tensor, ne0: int, offset: int) -> Tensor:
        """Elements from an offset in bytes, relative to ``a``."""
        return self._part(a, (ne0,), (), offset)

    def view_2d(self, a: Tensor, ne0: int, ne1: int, nb1: int, offset: int) -> Tensor:
        """Rows that are ``nb1`` bytes apart."""
        return self._part(a, (ne0, ne1), (nb1,), offset)

    def view_3d(self, a: Tensor, ne0: int, ne1: int, ne2: int, nb1: int, nb2: int, offset: int) -> Tensor:
        """As `view_2d`, with one axis more."""
        return self._part(a, (ne0, ne1, ne2), (nb1, nb2), offset)

    def view_4d(
        self, a: Tensor, ne0: int, ne1: int, ne2: int, ne3: int, nb1: int, nb2: int, nb3: int, offset: int
    ) -> Tensor:
        """As `view_2d`, with two axes more."""
        return self._part(a, (ne0, ne1, ne2, ne3), (nb1, nb2, nb3), offset)

    def _part(self, a: Tensor, ne: tuple[int, ...], nb: tuple[int, ...], offset: int) -> Tensor:
        need(min((*ne, *nb, offset)) >= 0, f"view_{len(ne)}d", "a size, stride or offset below 0", a)
        strides = list(packed(a.type, (*ne, 1, 1, 1)[:4]))
        strides[1 : len(nb) + 1] = nb
        for axis in range(len(nb) + 1, 4):
            if nb:
                strides[axis] = strides[axis - 1] * (*ne, 1, 1)[axis - 1]
        params = wide(offset)
        return self._view("VIEW", a, [a], params, ne=ne, nb=tuple(strides), offset=offset)

    def reshape(self, a: Tensor, b: Tensor) -> Tensor:
        """The sizes of ``b``; ``b`` is no source."""
        return self._reshape("reshape", a, b.ne)

    def reshape_1d(self, a: Tensor, ne0: int) -> Tensor:
        """Other sizes of the same contiguous elements."""
        return self._reshape("reshape_1d", a, (ne0,))

    def reshape_2d(self, a: Tensor, ne0: int, ne1: int) -> Tensor:
        """Other sizes of the same contiguous elements."""
        return self._reshape("reshape_2d", a, (ne0, ne1))

    def reshape_3d(self, a: Tensor, ne0: int, ne1: int, ne2: int) -> Tensor:
        """Other sizes of the same contiguous elements."""
        return self._reshape("reshape_3d", a, (ne0, ne1, ne2))

    def reshape_4d(self, a: Tensor, ne0: int, ne1: int, ne2: int, ne3: int) -> Tensor:
        """Other sizes of the same contiguous elements."""
        return self._reshape("reshape_4d", a, (ne0, ne1, ne2, ne3))

    def _reshape(self, op: str, a: Tensor, ne: tuple[int, ...]) -> Tensor:
        need(is_contiguous(a), op, "it must be contiguous: take cont first", a)
        need(elements(a) == prod(ne), op, f"it has {elements(a)} elements, {list(ne)} are {prod(ne)}", a)
        return self._view("RESHAPE", a, [a], ne=ne, name=f"{a.name} (reshaped)")

    def permute(self, a: Tensor, axis0: int, axis1: int, axis2: int, axis3: int) -> Tensor:
        """Axis i of ``a`` becomes axis ``axis<i>`` of the result."""
        axes = (axis0, axis1, axis2, axis3)
        need(sorted(axes) == [0, 1, 2, 3], "permute", f"axes {list(axes)} are not 0 to 3, each of them once", a)
        back = [axes.index(axis) for axis in range(4)]
        made = self._view("PERMUTE", a, [a], words(*axes), name=f"{a.name} (permuted)")
        made.ne, made.nb = tuple(a.ne[i] for i in back), tuple(a.nb[i] for i in back)  # type: ignore[assignment]
        return made

    def transpose(self, a: Tensor) -> Tensor:
        """The first two axes swapped."""
        made = self._view("TRANSPOSE", a, [a], name=f"{a.name} (transposed)")
        made.ne, made.nb = (a.ne[1], a.ne[0], *a.ne[2:]), (a.nb[1], a.nb[0], *a.nb[2:])
        return made
