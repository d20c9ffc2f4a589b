"""Tensors as ggml keeps them: sizes and byte strides innermost first, sources, op parameters, and the root of a view.

Source of the conditions on sizes and strides: ``ggml_is_*`` and ``ggml_can_*`` of ``src/ggml.c``, 0.25.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from struct import pack, unpack

import numpy as np

from kvviz.errors import KvvizError
from kvviz.trace.schema.element_types import BLOCKS
from kvviz.trace.schema.regions import Region, whole

MAX_DIMS, MAX_SRC, MAX_NAME = 4, 10, 63
INPUT, OUTPUT, PARAM, LOSS, COMPUTE = 1, 2, 4, 8, 16
"""Bits of ``Tensor.flags`` (``ggml_tensor_flag``)."""

VIEW_OPS = frozenset({"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})
"""Ops that do nothing when they are executed."""

UNARY = (
    *("ABS", "SGN", "NEG", "STEP", "TANH", "ELU", "RELU", "SIGMOID", "GELU", "GELU_QUICK", "SILU"),
    *("HARDSWISH", "HARDSIGMOID", "EXP", "EXPM1", "SOFTPLUS", "GELU_ERF", "XIELU", "FLOOR", "CEIL", "ROUND", "TRUNC"),
)
"""Kinds of UNARY by their number (``ggml_unary_op``)."""

GLU = ("REGLU", "GEGLU", "SWIGLU", "SWIGLU_OAI", "GEGLU_ERF", "GEGLU_QUICK", "SWIGLU_CLAMP")
"""Kinds of GLU by their number (``ggml_glu_op``)."""

PLAIN = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
}
"""Plain element types (not blocks), as the log calls them."""


@dataclass(slots=True, eq=False)
class Tensor:
    """A ``ggml_tensor``, built here or recorded.

    Attributes
    ----------
    name : str
        A label: it may repeat, and may be empty.
    type : str
        ``"f32"``, ``"f16"``, ``"q8_0"``, … as in ``ggml_type_name``.
    ne, nb : tuple of four int
        Elements and bytes of a step along each axis, the innermost first; ``nb[0]`` of a block type is one block.
    op, desc : str
        ``"NONE"`` for a leaf; ``desc`` says which one of UNARY and GLU.
    op_params : tuple of int
        Up to sixteen 32-bit words; floats by their bits.
    flags : int
    src : list of Tensor or None
        The only edges that the graph declares. ``ggml_cast`` makes a tensor that is its own source.
    view_src, view_offs : Tensor or None, int
        The tensor that owns its memory, never itself a view, and the absolute offset there in bytes.
    role : str
        Of a leaf: ``"weight"``, ``"state"`` (a KV cache, recurrent state) or ``"input"``.
    values : ndarray or None
        The content of a small integer leaf, for the rows that it names.
    data : ndarray or None
        Of a root that is run here: its bytes.
    buffer, address : str, int or None
        The back end's buffer and the place there, if it is known.
    placed, guessed : bool
        Of a view: whether it is known which bytes of its root it takes; if not, it may be any of them. And whether only
        its name suggests its root.
    id : str
        Its name in a DOT file: ``"0x55…"``.
    room : int
        Of a root: the least bytes that it has, if its sizes do not determine them.
    """

    name: str
    type: str
    ne: tuple[int, int, int, int]
    nb: tuple[int, int, int, int]
    op: str = "NONE"
    desc: str = ""
    op_params: tuple[int, ...] = ()
    flags: int = 0
    src: list[Tensor | None] = field(default_factory=list, repr=False)
    view_src: Tensor | None = field(default=None, repr=False)
    view_offs: int = 0
    role: str = ""
    values: np.ndarray | None = field(default=None, repr=False)
    data: np.ndarray | None = field(default=None, repr=False)
    buffer: str = ""
    address: int | None = None
    placed: bool = True
    guessed: bool = False
    id: str = ""
    room: int = 0

    @property
    def kind(self) -> str:
        """Its op, and the kind of a UNARY or GLU."""
        return f"{self.op}({self.desc})" if self.desc else self.op

    @property
    def exact(self) -> bool:
        """Whether it is known which bytes it takes. A DOT file has no offsets, and does not show what ops overwrite."""
        return self.placed and not self.id

    @property
    def sources(self) -> list[Tensor]:
        """The entries of `src` that are not None."""
        return [source for source in self.src if source is not None]

    @property
    def others(self) -> list[Tensor]:
        """Its sources without itself."""
        return [source for source in self.src if source is not None and source is not self]

    @property
    def root(self) -> Tensor:
        """The tensor that owns the memory."""
        return self if self.view_src is None else self.view_src

    @property
    def nbytes(self) -> int:
        """Bytes from the first to behind the last, as ``ggml_nbytes``: of a strided view a bounding extent."""
        if 0 in self.ne:
            return 0
        block, size = type_size(self.type)
        if block == 1:
            return size + sum((n - 1) * step for n, step in zip(self.ne, self.nb))
        return self.ne[0] // block * self.nb[0] + sum((n - 1) * step for n, step in zip(self.ne[1:], self.nb[1:]))

    @property
    def capacity(self) -> int:
        """Bytes of the memory that a root owns."""
        return max(self.nbytes, self.room)

    @property
    def region(self) -> Region:
        """The bytes of its root that it covers, the outermost axis first; unknown ones where the place is not known."""
        if self.placed:
            return self.layout
        size = self.root.capacity
        # A DOT file leaves out the fourth size; of a matrix it is 1.
        most = min(self.nbytes, size) if self.ne[2:] == (1, 1) else size
        if self.guessed:
            return whole(size)._replace(known="name", most=most)
        return whole(size) if self.nbytes >= size else whole(size)._replace(known="root", most=most)

    @property
    def layout(self) -> Region:
        """Shape, strides, and the place in its root if that is known; axes of size 1 at the end are cut."""
        dims = max((axis + 1 for axis, n in enumerate(self.ne) if n != 1), default=1)
        return Region(self.view_offs, self.ne[:dims][::-1], self.nb[:dims][::-1], PLAIN.get(self.type, self.type))

    @property
    def writes_view(self) -> bool:
        """Whether it is a view that its op writes: CPY, SET_ROWS, ops in place."""
        return self.view_src is not None and self.op not in VIEW_OPS and self.op != "NONE"


def type_size(type_: str) -> tuple[int, int]:
    """Elements of a block of a type, 1 for plain types, and its bytes; raises `KvvizError` for an unknown type."""
    if type_ in BLOCKS:
        return BLOCKS[type_]
    if type_ not in PLAIN:
        known = ", ".join([*PLAIN, *BLOCKS])
        raise KvvizError(f"the tensor type {type_!r} is not known here; choose one of {known}")
    return 1, 2 if type_ == "bf16" else np.dtype(PLAIN[type_]).itemsize


def packed(type_: str, ne: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The byte strides ``nb`` of a contiguous tensor; raises `KvvizError` if rows are not whole blocks of the type."""
    block, size = type_size(type_)
    if ne[0] % block:
        raise KvvizError(f"a row of {ne[0]} elements is not a whole number of {type_} blocks of {block}")
    row = ne[0] // block * size
    return (size, row, row * ne[1], row * ne[1] * ne[2])


