"""A recording of rten, as a changed executor writes it: one JSON object a line, described in `tests/data/rten`."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any

from kvviz.errors import LoadError

Record = dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class RtenRun:
    """One run of a graph by rten.

    Attributes
    ----------
    run : int
        Its number.
    mode : str
        Who owns the inputs.
    outputs : tuple of str
        The requested ones, in order.
    records : tuple of dict
    """

    run: int
    mode: str
    outputs: tuple[str, ...]
    records: tuple[Record, ...]

    @property
    def ops(self) -> list[Record]:
        """The records of ops, in the order in which they were completed."""
        return self.of("op")

    def of(self, kind: str) -> list[Record]:
        """The records of one kind."""
        return [record for record in self.records if record["t"] == kind]

    @property
    def inputs(self) -> list[Record]:
        """What the caller gave."""
        given: list[Record] = self.of("graph")[0]["inputs"]
        return given


def read_recording(path: str | os.PathLike[str]) -> tuple[RtenRun, ...]:
    """The runs of a recording, which may be compressed with gzip.

    Raises `LoadError`: if the file is no recording of rten, or has no run.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
        lines = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode().splitlines()
        records = [record for line in lines if line and "run" in (record := json.loads(line))]
        runs = [
            (run, mode, tuple(mine))
            for (run, mode), mine in groupby(records, key=lambda record: (record["run"], record["mode"]))
        ]
        found = tuple(RtenRun(run, mode, tuple(mine[0]["outputs"]), mine) for run, mode, mine in runs)
    except (OSError, ValueError, TypeError, KeyError, EOFError) as error:
        raise LoadError(f"{os.fsdecode(path)} is no recording of rten: {error}") from None
    if not found:
        raise LoadError(f"{os.fsdecode(path)} has no run of rten")
    return found


def has_scratch(op: Record) -> bool:
    """Whether a kernel asked the pool for more than its outputs: from there on the pool depends on the kernels."""
    asked = sum(event[0] == "a" for event in op["pool"])
    return bool(op["dispatch"] != "subgraph") and asked != sum(
        bool(out) and out["how"].startswith("pool") for out in op["out"]
    )


def room(item: Record) -> int | None:
    """Rows that an input given away has room for along axis 2; None where it is tight or lent."""
    size = prod(item["shape"])
    if not item["owned"] or not size or item["cap"] <= size:
        return None
    rows: int = item["cap"] * item["shape"][2] // size
    return rows
