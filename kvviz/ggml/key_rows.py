"""The rows of K behind the cells: real bytes, and which token at which position each row was written for.

What a cell says and what its row holds differ while an update waits; both are kept, so that it can be seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvviz.errors import KvvizError

NEVER = -1
"""The token of a row that nobody wrote."""


class KeyRows:
    """The keys of one layer.

    Parameters
    ----------
    streams, size : int
        Rows lie stream by stream.
    head_dim, n_head : int
        A row has ``n_head`` heads of so many elements; all of them are rotated.
    dtype : str
        ``"float16"`` or ``"float32"``.
    base : float
        ``rope_freq_base``.
    fill : float
        What the rows hold before anybody writes them; llama.cpp clears its buffer to 0.
    neox : bool
        Element i is rotated with element ``i + head_dim / 2``, and not with the next one.

    Attributes
    ----------
    data : ndarray
        ``(streams * size, n_head * head_dim)``.
    tokens, positions : ndarray of int64
        For which token, rotated for which position, a row was written; -1 where none was.
    """

    def __init__(
        self,
        streams: int,
        size: int,
        *,
        head_dim: int = 8,
        n_head: int = 1,
        dtype: str = "float16",
        base: float = 10000.0,
        neox: bool = False,
        fill: float = 0.0,
    ) -> None:
        if head_dim < 2 or head_dim % 2:
            raise KvvizError(f"heads of {head_dim} elements cannot be rotated; give an even head_dim")
        if dtype not in ("float16", "float32"):
            raise KvvizError(f"keys cannot have the type {dtype!r}, only float16 or float32")
        self.size, self.head_dim, self.base, self.neox = size, head_dim, base, neox
        self.data = np.full((streams * size, n_head * head_dim), fill, dtype)
        self.tokens = np.full(streams * size, NEVER, np.int64)
        self.positions = np.full(streams * size, NEVER, np.int64)

    @property
    def row_bytes(self) -> int:
        return int(self.data.itemsize * self.data.shape[1])

    def made_up(self, token: int) -> np.ndarray:
        """Numbers for a token of which no key is given: always the same, before they are rotated."""
        return np.random.default_rng(token).standard_normal(self.data.shape[1]).astype(np.float32)

    def write(self, rows: Sequence[int], keys: np.ndarray, tokens: Sequence[int], positions: Sequence[int]) -> None:
        """Keys that are rotated already, to their rows, as SET_ROWS does: the later one wins."""
        keys = np.asarray(keys)
        if keys.shape != (len(rows), self.data.shape[1]):
            want = (len(rows), self.data.shape[1])
            raise KvvizError(f"keys of shape {keys.shape} for {len(rows)} tokens; the shape must be {want}")
        for row, key, token, pos in zip(rows, keys, tokens, positions):
            self.data[row] = key.astype(self.data.dtype)
            self.tokens[row], self.positions[row] = token, pos

    def copy_stream(self, source: int, target: int) -> None:
        """All rows of a stream, whoever they are of."""
        here, there = (slice(at * self.size, (at + 1) * self.size) for at in (source, target))
        for rows in (self.data, self.tokens, self.positions):
            rows[there] = rows[here]

    def shift(self, deltas: np.ndarray) -> None:
        """Rotate every row by its delta, in place: the K-shift graph goes over all of them, by 0 where none moved."""
        self.data[:] = self.rotated(self.data.astype(np.float32), deltas).astype(self.data.dtype)
        self.positions += np.where(self.tokens == NEVER, 0, deltas)

    def rotated(self, rows: np.ndarray, deltas: Sequence[int] | np.ndarray) -> np.ndarray:
        """Rows rotated on by so many positions each (``ggml_rope``, plain: no scaling of frequencies)."""
        pairs = self.head_dim // 2
        angle = np.asarray(deltas, np.float64)[:, None] * self.base ** (-np.arange(pairs) / pairs)
        cos, sin = (part(angle)[:, None, :] for part in (np.cos, np.sin))
        split = rows.reshape(len(rows), -1, *((2, pairs) if self.neox else (pairs, 2)))
        one, two = (split[:, :, 0], split[:, :, 1]) if self.neox else (split[..., 0], split[..., 1])
        turned = [one * cos - two * sin, one * sin + two * cos]
        return np.stack(turned, axis=2 if self.neox else -1).reshape(rows.shape).astype(np.float32)
