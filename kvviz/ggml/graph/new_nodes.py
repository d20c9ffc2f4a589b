"""New tensors of a context: leafs, results of their own, and views with the root and the absolute offset kept.

Source: ``ggml_new_tensor_impl`` and ``ggml_view_tensor`` of ggml (``src/ggml.c``, version 0.25.3).
"""

from __future__ import annotations

from math import prod
from typing import Any

from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.tensor import INPUT, MAX_NAME, OUTPUT, PARAM, Tensor, need, new_tensor, packed, type_size
from kvviz.ggml.graph.tensor_data import allocate, tensor_set


class Nodes:
    """What every op of a context is built with."""

    def __init__(self, check: bool = True, set_rows_destination: bool = True) -> None:
        self.check = check
        self.set_rows_destination = set_rows_destination

    # -- leafs and graphs -------------------------------------------------------------------------------------------

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
        """Flag as an input: an allocator gives it a place before all else."""
        tensor.flags |= INPUT
        return tensor

    def set_output(self, tensor: Tensor) -> Tensor:
        """Flag as an output, and its root: an allocator never gives their place away."""
        tensor.flags |= OUTPUT
        tensor.root.flags |= OUTPUT
        return tensor

    def set_param(self, tensor: Tensor) -> Tensor:
        """Flag as a parameter of training: a graph has it among its nodes."""
        need(tensor.op == "NONE", "set_param", "only a leaf can be a parameter", tensor)
        tensor.flags |= PARAM
        return tensor

    def new_graph(self, title: str = "ggml graph", right_to_left: bool = False) -> ComputeGraph:
        """A graph without nodes."""
        return ComputeGraph(title, right_to_left)

    # -- results ----------------------------------------------------------------------------------------------------

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
        """A result with memory of its own, which it gets when it runs first."""
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
        """A result that lies in the memory of another tensor: by default all of it as it lies there.

        ggml asserts only that its packed form fits into the root, before it sets the strides.
        """
        sizes = of.ne if ne is None else (*ne, *[1] * (4 - len(ne)))
        need(all(n >= 0 for n in sizes) and offset >= 0, op, f"sizes {sizes} or offset {offset} below 0", of)
        root, start = of.root, of.view_offs + offset
        size, end = _packed_size(of.type, sizes), root.nbytes
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


def _packed_size(type_: str, ne: tuple[int, ...]) -> int:
    block, size = type_size(type_)
    return ne[0] // block * size * prod(ne[1:])


def _cut(name: str) -> str:
    """As much of a name as 63 bytes hold."""
    return name.encode()[:MAX_NAME].decode(errors="ignore")
