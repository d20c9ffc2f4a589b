"""New tensors of a context: leafs, results, views that keep their root and absolute offset, and ops that move elements.

Source: ``ggml_new_tensor_impl`` and ``ggml_view_tensor`` of ggml (``src/ggml.c``, version 0.25.3).
"""

from __future__ import annotations

from functools import partialmethod
from math import prod
from typing import Any

from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.tensor import (
    INPUT,
    MAX_NAME,
    OUTPUT,
    PARAM,
    Tensor,
    can_repeat,
    elements,
    has_whole_rows,
    is_contiguous,
    need,
    new_tensor,
    packed,
    type_size,
    wide,
    words,
)
from kvviz.ggml.graph.tensor_data import allocate, tensor_set


class Nodes:
    """The parts that every op of a context is built from."""

    def __init__(self, check: bool = True, set_rows_destination: bool = True) -> None:
        self.check = check
        self.set_rows_destination = set_rows_destination

    def new_tensor(self, type_: str, *ne: int, name: str = "", data: Any = None, role: str = "") -> Tensor:
        """A leaf, all zero or filled with numbers.

        Parameters
        ----------
        type_ : str
            ``"f32"``, ``"f16"``, ``"bf16"``, ``"q8_0"``, ``"i32"``, ``"i64"``; others can be laid out but not run.
        *ne : int
            Up to four sizes, the innermost first.
        data : array_like, optional
            As many numbers, those of ``ne[0]`` next to each other.
        role : str
            ``"weight"``, ``"state"`` or ``"input"``; by default a state if an op writes it, else an input.
        """
        made = new_tensor(type_, ne, _cut(name))
        made.role = role
        allocate(made)
        return made if data is None else tensor_set(made, data)

    def set_name(self, tensor: Tensor, name: str) -> Tensor:
        """Name a tensor; a name has at most 63 bytes."""
        tensor.name = _cut(name)
        return tensor

    def set_input(self, tensor: Tensor) -> Tensor:
        """Flag as an input: an allocator places it before everything else."""
        tensor.flags |= INPUT
        return tensor

    def set_output(self, tensor: Tensor) -> Tensor:
        """Flag as an output, and its root: an allocator never reuses their memory."""
        tensor.flags |= OUTPUT
        tensor.root.flags |= OUTPUT
        return tensor

    def set_param(self, tensor: Tensor) -> Tensor:
        """Flag as a parameter of training: a graph has it among its nodes."""
        need(tensor.op == "NONE", "set_param", "only a leaf can be a parameter", tensor)
        tensor.flags |= PARAM
        return tensor

    def new_graph(self, title: str = "ggml graph", right_to_left: bool = False) -> ComputeGraph:
        """An empty graph."""
        return ComputeGraph(title, right_to_left)

    def _new(
        self,
        op: str,
        type_: str,
        ne: tuple[int, ...],
        src: list[Tensor | None],
        params: tuple[int, ...] = (),
        name: str = "",
        desc: str = "",
    ) -> Tensor:
        made = new_tensor(type_, ne, _cut(name))
        made.op, made.src, made.op_params, made.desc = op, src, params, desc
        return made

    def _view(
        self,
        op: str,
        of: Tensor,
        src: list[Tensor | None],
        params: tuple[int, ...] = (),
        *,
        ne: tuple[int, ...] | None = None,
        nb: tuple[int, ...] | None = None,
        offset: int = 0,
        name: str | None = None,
        desc: str = "",
    ) -> Tensor:
        """A result in the memory of another tensor, by default all of it. ggml asserts only that its packed form fits
        into the root, before it sets the strides."""
        sizes = of.ne if ne is None else (*ne, *[1] * (4 - len(ne)))
        need(all(n >= 0 for n in sizes) and offset >= 0, op, f"sizes {sizes} or offset {offset} below 0", of)
        root, start = of.root, of.view_offs + offset
        block, item = type_size(of.type)
        size, end = sizes[0] // block * item * prod(sizes[1:]), root.nbytes
        what = f"{size} bytes from byte {start} of {root.name!r}, which has {end}"
        need(not size or start + size <= end, op, f"it takes {what}", of)
        strides = nb if nb is not None else of.nb if ne is None else packed(of.type, sizes)
        label = _cut(f"{of.name} (view)" if name is None else name)
        made = Tensor(label, of.type, sizes, strides, op, desc, params, 0, src, root, start)  # type: ignore[arg-type]
        if self.check:
            last = f"it reaches byte {start + made.nbytes} of {root.name!r}, which has {end}"
            hint = "ggml, which looks at packed sizes only, would accept it, as Context(check=False) does"
            need(not size or start + made.nbytes <= end, op, f"{last} ({hint})", of)
        return made

    def _like(
        self,
        op: str,
        a: Tensor,
        src: list[Tensor | None],
        params: tuple[int, ...] = (),
        inplace: bool = False,
        desc: str = "",
    ) -> Tensor:
        """A result of the form of a source, in its memory or in its own."""
        if inplace:
            return self._view(op, a, src, params, desc=desc)
        return self._new(op, a.type, a.ne, src, params, desc=desc)


