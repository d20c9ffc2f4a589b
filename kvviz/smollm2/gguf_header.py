"""Whether the counts and lengths in a GGUF file's header fit into the file, before anything is made from them.

The package ``gguf`` takes them as they are: 113 bytes that declare a list of 2^60 numbers would fill the memory.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from kvviz.errors import LoadError

_STRING, _LIST = 8, 9
_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, _STRING: 8, _LIST: 12, 10: 8, 11: 8, 12: 8}
"""Bytes of a value by its type; of strings and lists the fewest."""
_ENTRY, _TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
_DEEPEST, _MOST_DIMENSIONS = 4, 4


def check_header(path: Path) -> None:
    """Read over the header of a GGUF file, version 2 or 3; other files are left to the package.

    Raises
    ------
    LoadError
        It declares more than the file holds.
    """
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            return
        version = file.read(4)
        # Of a file in the other order of bytes the version begins with zeros.
        order = ">" if version[:2] == b"\0\0" else "<"
        if len(version) == 4 and struct.unpack(f"{order}I", version)[0] in (2, 3):
            _Header(path, file, order).check()


class _Header:
    def __init__(self, path: Path, file: BinaryIO, order: str) -> None:
        self.path, self.file, self.order = path, file, order
        self.size = os.fstat(file.fileno()).st_size

    def check(self) -> None:
        tensors, entries = self._number("Q"), self._number("Q")
        self._fits(tensors, _TENSOR, "tensors")
        self._fits(entries, _ENTRY, "entries")
        for _ in range(entries):
            self._string()
            self._value(self._number("I"), 0)
        for _ in range(tensors):
            self._string()
            dimensions = self._number("I")
            if dimensions > _MOST_DIMENSIONS:
                raise self._wrong(f"a tensor of {dimensions:,} dimensions")
            self._skip(8 * dimensions + 12, "a tensor")

    def _value(self, kind: int, depth: int) -> None:
        if kind == _STRING:
            self._string()
        elif kind != _LIST:
            self._skip(self._bytes(kind), "a value")
        elif depth == _DEEPEST:
            raise self._wrong(f"lists that nest more than {_DEEPEST} deep")
        else:
            kind, count = self._number("I"), self._number("Q")
            self._fits(count, self._bytes(kind), "values")
            if kind not in (_STRING, _LIST):
                self._skip(count * self._bytes(kind), "a list")
                return
            for _ in range(count):
                self._value(kind, depth + 1)

    def _bytes(self, kind: int) -> int:
        if kind not in _BYTES:
            raise self._wrong(f"a value of the unknown type {kind}")
        return _BYTES[kind]

    def _string(self) -> None:
        self._skip(self._number("Q"), "a text")

    def _number(self, kind: str) -> int:
        told = self.file.read(struct.calcsize(kind))
        if len(told) < struct.calcsize(kind):
            raise self._wrong("a header that goes on after its end")
        return int(struct.unpack(self.order + kind, told)[0])

    def _skip(self, nbytes: int, what: str) -> None:
        self._fits(nbytes, 1, f"bytes of {what}")
        self.file.seek(nbytes, os.SEEK_CUR)

    def _fits(self, count: int, nbytes: int, what: str) -> None:
        if count * nbytes > self.size - self.file.tell():
            raise self._wrong(f"{count:,} {what}")

    def _wrong(self, what: str) -> LoadError:
        return LoadError(
            f"{self.path} is a GGUF file that declares {what}, which {self.size:,} bytes cannot hold: "
            "it is damaged or cut short; get it again"
        )
