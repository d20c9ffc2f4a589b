"""One line of a recording as checked values: who wrote the file is not known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvviz.errors import KvvizError
from kvviz.ggml.graph.tensor import MAX_DIMS, MAX_SRC, type_size
from kvviz.graph.names import quoted

LARGEST = 1 << 48
"""No count, size or offset of a recording is larger; a trace has the same limit."""

_ROLES = ("weight", "state", "input")


class TensorLine(NamedTuple):
    """A line of a leaf or a node; tensors are told by their ids."""

    id: int
    place: int | None
    name: str
    type: str
    ne: tuple[int, int, int, int]
    nb: tuple[int, int, int, int]
    op: str
    desc: str
    op_params: tuple[int, ...]
    flags: int
    src: tuple[int | None, ...]
    view_src: int | None
    view_offs: int
    role: str
    values: tuple[int, ...] | None
    buffer: int | None
    address: int | None


def parsed(text: str | bytes) -> dict[str, Any]:
    """A line as an object.

    Raises
    ------
    KvvizError
        If it is none.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise KvvizError(f"is not JSON: {reason}") from None
    if not isinstance(found, dict):
        raise KvvizError(f"is a {type(found).__name__}, not an object")
    return found


def whole_number(
    line: Mapping[str, Any], key: str, default: int | None = None, low: int = 0, high: int = LARGEST
) -> int:
    """A number of a line, between two limits."""
    found = line.get(key, default)
    if type(found) is not int or not low <= found <= high:
        raise KvvizError(f"has {key!r} = {_shown(found)}, but needs a whole number from {low} to {high}")
    return found


def number_or_none(line: Mapping[str, Any], key: str) -> int | None:
    """A number of a line, or None where there is none."""
    return None if line.get(key) is None else whole_number(line, key)


def text(line: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """A text of a line, without halves of characters, which no file can hold."""
    found = line.get(key, default)
    if not isinstance(found, str):
        raise KvvizError(f"has {key!r} = {_shown(found)}, but needs a text")
    return found.encode("utf-8", "replace").decode()


def tensor_line(line: Mapping[str, Any], types: Mapping[str, tuple[int, int]]) -> TensorLine:
    """A leaf or a node.

    Raises
    ------
    KvvizError
        If a field is missing, of a wrong type, or out of bounds.
    """
    node = line["k"] == "node"
    role = "" if node else text(line, "role")
    if not node and role not in _ROLES:
        raise KvvizError(f"has the role {_shown(role)}; the role of a leaf is one of {', '.join(_ROLES)}")
    ne, nb = (_numbers(line, key, 0, LARGEST, MAX_DIMS, MAX_DIMS) for key in ("ne", "nb"))
    values = _numbers(line, "values", -(1 << 63), (1 << 63) - 1) if line.get("values") is not None else None
    type_ = text(line, "type")
    if type_size(type_) != types.get(type_, type_size(type_)):
        raise KvvizError(f"is of type {type_}, whose blocks are {type_size(type_)}, not {types[type_]}")
    src = line.get("src", ())
    if not isinstance(src, list) or len(src) > MAX_SRC or not all(one is None or type(one) is int for one in src):
        raise KvvizError(f"has 'src' = {_shown(src)}, but needs a list of at most {MAX_SRC} ids")
    return TensorLine(
        whole_number(line, "id"),
        whole_number(line, "i") if node else None,
        text(line, "name"),
        type_,
        ne,  # type: ignore[arg-type]
        nb,  # type: ignore[arg-type]
        text(line, "op"),
        text(line, "desc", ""),
        _numbers(line, "op_params", -(1 << 31), (1 << 31) - 1, 0, 16) if "op_params" in line else (),
        whole_number(line, "flags", 0, -(1 << 31), (1 << 31) - 1),
        tuple(src),
        number_or_none(line, "view_src"),
        whole_number(line, "view_offs", 0),
        role,
        values,
        number_or_none(line, "buf"),
        number_or_none(line, "buf_offs"),
    )


def type_table(line: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The first line's sizes of element types: elements of a block, and its bytes."""
    found = line.get("types", {})
    if not isinstance(found, dict):
        raise KvvizError(f"has 'types' = {_shown(found)}, but needs sizes by type")
    table = {name: _numbers(found, name, 1, 1 << 20, 2, 2) for name in found}
    return {name: (elements, size) for name, (elements, size) in table.items()}


def _numbers(
    line: Mapping[str, Any], key: str, low: int, high: int, least: int = 0, most: int | None = None
) -> tuple[int, ...]:
    found = line.get(key)
    if not isinstance(found, list) or not all(type(one) is int and low <= one <= high for one in found):
        raise KvvizError(f"has {key!r} = {_shown(found)}, but needs a list of numbers from {low} to {high}")
    if not least <= len(found) <= (len(found) if most is None else most):
        raise KvvizError(f"has {len(found)} numbers in {key!r}, not {least}")
    return tuple(found)


def _shown(found: Any) -> str:
    """A value in a message: nobody reads a long one."""
    if isinstance(found, int) and found.bit_length() > 128:
        return f"a number of {found.bit_length()} bits"
    return quoted(found) if isinstance(found, str) else quoted(_brief(found))[1:-1]


def _brief(found: Any) -> str:
    if isinstance(found, Sequence) and len(found) > 16:
        return f"a list of {len(found)}"
    try:
        return json.dumps(found)
    except (ValueError, RecursionError):
        return type(found).__name__