def new_tensor(type_: str, ne: tuple[int, ...], name: str = "") -> Tensor:
    """A contiguous tensor without data; ``ne`` has up to four sizes, the innermost first."""
    if not 1 <= len(ne) <= MAX_DIMS or any(n < 0 for n in ne):
        raise KvvizError(f"tensor {name!r} needs one to {MAX_DIMS} sizes of 0 or more, not {ne}")
    full = (*ne, *[1] * (MAX_DIMS - len(ne)))
    return Tensor(name[:MAX_NAME], type_, full, packed(type_, full))  # type: ignore[arg-type]


def elements(tensor: Tensor) -> int:
    return prod(tensor.ne)


def need(holds: bool, op: str, rule: str, *tensors: Tensor) -> None:
    """Raise a `KvvizError` that names the op, its tensors with their sizes, and the rule that they break."""
    if not holds:
        raise KvvizError(f"{op} of {' and '.join(map(described, tensors))}: {rule}")


def described(tensor: Tensor) -> str:
    """A tensor in an error: its name, type and sizes, and its strides unless they are packed."""
    dims = max((axis + 1 for axis, n in enumerate(tensor.ne) if n != 1), default=1)
    strides = "" if is_contiguous(tensor) else f" with nb {list(tensor.nb[:dims])}"
    return f"{tensor.name or 'an unnamed tensor'!r} {tensor.type} {list(tensor.ne[:dims])}{strides}"


def is_contiguous(tensor: Tensor, free: int = 0) -> bool:
    """``ggml_is_contiguous``; the first ``free`` axes behind the rows may lie anywhere (``ggml_is_contiguous_1``)."""
    block, step = type_size(tensor.type)
    if tensor.ne[0] != block and tensor.nb[0] != step:
        return False
    step *= tensor.ne[0] // block
    for axis in range(1, 4):
        if axis <= free:
            step = tensor.nb[axis]
        elif tensor.ne[axis] != 1 and tensor.nb[axis] != step:
            return False
        step *= tensor.ne[axis]
    return True


def has_whole_rows(tensor: Tensor) -> bool:
    """``ggml_is_contiguous_rows``."""
    block, size = type_size(tensor.type)
    return tensor.ne[0] == block or tensor.nb[0] == size


def is_padded(tensor: Tensor) -> bool:
    """``ggml_is_padded_1d``: rows may be apart, all else is packed."""
    outer = all(tensor.nb[axis] == tensor.nb[axis - 1] * tensor.ne[axis - 1] for axis in (2, 3))
    return tensor.nb[0] == type_size(tensor.type)[1] and outer


def can_repeat(small: Tensor, large: Tensor) -> bool:
    if 0 in small.ne:
        return 0 in large.ne
    return all(n % m == 0 for n, m in zip(large.ne, small.ne))


def words(*values: int | float) -> tuple[int, ...]:
    """Words of integers and floats (by their Python type), one each."""
    each = [unpack("<i", pack("<f", v) if isinstance(v, float) else pack("<I", v & 0xFFFFFFFF))[0] for v in values]
    while each and not each[-1]:
        each.pop()
    return tuple(each)


def wide(value: int) -> tuple[int, ...]:
    """Words of one ``size_t``."""
    return words(value & 0xFFFFFFFF, value >> 32)


def word(node: Tensor, place: int) -> int:
    return node.op_params[place] if place < len(node.op_params) else 0


def real(node: Tensor, place: int) -> float:
    return float(unpack("<f", pack("<i", word(node, place)))[0])
