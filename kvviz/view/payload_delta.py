"""The change from one payload to a later one, from which a reader of the first restores the second.

Layout: int32 (little endian) bytes of the old one, bytes of the new one, number of pieces n | n pairs of int32: where a
piece begins in the old one (-1: in the new bytes), and its length | the new bytes, one piece after the other. Gzipped.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping

import numpy as np

from kvviz.errors import KvvizError

Parts = Mapping[str, bytes]
"""Parts of an unpacked payload by name, in order."""

# A piece takes eight bytes: shorter equal ranges are merged with their surroundings.
_SHORTEST = 16


def delta(old: Parts, new: Parts, texts: str, level: int = 6) -> bytes:
    """What changed from one payload to another.

    ``old, new``: parts of both, in order. Parts with equal names are compared.
    ``texts``: prefix of the names of parts in which an insertion moves later bytes. In other parts every byte keeps
      its place.
    ``level``: of zlib.
    """
    begins, at = {}, 0
    for name, part in old.items():
        begins[name] = at
        at += len(part)
    pieces: list[tuple[int, int]] = []
    fresh: list[bytes] = []

    def put(start: int, length: int, data: bytes = b"") -> None:
        if not length:
            return
        if data:
            fresh.append(data)
        if pieces and (pieces[-1][0] < 0 if start < 0 else sum(pieces[-1]) == start and pieces[-1][0] >= 0):
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + length)
        else:
            pieces.append((start, length))

    for name, part in new.items():
        before = old.get(name, b"")
        begin, done = begins.get(name, 0), 0
        for start, stop, shift in _equal(before, part, name.startswith(texts)):
            put(-1, start - done, part[done:start])
            put(begin + start + shift, stop - start)
            done = stop
        put(-1, len(part) - done, part[done:])
    sizes = [at, sum(map(len, new.values())), len(pieces)]
    head = np.array([*sizes, *(number for piece in pieces for number in piece)], "<i4").tobytes()
    return gzip.compress(b"".join([head, *fresh]), level, mtime=0)


def patched(old: bytes, change: bytes) -> bytes:
    """The later payload, unpacked, from the earlier one and the change.

    Raises `KvvizError`: if the change belongs to another payload.
    """
    raw = gzip.decompress(change)
    was, size, count = np.frombuffer(raw, "<i4", 3).tolist()
    if was != len(old):
        raise KvvizError(f"this change is for a payload of {was:,} bytes, not of {len(old):,}")
    at, made = 12 + 8 * count, []
    for start, length in np.frombuffer(raw, "<i4", 2 * count, 12).reshape(-1, 2).tolist():
        if start < 0:
            made.append(raw[at : at + length])
            at += length
        else:
            made.append(old[start : start + length])
    new = b"".join(made)
    assert len(new) == size
    return new


def _equal(old: bytes, new: bytes, text: bool) -> list[tuple[int, int, int]]:
    """Ranges of the new bytes that are in the old ones too: start, stop, and their offset in the old ones."""
    if old == new:
        return [(0, len(new), 0)]
    shared = min(len(old), len(new))
    a, b = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    unlike = np.flatnonzero(a[:shared] != b[:shared])
    if text:
        front = int(unlike[0]) if len(unlike) else shared
        rest = shared - front
        back = np.flatnonzero(a[len(a) - rest :][::-1] != b[len(b) - rest :][::-1])
        behind = int(back[0]) if len(back) else rest
        return [(0, front, 0), (len(new) - behind, len(new), len(old) - len(new))]
    edges = np.concatenate([[-1], unlike, [shared]])
    long = np.flatnonzero(np.diff(edges) > _SHORTEST)
    return [(int(edges[i]) + 1, int(edges[i + 1]), 0) for i in long]
