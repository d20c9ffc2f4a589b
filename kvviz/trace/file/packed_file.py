"""Members of a file in a zip archive, with a checksum over all of them, read within bounds.

Such a file is untrusted: the bytes unpacked are bounded by the bytes in the file, so that a small file cannot exhaust
memory, and the checksum reveals later changes.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from kvviz.atomic_write import replacing
from kvviz.errors import LoadError
from kvviz.trace.schema.events import HOW, ORIGINS, Bind, OpNode
from kvviz.trace.schema.log import COLUMNS, Log, Table, distinct

_CHECKSUM = "sha256"
# A member unpacks to at most this many times its packed bytes, plus a constant; real ones reach 5 to 60 times.
_RATIO = 64
_FREE = 1 << 20
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def write_packed(path: Any, members: Mapping[str, bytes | memoryview]) -> None:
    """Write members to a file (`kvviz.atomic_write.replacing`), each looked up once. Members that compress beyond what
    can be read again are stored unpacked. The same members give the same bytes."""
    with replacing(path) as file:
        archive = zipfile.ZipFile(file, "w")
        digest = hashlib.sha256()
        try:
            for name in sorted(members):
                data = members[name]
                _add(digest, name, data)
                _write(archive, name, data)
            _write(archive, _CHECKSUM, digest.hexdigest().encode())
        except BaseException:
            archive.fp = None  # to close a member that was begun would raise in the place of what stopped it
            raise
        archive.close()


def _write(archive: zipfile.ZipFile, name: str, data: bytes | memoryview) -> None:
    # A long member is compressed quickly rather than well.
    level = 6 if len(data) <= _FREE else 1
    packs = len(data) <= _FREE or len(zlib.compress(data, level)) * _RATIO + _FREE > len(data)
    entry = zipfile.ZipInfo(name)  # without the time at which it was written
    entry.external_attr = 0o600 << 16
    archive.writestr(entry, data, zipfile.ZIP_DEFLATED if packs else zipfile.ZIP_STORED, level)


def _add(digest: Any, name: str, data: bytes | memoryview) -> None:
    digest.update(f"{name} {len(data)}\n".encode())
    digest.update(data)


def checksum(members: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(members):
        _add(digest, name, members[name])
    return digest.hexdigest()


class Packed:
    """An archive that is open for reading; messages name the file ``path``."""

    def __init__(self, archive: zipfile.ZipFile, path: Any) -> None:
        self.path = path
        self._archive = archive
        self._entries = {entry.filename: entry for entry in archive.infolist()}
        if len(self._entries) != len(archive.infolist()):
            raise LoadError(f"{path} holds two members of one name: it was changed after it was written")
        # The directory of an archive may claim anything; all members together are no larger than the file.
        there = archive.fp.seek(0, 2) if archive.fp is not None else 0
        if sum(entry.compress_size for entry in archive.infolist()) > there:
            raise LoadError(f"{path} has {there:,} bytes, less than its members need: it was cut short or changed")

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._entries)

    def read(self, name: str) -> bytes:
        """The contents of a member; raises `LoadError` if it is missing, or larger than the bytes in the file can
        be."""
        entry = self._entries.get(name)
        if entry is None:
            raise LoadError(f"{self.path} has no member {name}: it is not a kvviz trace, or only a part of one")
        if entry.compress_type not in _PACKINGS or entry.flag_bits & 0x1:
            raise LoadError(f"{self.path} packs its member {name} in a way that kvviz does not write")
        if entry.file_size > entry.compress_size * _RATIO + _FREE:
            raise LoadError(
                f"{self.path} would unpack {entry.compress_size:,} bytes of its member {name} to {entry.file_size:,}, "
                f"more than {_RATIO} times as many: kvviz did not write this trace"
            )
        # The zip reader stops at the declared size, so that bounds what is read.
        with self._archive.open(entry) as member:
            return member.read(entry.file_size)

    def check(self, members: Mapping[str, bytes], extra: Iterable[str] = ()) -> None:
        """Raise LoadError unless these are all members, as they were written."""
        if checksum(members).encode() != self.read(_CHECKSUM):
            raise LoadError(
                f"{self.path} was changed after it was written: its contents do not agree with its checksum; "
                "save the trace again"
            )
        others = self._entries.keys() - members.keys() - {_CHECKSUM, *extra}
        if others:
            raise LoadError(f"{self.path} holds the unknown member {min(others)}: it was changed after it was written")


Columns = Mapping[str, np.ndarray[Any, np.dtype[np.integer[Any]]]]
"""Columns of a file by table and name: ``"op.frame"``."""
SAVED = (
    *(f"{table}.{name}" for table, names in COLUMNS.items() for name in names),
    "storage.capacity",
    "storage.origin",
    "frame.bind",
)
INTEGERS = ("i1", "i2", "i4", "i8")
_LARGEST = 1 << 48
# Format 11 had tables instead of columns, of 8 bytes a number; formats before 13 had no column of frames.
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
    """Members of a file, including the columns of a log, which are made while they are written. ``numbers``: of each
    `OpNode` in the file, by its id. ``bound``: numbers of the frames' bindings."""

    def __init__(self, log: Log, numbers: Mapping[int, int], bound: Sequence[int]) -> None:
        super().__init__()
        nodes = np.array([numbers.get(id(op), -1) for op in log.nodes.entries], np.int64)
        tables = {"op": log.ops, "out": log.outs, "free": log.frees}
        for table, names in COLUMNS.items():
            for place, name in enumerate(names):
                column = np.frombuffer(tables[table], np.int64)[place :: len(names)]
                self._add(f"{table}.{name}", column, nodes if name == "node" else None)
        self._add("storage.capacity", np.frombuffer(log.storages.capacities, np.int64))
        self._add("storage.origin", np.frombuffer(log.storages.origins, np.int8))
        self._add("frame.bind", np.array(bound, np.int64))

    def _add(self, name: str, column: np.ndarray, table: np.ndarray | None = None) -> None:
        """``table``: the entries that the column has the numbers of."""
        said = column if table is None else table
        ends = (int(said.min()), int(said.max())) if said.size else (0, 0)
        kind = next(kind for kind in INTEGERS if all(np.iinfo(kind).min <= end <= np.iinfo(kind).max for end in ends))

        def made() -> memoryview:
            whole = column.astype(f"<{kind}") if table is None else table.astype(f"<{kind}")[column]
            return whole.view(np.uint8).data

        self[f"{name}.{kind}"] = made

    def __getitem__(self, name: str) -> bytes | memoryview:
        found: Any = super().__getitem__(name)
        return found() if callable(found) else found


