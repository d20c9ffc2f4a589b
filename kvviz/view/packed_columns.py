"""A header and columns of numbers in one compressed block of bytes.

Layout: uint32 (little endian) length of the header | header, JSON in UTF-8, padded with spaces so that the columns
start at a multiple of 8 | columns back to back, each padded to a multiple of 8. The whole is gzipped without a time
stamp, so that equal content gives equal bytes.

The header's ``columns`` gives the kind and length of each. Integer columns are delta-encoded, modulo 2**32. Texts that
differ only in numbers are stored once, with a mark for each number; a column has the difference of each number from
the previous text of the same form.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from kvviz.view.payload_delta import patched

INT, FLOAT, RAW, ADDED = "i", "d", "raw", "s"
HEADER = "header."
_DTYPES: dict[str, np.dtype] = {FLOAT: np.dtype("<f8"), **dict.fromkeys((INT, RAW, ADDED), np.dtype("<i4"))}
# The mark for a number in a text. The number -1 stands for a literal mark.
_MARK = "\x01"
_NUMBERS = re.compile(rf"(?<!\d)(?:0|[1-9]\d{{0,8}})(?!\d)|{_MARK}", re.ASCII)


class Strings:
    """Texts by number, each once."""

    __slots__ = ("_added", "_alike", "_index", "_last", "_of")

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        # The results of `table` so far: a page in use asks at every step.
        self._alike: dict[str, int] = {}
        self._last: dict[int, list[int]] = {}
        self._of: list[int] = []
        self._added: list[int] = []

    def __call__(self, text: str) -> int:
        """The number of a text; a new text gets a new number."""
        index = self._index
        return index.setdefault(text, len(index))

    def table(self, columns: Columns) -> list[str]:
        """Texts with marks for numbers; adds the columns from which all texts are restored, in order."""
        for text in islice(self._index, len(self._of), None):
            numbers = [-1 if found == _MARK else int(found) for found in _NUMBERS.findall(text)]
            number = self._alike.setdefault(_NUMBERS.sub(_MARK, text), len(self._alike))
            before = self._last.get(number, [0] * len(numbers))
            self._added += [now - then for now, then in zip(numbers, before)]
            self._last[number] = numbers
            self._of.append(number)
        columns.ints("text.of", self._of)
        columns.ints("number.added", self._added)
        return list(self._alike)


def texts(alike: Sequence[str], of: Iterable[int], added: Iterable[int]) -> list[str]:
    """All texts, the inverse of `Strings.table`."""
    parts = [text.split(_MARK) for text in alike]
    last = [[0] * (len(part) - 1) for part in parts]
    left, found = iter(added), []
    for number in map(int, of):
        last[number] = [then + int(next(left)) for then in last[number]]
        shown = (_MARK if now < 0 else str(now) for now in last[number])
        found.append("".join(piece for both in zip(parts[number], (*shown, "")) for piece in both))
    return found


class Columns:
    """Columns by name, collected and then written together."""

    def __init__(self) -> None:
        self.arrays: dict[str, tuple[str, np.ndarray]] = {}

    def ints(self, name: str, values: Iterable[int]) -> None:
        """Add a column of 32-bit integers."""
        self._add(name, INT, values)

    def packed(self, name: str, data: bytes) -> None:
        """Add bytes as they are, as a column of 32-bit integers."""
        self._add(name, RAW, np.frombuffer(data + bytes(-len(data) % 4), "<i4"))

    def floats(self, name: str, values: Iterable[float]) -> None:
        """Add a column of 64-bit floats; exact for byte counts below 2**53."""
        self._add(name, FLOAT, values)

    def rows(self, prefix: str, fields: str, rows: Sequence[tuple]) -> None:
        """Add a column for each field, such as ``"frame i, live d"``, from rows with the fields in that order."""
        kinds = [field.split() for field in fields.split(", ")]
        columns: Iterable[Any] = zip(*rows) if rows else [()] * len(kinds)
        for (name, kind), values in zip(kinds, columns, strict=True):
            self._add(f"{prefix}.{name}", kind, values)

    def _add(self, name: str, kind: str, values: Iterable[Any]) -> None:
        data = values if isinstance(values, (list, tuple, np.ndarray)) else list(values)
        self.arrays[name] = (kind, np.asarray(data, dtype=_DTYPES[kind]))


def parts(header: Mapping[str, Any], columns: Columns) -> dict[str, bytes]:
    """A payload before compression, as parts that change independently: each entry of the header (its name begins with
    ``HEADER``), and each column. The table of columns becomes ``header["columns"]``."""
    table, blocks = {}, {}
    for name, (kind, array) in columns.arrays.items():
        data = (np.diff(array, prepend=array.dtype.type(0)) if kind == INT else array).tobytes()
        table[name] = [ADDED if kind == INT else kind, len(array)]
        blocks[name] = data + bytes(-len(data) % 8)
    entries: dict[str, bytes] = {}
    for key, value in {**header, "columns": table}.items():
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        entries[HEADER + key] = b"%s%s:%s" % (
            b"," if entries else b"{",
            json.dumps(key).encode(),
            text.encode("utf-8", "replace"),
        )
    size = sum(map(len, entries.values())) + 1
    pad = -(4 + size) % 8
    return {HEADER + "size": (size + pad).to_bytes(4, "little"), **entries, HEADER + "end": b"}" + b" " * pad, **blocks}


def pack(header: Mapping[str, Any], columns: Columns, level: int = 6) -> bytes:
    """Header and columns as compressed bytes."""
    return compressed(parts(header, columns), level)


def compressed(pieces: Mapping[str, bytes], level: int = 6) -> bytes:
    """The parts of a payload as compressed bytes."""
    return gzip.compress(b"".join(pieces.values()), level, mtime=0)


def unpack(payload: bytes, *changes: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and columns of a payload, the inverse of `pack`; ``changes`` are applied in order."""
    raw = gzip.decompress(payload)
    for change in filter(None, changes):
        raw = patched(raw, change)
    size = int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4 : 4 + size])
    columns, start = {}, 4 + size
    for name, (kind, length) in header["columns"].items():
        column = np.frombuffer(raw, _DTYPES[kind], length, start)
        columns[name] = np.cumsum(column, dtype=column.dtype) if kind == ADDED else column
        start += column.nbytes + -column.nbytes % 8
    if "text.of" in columns:
        header["strings"] = texts(header["strings"], columns["text.of"], columns["number.added"])
    return header, columns
