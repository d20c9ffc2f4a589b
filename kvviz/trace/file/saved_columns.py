"""The columns of a log in a file, written as they are and checked when they are read.

Each column of a log's `COLUMNS` is a member of its own, ``op.frame.i2`` say: little-endian numbers of the
smallest size that holds all of them. So are the capacity and the origin of each storage.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.errors import LoadError
from kvviz.trace.schema.events import HOW, OpNode
from kvviz.trace.schema.log import COLUMNS, Log, Table
from kvviz.trace.schema.storages import ORIGINS

Columns = Mapping[str, np.ndarray[Any, np.dtype[np.integer[Any]]]]
"""Columns of a file by table and name: ``"op.frame"``."""
SAVED = (
    *(f"{table}.{name}" for table, names in COLUMNS.items() for name in names),
    "storage.capacity",
    "storage.origin",
)
INTEGERS = ("i1", "i2", "i4", "i8")
_LARGEST = 1 << 48
# Format 11 had tables in the place of columns, of 8 bytes a number.
_TABLES: dict[str, tuple[str, ...]] = {
    "op": ("op.frame", "op.allocated", "op.copied", "op.written", "op.live", "op.outputs"),
    "fact": ("op.node", "op.refusal"),
    "out": ("out.storage", "out.generation", "out.how", "out.offset"),
    "form": ("out.form",),
    "free": ("free.op", "free.storage"),
    "capacity": ("storage.capacity",),
    "origin": ("storage.origin",),
}


class LogMembers(dict[str, Any]):
    """Members of a file, those of the columns of a log among them, which are made when they are written.

    ``numbers``: of each `OpNode` in the file, by its id.
    """

    def __init__(self, log: Log, numbers: Mapping[int, int]) -> None:
        super().__init__()
        nodes = np.array([numbers.get(id(op), -1) for op in log.nodes.entries], np.int64)
        tables = {"op": log.ops, "out": log.outs, "free": log.frees}
        for table, names in COLUMNS.items():
            for place, name in enumerate(names):
                column = np.frombuffer(tables[table], np.int64)[place :: len(names)]
                self._add(f"{table}.{name}", nodes[column] if name == "node" else column)
        self._add("storage.capacity", np.frombuffer(log.storages.capacities, np.int64))
        self._add("storage.origin", np.frombuffer(log.storages.origins, np.int8))

    def _add(self, name: str, column: np.ndarray) -> None:
        ends = (int(column.min()), int(column.max())) if column.size else (0, 0)
        kind = next(kind for kind in INTEGERS if all(np.iinfo(kind).min <= end <= np.iinfo(kind).max for end in ends))
        self[f"{name}.{kind}"] = lambda: column.astype(f"<{kind}").tobytes()

    def __getitem__(self, name: str) -> bytes:
        found = super().__getitem__(name)
        return found if isinstance(found, bytes) else found()


def column_members(there: Collection[str], tables: bool) -> list[str]:
    """Names of the members of a file that hold the columns; ``tables``: as in format 11."""
    if tables:
        return [f"{table}.i64" for table in _TABLES]
    found = []
    for name in SAVED:
        kinds = [f"{name}.{kind}" for kind in INTEGERS if f"{name}.{kind}" in there]
        if not kinds:
            raise LoadError(f"it has no member {name}: it is not a kvviz trace, or only a part of one")
        found.append(kinds[0])
    return found


def columns_in(members: Mapping[str, bytes]) -> Columns:
    """The columns that members hold, whose names `column_members` gave."""
    found: dict[str, np.ndarray] = {}
    for member, data in members.items():
        name, _, kind = member.rpartition(".")
        if kind == "i64":
            table = np.frombuffer(data, "<i8").reshape(-1, len(_TABLES[name]))
            found |= zip(_TABLES[name], table.T)
        else:
            found[name] = np.frombuffer(data, f"<{kind}")
    return found


def fill(log: Log, columns: Columns, nodes: Sequence[OpNode], refusals: Sequence[Any], forms: Sequence[Any]) -> None:
    """Fill a log, whose frames are there already, from columns that may hold anything.

    Raises `ValueError`: with what is wrong.
    """
    for table in (*COLUMNS, "storage"):
        lengths = {len(column) for name, column in columns.items() if name.startswith(f"{table}.")}
        _expect(len(lengths) == 1, "columns of other lengths")
    ops, outputs, storages = (len(columns[name]) for name in ("op.frame", "out.storage", "storage.origin"))
    limits = {
        "op.frame": (0, len(log.frames), "frame"),
        "op.node": (0, len(nodes), "node"),
        "op.refusal": (0, len(refusals), "refusal"),
        **{f"op.{name}": (1 - _LARGEST, _LARGEST, "number of bytes") for name in COLUMNS["op"][3:7]},
        "op.outputs": (0, outputs + 1, "number of outputs"),
        "out.storage": (-1, storages, "storage"),
        "out.generation": (0, 1 << 31, "generation"),
        "out.how": (0, len(HOW), "way to lie in a storage"),
        "out.offset": (-1, _LARGEST, "offset"),
        "out.form": (0, len(forms), "form"),
        "free.op": (0, ops, "free after an op"),
        "free.storage": (0, storages, "storage"),
        "storage.capacity": (0, _LARGEST, "capacity"),
        "storage.origin": (0, len(ORIGINS), "origin"),
    }
    for name, (low, high, what) in limits.items():
        _within(columns[name], low, high, what)
    made = np.diff(columns["op.outputs"].astype(np.int64), prepend=0)
    _expect(int(made.sum()) == outputs, "outputs of no op")
    counts = np.array([len(op.node.outputs) for op in nodes], np.int64)[columns["op.node"]]
    _expect(bool(((made >= 0) & (made <= counts)).all()), "an op with more outputs than its node has")
    _expect(bool((np.diff(columns["free.op"].astype(np.int64)) >= 0).all()), "frees in no order")
    pairs = np.unique(columns["op.node"].astype(np.int64) * max(len(refusals), 1) + columns["op.refusal"])
    for node, refusal in zip(*(part.tolist() for part in np.divmod(pairs, max(len(refusals), 1)))):
        given = {position for position, name in enumerate(nodes[node].node.inputs) if name}
        taken, masks = refusals[refusal]
        _expect(given.issuperset((*taken, *(i for i, _ in masks))), "an input that the node does not have")
    log.nodes, log.refusals, log.forms = Table(nodes), Table(refusals), Table(forms)
    log.ops, log.outs, log.frees = (
        _side_by_side([columns[f"{table}.{name}"] for name in names]) for table, names in COLUMNS.items()
    )
    log.storages.capacities = _side_by_side([columns["storage.capacity"]])
    log.storages.origins = array("b", columns["storage.origin"].tolist())
    log.columns_are_whole()


def _side_by_side(columns: Sequence[np.ndarray]) -> array[int]:
    made = array("q", [0]) * (len(columns[0]) * len(columns))
    table = np.frombuffer(made, np.int64).reshape(-1, len(columns))
    for place, column in enumerate(columns):
        table[:, place] = column
    return made


def _within(column: np.ndarray, low: int, high: int, what: str) -> None:
    if column.size:
        worst = int(column.min()) if column.min() < low else int(column.max())
        _expect(low <= worst < high, f"{what} {worst}")


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"it has {what}")
