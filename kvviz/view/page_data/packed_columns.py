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
from typing import Any, NamedTuple

import numpy as np

from kvviz.errors import KvvizError

INT, FLOAT, RAW, ADDED = "i", "d", "raw", "s"
_DTYPES: dict[str, np.dtype] = {FLOAT: np.dtype("<f8"), **dict.fromkeys((INT, RAW, ADDED), np.dtype("<i4"))}
# The mark for a number in a text. The number -1 stands for a literal mark.
_MARK = "\x01"
_NUMBERS = re.compile(rf"(?<!\d)(?:0|[1-9]\d{{0,8}})(?!\d)|{_MARK}", re.ASCII)


class Strings:
    __slots__ = ("_added", "_alike", "_index", "_last", "_of")

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        # The results of `table` so far: a page in use asks at every step.
        self._alike: dict[str, int] = {}
        self._last: dict[int, list[int]] = {}
        self._of: list[int] = []
        self._added: list[int] = []

    def __call__(self, text: str) -> int:
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
    parts = [text.split(_MARK) for text in alike]
    last = [[0] * (len(part) - 1) for part in parts]
    left, found = iter(added), []
    for number in map(int, of):
        last[number] = [then + int(next(left)) for then in last[number]]
        shown = (_MARK if now < 0 else str(now) for now in last[number])
        found.append("".join(piece for both in zip(parts[number], (*shown, "")) for piece in both))
    return found


class Columns:
    def __init__(self) -> None:
        self.arrays: dict[str, tuple[str, np.ndarray]] = {}

    def ints(self, name: str, values: Iterable[int]) -> None:
        self._add(name, INT, values)

    def packed(self, name: str, data: bytes) -> None:
        self._add(name, RAW, np.frombuffer(data + bytes(-len(data) % 4), "<i4"))

    def floats(self, name: str, values: Iterable[float]) -> None:
        """Add a column of 64-bit floats, which are exact for byte counts below 2**53."""
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


class Sent(NamedTuple):
    """A header, and encoded columns: each with its kind, integers as differences from entry to entry."""

    header: dict[str, Any]
    arrays: dict[str, tuple[str, np.ndarray]]


def sent(header: Mapping[str, Any], columns: Columns) -> Sent:
    arrays = {
        name: (ADDED, np.diff(array, prepend=np.int32(0))) if kind == INT else (kind, array)
        for name, (kind, array) in columns.arrays.items()
    }
    return Sent(dict(header), arrays)


def pack(header: Mapping[str, Any], columns: Columns, level: int = 6) -> bytes:
    return written(sent(header, columns), level)


def written(content: Sent, level: int = 6) -> bytes:
    table = {name: [kind, len(array)] for name, (kind, array) in content.arrays.items()}
    return _compressed({**content.header, "columns": table}, [array for _, array in content.arrays.values()], level)


def change(old: Sent, new: Sent, level: int = 6) -> bytes | None:
    """What to send so that a reader of one payload has a later one; None if an entry of the header, or a column, has
    gone.

    The layout is that of a payload. The header has the entries that differ, of a list only the part after the equal
    front, whose length is in ``fronts``. The table of columns has those that differ: kind, number of new entries, and
    how many entries of the old column stay before and after them. ``base`` is the number of old columns' entries.
    """
    if old.header.keys() - new.header.keys() or old.arrays.keys() - new.arrays.keys():
        return None
    entries: dict[str, Any] = {}
    fronts: dict[str, int] = {}
    for key, value in new.header.items():
        before = old.header.get(key)
        if value != before and isinstance(value, list) and isinstance(before, list):
            fronts[key] = next(
                (i for i, (a, b) in enumerate(zip(before, value)) if a != b), min(len(before), len(value))
            )
            entries[key] = value[fronts[key] :]
        elif value != before:
            entries[key] = value
    table: dict[str, list[Any]] = {}
    middles = []
    for name, (kind, array) in new.arrays.items():
        _, before = old.arrays.get(name, (kind, array[:0]))
        front = _alike(before, array)
        back = _alike(before[front:][::-1], array[front:][::-1])
        if name not in old.arrays or len(before) != len(array) or front < len(array):
            middles.append(array[front : len(array) - back])
            table[name] = [kind, len(middles[-1]), front, back]
    return _compressed({**entries, "fronts": fronts, "base": _entries(old), "columns": table}, middles, level)


def unpack(payload: bytes, *changes: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and columns of a payload, the inverse of `pack`; ``changes`` are applied in order. Raises `KvvizError`: if
    a change belongs to another payload."""
    header, table, arrays = _read(payload)
    kinds = {name: kind for name, (kind, *_) in table.items()}
    for more in filter(None, changes):
        entries, table, middles = _read(more)
        fronts, base = entries.pop("fronts"), entries.pop("base")
        if base != (count := sum(map(len, arrays.values()))):
            raise KvvizError(f"this change is for a payload of {base:,} entries, not of {count:,}")
        header |= {
            key: header[key][: fronts[key]] + value if key in fronts else value for key, value in entries.items()
        }
        for name, (kind, _, front, back) in table.items():
            kinds[name], old = kind, arrays.get(name, middles[name][:0])
            arrays[name] = np.concatenate([old[:front], middles[name], old[len(old) - back :]])
    columns = {
        name: np.cumsum(array, dtype=array.dtype) if kinds[name] == ADDED else array for name, array in arrays.items()
    }
    header["columns"] = {name: [kinds[name], len(array)] for name, array in arrays.items()}
    if "text.of" in columns:
        header["strings"] = texts(header["strings"], columns["text.of"], columns["number.added"])
    return header, columns


def _compressed(header: Mapping[str, Any], arrays: Iterable[np.ndarray], level: int) -> bytes:
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")
    pad = -(4 + len(text)) % 8
    blocks = [(len(text) + pad).to_bytes(4, "little"), text, b" " * pad]
    for array in arrays:
        blocks += [array.tobytes(), bytes(-array.nbytes % 8)]
    return gzip.compress(b"".join(blocks), level, mtime=0)


def _read(payload: bytes) -> tuple[dict[str, Any], dict[str, list[Any]], dict[str, np.ndarray]]:
    raw = gzip.decompress(payload)
    start = 4 + int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4:start])
    arrays = {}
    for name, (kind, length, *_) in header["columns"].items():
        arrays[name] = np.frombuffer(raw, _DTYPES[kind], length, start)
        start += arrays[name].nbytes + -arrays[name].nbytes % 8
    return header, header.pop("columns"), arrays


def _alike(a: np.ndarray, b: np.ndarray) -> int:
    shared = min(len(a), len(b))
    unlike = np.flatnonzero(a[:shared] != b[:shared])
    return int(unlike[0]) if len(unlike) else shared


def _entries(content: Sent) -> int:
    return sum(len(array) for _, array in content.arrays.values())