def column_members(there: Collection[str], version: int) -> list[str]:
    if version == 11:
        return [f"{table}.i64" for table in _TABLES]
    found = []
    for name in SAVED if version > 12 else SAVED[:-1]:
        kinds = [f"{name}.{kind}" for kind in INTEGERS if f"{name}.{kind}" in there]
        if not kinds:
            raise LoadError(f"it has no member {name}: it is not a kvviz trace, or only a part of one")
        found.append(kinds[0])
    return found


def columns_in(members: Mapping[str, bytes]) -> dict[str, np.ndarray[Any, np.dtype[np.integer[Any]]]]:
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
    """Fill a log, which has its frames already, from untrusted columns; raises `ValueError` that says what is wrong."""
    for table in (*COLUMNS, "storage"):
        lengths = {len(column) for name, column in columns.items() if name.startswith(f"{table}.")}
        expect(len(lengths) == 1, "columns of other lengths")
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
    expect(int(made.sum()) == outputs, "outputs of no op")
    counts = np.array([len(op.node.outputs) for op in nodes], np.int64)[columns["op.node"]]
    expect(bool(((made >= 0) & (made <= counts)).all()), "an op with more outputs than its node has")
    expect(bool((np.diff(columns["free.op"].astype(np.int64)) >= 0).all()), "frees in no order")
    known = max(len(refusals), 1)
    pairs, _ = distinct(columns["op.node"].astype(np.int64) * known + columns["op.refusal"], len(nodes) * known)
    for node, refusal in zip(*(part.tolist() for part in np.divmod(pairs, known))):
        given = {position for position, name in enumerate(nodes[node].node.inputs) if name}
        taken, masks = refusals[refusal]
        expect(given.issuperset((*taken, *(i for i, _ in masks))), "an input that the node does not have")
    log.nodes, log.refusals, log.forms = Table(nodes), Table(refusals), Table(forms)
    log.ops, log.outs, log.frees = (
        _side_by_side([columns[f"{table}.{name}"] for name in names]) for table, names in COLUMNS.items()
    )
    log.storages.capacities = _side_by_side([columns["storage.capacity"]])
    log.storages.origins = array("b", columns["storage.origin"].tolist())
    log.columns_are_whole()


def bindings(columns: Columns, binds: Sequence[Bind], counts: Sequence[int]) -> Iterator[tuple[Bind, ...]]:
    """The bindings of each frame: so many entries of a table. Raises `ValueError` if one is missing there."""
    numbers = columns["frame.bind"]
    _within(numbers, 0, len(binds), "binding")
    expect(sum(counts) == len(numbers), "bindings of no frame")
    begun = map(binds.__getitem__, numbers.tolist())
    return (tuple(islice(begun, count)) for count in counts)


def _side_by_side(columns: Sequence[np.ndarray]) -> array[int]:
    made = array("q", [0]) * (len(columns[0]) * len(columns))
    table = np.frombuffer(made, np.int64).reshape(-1, len(columns))
    for place, column in enumerate(columns):
        table[:, place] = column
    return made


def _within(column: np.ndarray, low: int, high: int, what: str) -> None:
    if column.size:
        worst = int(column.min()) if column.min() < low else int(column.max())
        expect(low <= worst < high, f"{what} {worst}")


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"it has {what}")
