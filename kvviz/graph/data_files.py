"""Files of external data, each mapped into memory once, and whether what is mapped is still there.

Reading a mapped page that its file no longer has ends the process, with no exception that could be caught. So the
length of a file is asked for again before what was mapped is used: when a weight is taken, and when a run starts.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field

import numpy as np

from kvviz.errors import LoadError
from kvviz.graph.names import quoted


@dataclass(slots=True)
class DataFiles:
    label: str = ""
    # path to the bytes that the file must have for all weights in it
    needed: dict[str, int] = field(default_factory=dict)
    _mapped: dict[str, mmap.mmap] = field(default_factory=dict)

    def need(self, path: str, end: int) -> None:
        """Note that a weight ends at this byte."""
        self.needed[path] = max(end, self.needed.get(path, 0))

    def read(self, path: str, offset: int, nbytes: int) -> np.ndarray:
        """Bytes of a file as a read-only array over its mapping; a LoadError where the file has become too short."""
        mapped = self._mapped.get(path)
        if mapped is None:
            with open(path, "rb") as file:
                self._compare(path, file.seek(0, 2))
                mapped = self._mapped[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.check()
        return np.ndarray((nbytes,), np.uint8, mapped, offset)

    def check(self) -> None:
        """Raise LoadError if a file that is mapped was cut short since; about a microsecond a file."""
        for path, mapped in self._mapped.items():
            # The file that was mapped, whatever has its name now: to replace a file by another one is no harm.
            self._compare(path, mapped.size())

    def _compare(self, path: str, size: int) -> None:
        needed = self.needed.get(path, 0)
        if size < needed:
            raise LoadError(
                f"the data file {quoted(path)} of {self.label} was cut short after the model was loaded: its weights "
                f"need {needed:,} bytes and it has {size:,}; get it again and load the model anew"
            )