def _cut(name: str) -> str:
    return name.encode()[:MAX_NAME].decode(errors="ignore")


class MoveCalls(Nodes):
    """``ggml_view_*``, ``ggml_reshape_*``, ``ggml_permute``; ``ggml_cpy``, ``ggml_set*``, ``ggml_get_rows`` …"""

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

    def dup(self, a: Tensor) -> Tensor:
        """A contiguous copy."""
        return self._like("DUP", a, [a])

    def cpy(self, a: Tensor, b: Tensor) -> Tensor:
        """Write ``a`` into ``b``, element by element in order; the result is a view of ``b``."""
        counts = elements(a), elements(b)
        need(counts[0] == counts[1], "cpy", f"they have {counts[0]} and {counts[1]} elements", a, b)
        name = f"{b.name} (copy of {a.name})" if b.name else f"{a.name} (copy)"
        return self._view("CPY", b, [a, b], name=name)

    def cast(self, a: Tensor, type_: str) -> Tensor:
        """A copy in another element type: a CPY that is its own second source."""
        made = self._new("CPY", type_, a.ne, [a], name=f"{a.name} (copy)")
        made.src.append(made)
        return made

    def cont(self, a: Tensor) -> Tensor:
        """A contiguous copy."""
        return self._cont(a, a.ne)

    def cont_2d(self, a: Tensor, ne0: int, ne1: int) -> Tensor:
        """A contiguous copy of other sizes."""
        return self._cont(a, (ne0, ne1))

    def _cont(self, a: Tensor, ne: tuple[int, ...]) -> Tensor:
        need(elements(a) == prod(ne), "cont", f"it has {elements(a)} elements, {list(ne)} are {prod(ne)}", a)
        return self._new("CONT", a.type, ne, [a], name=f"{a.name} (cont)")

    def set(self, a: Tensor, b: Tensor, nb1: int, nb2: int, nb3: int, offset: int, *, inplace: bool = False) -> Tensor:
        """A copy of ``a`` in which ``b`` lies at a byte offset, with these strides."""
        return self._patch("SET", a, b, (nb1, nb2, nb3), offset, inplace)

    def set_1d(self, a: Tensor, b: Tensor, offset: int, *, inplace: bool = False) -> Tensor:
        """As `set`, with the strides of ``a``."""
        return self._patch("SET", a, b, a.nb[1:], offset, inplace)

    def set_2d(self, a: Tensor, b: Tensor, nb1: int, offset: int, *, inplace: bool = False) -> Tensor:
        """As `set`, with the outer strides of ``a``."""
        return self._patch("SET", a, b, (nb1, *a.nb[2:]), offset, inplace)

    def acc(self, a: Tensor, b: Tensor, nb1: int, nb2: int, nb3: int, offset: int, *, inplace: bool = False) -> Tensor:
        """As `set`, but ``b`` is added to what is there."""
        return self._patch("ACC", a, b, (nb1, nb2, nb3), offset, inplace)

    set_inplace = partialmethod(set, inplace=True)
    set_1d_inplace = partialmethod(set_1d, inplace=True)
    set_2d_inplace = partialmethod(set_2d, inplace=True)
    acc_inplace = partialmethod(acc, inplace=True)

    def _patch(self, op: str, a: Tensor, b: Tensor, nb: tuple[int, ...], offset: int, inplace: bool) -> Tensor:
        name = op.lower()
        need(elements(b) <= elements(a), name, f"{elements(b)} elements do not fit into {elements(a)}", a, b)
        need(is_contiguous(a), name, "the first one must be contiguous", a, b)
        need(a.type == b.type in (("f32",) if op == "ACC" else ("f32", "i32")), name, "they must both be f32", a, b)
        end = offset + type_size(b.type)[1] + sum((n - 1) * s for n, s in zip(b.ne, (b.nb[0], *nb)))
        fits = offset >= 0 and min(nb) >= 0 and (0 in b.ne or end <= a.nbytes)
        need(fits, name, f"the patch reaches byte {end} of {a.nbytes}", a, b)
        return self._like(op, a, [a, b], words(*nb, offset, int(inplace)), inplace)

    def get_rows(self, a: Tensor, b: Tensor) -> Tensor:
        """The rows of ``a`` that ``b`` (i32) names, as f32."""
        same = a.ne[2:] == b.ne[1:3] and b.ne[3] == 1
        need(same, "get_rows", "ne2 and ne3 of the rows must be ne1 and ne2 of the index", a, b)
        need(b.type == "i32", "get_rows", "the index must be i32", a, b)
        return self._new("GET_ROWS", "i32" if a.type == "i32" else "f32", (a.ne[0], *b.ne[:3]), [a, b])

    def set_rows(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """Write the rows of ``b`` into the rows of ``a`` that ``c`` (i64 or i32) names; the result is a view of all of
        ``a``."""
        need(a.ne[0] == b.ne[0], "set_rows", f"rows of {b.ne[0]} elements do not fit {a.ne[0]}", a, b, c)
        need(a.ne[2:] == b.ne[2:], "set_rows", "ne2 and ne3 of both must be equal", a, b, c)
        need(b.ne[1] == c.ne[0], "set_rows", f"{b.ne[1]} rows need as many indices, not {c.ne[0]}", a, b, c)
        spread = 0 not in c.ne and b.ne[2] % c.ne[1] == 0 and b.ne[3] % c.ne[2] == 0 and c.ne[3] == 1
        need(spread or 0 in b.ne, "set_rows", "the index must repeat over ne2 and ne3 of the rows", a, b, c)
        need(b.type in ("f32", "f16"), "set_rows", "the rows must be f32 or f16", a, b, c)
        need(c.type in ("i64", "i32"), "set_rows", "the index must be i64 or i32", a, b, c)
        need(has_whole_rows(a) and has_whole_rows(b), "set_rows", "rows must be contiguous", a, b, c)
        return self._view("SET_ROWS", a, [b, c, a] if self.set_rows_destination else [b, c])

    def repeat(self, a: Tensor, b: Tensor) -> Tensor:
        """``a`` repeated to the sizes of ``b``; ``b`` is no source."""
        need(can_repeat(a, b), "repeat", "the sizes of the second must be multiples of the first", a, b)
        return self._new("REPEAT", a.type, b.ne, [a])

    def repeat_4d(self, a: Tensor, ne0: int, ne1: int, ne2: int, ne3: int) -> Tensor:
        """As `repeat`, to explicit sizes."""
        ne = (ne0, ne1, ne2, ne3)
        fits = 0 in a.ne or all(n % m == 0 for n, m in zip(ne, a.ne))
        need(fits, "repeat_4d", f"sizes {list(ne)} must be multiples of its own", a)
        return self._new("REPEAT", a.type, ne, [a])

    def concat(self, a: Tensor, b: Tensor, dim: int) -> Tensor:
        """``b`` behind ``a`` along an axis."""
        need(0 <= dim < 4, "concat", f"there is no axis {dim}", a, b)
        need(a.type == b.type, "concat", "they must be of one type", a, b)
        same = all(n == m for axis, (n, m) in enumerate(zip(a.ne, b.ne)) if axis != dim)
        need(same, "concat", f"all sizes but ne{dim} must be equal", a, b)
        ne = tuple(n + b.ne[axis] if axis == dim else n for axis, n in enumerate(a.ne))
        return self._new("CONCAT", a.type, ne, [a, b], words(dim))
