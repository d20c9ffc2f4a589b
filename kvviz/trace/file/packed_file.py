"""Members of a file in a zip archive, with a checksum over all of them, read within bounds.

A file of this kind is untrusted: what is unpacked is bounded by what lies in the file, so that a small one cannot fill
the memory, and whatever was changed since it was written shows in the checksum.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from kvviz.atomic_write import replacing
from kvviz.errors import LoadError

_CHECKSUM = "sha256"
# A member unpacks to no more than this many times its packed bytes, and some; real ones come to 5 to 60 times.
_RATIO = 64
_FREE = 1 << 20
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def write_packed(path: Any, members: Mapping[str, bytes]) -> None:
    """Write members to a file (`kvviz.atomic_write.replacing`), each looked up once; those that pack too well to be
    read again are not packed. The same members give the same bytes."""
    with replacing(path) as file:
        archive = zipfile.ZipFile(file, "w")
        digest = Checksum()
        try:
            for name in sorted(members):
                _write(archive, name, digest.add(name, members[name]))
            _write(archive, _CHECKSUM, digest.text.encode())
        except BaseException:
            archive.fp = None  # to close a member that was begun would raise in the place of what stopped it
            raise
        archive.close()


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # A long member is packed quickly rather than well.
    level = 6 if len(data) <= _FREE else 1
    packs = len(data) <= _FREE or len(zlib.compress(data, level)) * _RATIO + _FREE > len(data)
    entry = zipfile.ZipInfo(name)  # without the time at which it was written
    entry.external_attr = 0o600 << 16
    archive.writestr(entry, data, zipfile.ZIP_DEFLATED if packs else zipfile.ZIP_STORED, level)


class Checksum:
    """SHA-256 over names and contents of members, which are added in the order of their names."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, name: str, data: bytes) -> bytes:
        """Count one more member; gives its contents."""
        self._digest.update(f"{name} {len(data)}\n".encode())
        self._digest.update(data)
        return data

    @property
    def text(self) -> str:
        """Of all members so far, as a file has it."""
        return self._digest.hexdigest()


def checksum(members: Mapping[str, bytes]) -> str:
    """The checksum of members."""
    digest = Checksum()
    for name in sorted(members):
        digest.add(name, members[name])
    return digest.text


class Packed:
    """An archive that is open for reading.

    ``path``: how messages name the file.
    """

    def __init__(self, archive: zipfile.ZipFile, path: Any) -> None:
        self.path = path
        self._archive = archive
        self._entries = {entry.filename: entry for entry in archive.infolist()}
        if len(self._entries) != len(archive.infolist()):
            raise LoadError(f"{path} holds two members of one name: it was changed after it was written")
        # The directory of an archive may say anything; no members together are larger than the file.
        there = archive.fp.seek(0, 2) if archive.fp is not None else 0
        if sum(entry.compress_size for entry in archive.infolist()) > there:
            raise LoadError(f"{path} has {there:,} bytes, less than its members need: it was cut short or changed")

    @property
    def names(self) -> frozenset[str]:
        """Names of all members."""
        return frozenset(self._entries)

    def read(self, name: str) -> bytes:
        """The contents of a member.

        Raises `LoadError`: it is not there, or larger than the bytes in the file can be.
        """
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
        # A reader of zip files stops at the size that was declared, so that this is the bound of what is read.
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
