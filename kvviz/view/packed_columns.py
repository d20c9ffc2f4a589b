"""A header and columns of numbers in one compressed block of bytes.

Layout: uint32 (little endian) length of the header | header, JSON in UTF-8, padded with spaces so that what follows
starts at a multiple of 8 | columns back to back, each padded to a multiple of 8. All of it gzipped, with no time stamp,
so that equal content gives equal bytes.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.view.payload_delta import patched

INT, FLOAT = "i", "d"
HEADER = "header."
_DTYPES: dict[str, np.dtype] = {INT: np.dtype("<i4"), FLOAT: np.dtype("<f8")}


class Strings:
    """Texts by number, each once."""

    __slots__ = ("_index",)

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """The number of a text, a new one if it was not seen before."""
        index = self._index
        return index.setdefault(text, len(index))

    def table(self) -> list[str]:
        """All texts in order of their numbers."""
        return list(self._index)


class Columns:
    """Columns by name, gathered and then written out together."""

    def __init__(self) -> None:
        self.arrays: dict[str, tuple[str, np.ndarray]] = {}

    def ints(self, name: str, values: Iterable[int]) -> None:
        """Add a column of 32-bit integers."""
        self._add(name, INT, values)

    def floats(self, name: str, values: Iterable[float]) -> None:
        """Add a column of 64-bit floats; exact for byte counts below 2**53."""
        self._add(name, FLOAT, values)

    def rows(self, prefix: str, fields: str, rows: Sequence[tuple]) -> None:
        """Add one column a field, ``"frame i, live d"``, from rows that hold the fields in that order."""
        kinds = [field.split() for field in fields.split(", ")]
        columns: Iterable[Any] = zip(*rows) if rows else [()] * len(kinds)
        for (name, kind), values in zip(kinds, columns, strict=True):
            self._add(f"{prefix}.{name}", kind, values)

    def _add(self, name: str, kind: str, values: Iterable[Any]) -> None:
        data = values if isinstance(values, (list, tuple, np.ndarray)) else list(values)
        self.arrays[name] = (kind, np.asarray(data, dtype=_DTYPES[kind]))


def parts(header: Mapping[str, Any], columns: Columns) -> dict[str, bytes]:
    """A payload before it is compressed, by the parts of it that change apart from each other: each entry of the header
    (their names begin with ``HEADER``), and each column. The table of columns becomes ``header["columns"]``."""
    table, blocks, offset = {}, {}, 0
    for name, (kind, array) in columns.arrays.items():
        data = array.tobytes()
        table[name] = [kind, offset, len(array)]
        blocks[name] = data + bytes(-len(data) % 8)
        offset += len(blocks[name])
    texts: dict[str, bytes] = {}
    for key, value in {**header, "columns": table}.items():
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        texts[HEADER + key] = b"%s%s:%s" % (
            b"," if texts else b"{",
            json.dumps(key).encode(),
            text.encode("utf-8", "replace"),
        )
    size = sum(map(len, texts.values())) + 1
    pad = -(4 + size) % 8
    return {HEADER + "size": (size + pad).to_bytes(4, "little"), **texts, HEADER + "end": b"}" + b" " * pad, **blocks}


def pack(header: Mapping[str, Any], columns: Columns, level: int = 6) -> bytes:
    """Header and columns as compressed bytes."""
    return compressed(parts(header, columns), level)


def compressed(told: Mapping[str, bytes], level: int = 6) -> bytes:
    """The parts of a payload as compressed bytes."""
    return gzip.compress(b"".join(told.values()), level, mtime=0)


def unpack(payload: bytes, *changes: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and columns of a payload, the inverse of `pack`; ``changes`` are put in one after the other."""
    raw = gzip.decompress(payload)
    for change in filter(None, changes):
        raw = patched(raw, change)
    size = int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4 : 4 + size])
    start = 4 + size
    columns = {
        name: np.frombuffer(raw, _DTYPES[kind], length, start + offset)
        for name, (kind, offset, length) in header["columns"].items()
    }
    return header, columns
