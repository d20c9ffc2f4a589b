"""Two caches for models in which some layers have a sliding window: one for these, one for all others.

Source: ``llama-kv-cache-iswa.cpp`` of llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvviz.errors import KvvizError
from kvviz.ggml.kq_mask import PADDING, padded
from kvviz.ggml.kv_cache import KVCache
from kvviz.ggml.kv_history import Decoded
from kvviz.ggml.ubatch_split import split_equal, split_simple


def swa_size(size: int, n_swa: int, n_seq_max: int = 1, unified: bool = True, n_ubatch: int = 512) -> int:
    """Cells of the cache for layers with a window: the windows and one micro-batch, padded.

    >>> swa_size(4096, 1024, n_ubatch=512)
    1536
    >>> swa_size(256, 1024)
    256
    """
    return padded(min(size, n_swa * (n_seq_max if unified else 1) + n_ubatch), PADDING)


class DecodedISWA(NamedTuple):
    """A micro-batch in both caches."""

    base: Decoded
    swa: Decoded


class KVCacheISWA:
    """A cache for layers that see all, and one for layers that see a window.

    Parameters
    ----------
    size, n_seq_max, unified, n_swa, swa_type, n_ubatch
        As of `KVCache`.
    swa_full : bool
        Give the second cache as many cells as the first one, so that nothing in it is taken over.
    size_swa : int, optional
        Cells of the second cache, to look at one that is smaller than llama.cpp makes it.

    Attributes
    ----------
    base, swa : KVCache

    Examples
    --------
    >>> both = KVCacheISWA(12, n_swa=3, size_swa=6, n_ubatch=3)
    >>> _ = both.append(6), both.append(2)
    >>> both.base.cells.pos[0].tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1]
    >>> both.swa.cells.pos[0].tolist()
    [6, 7, 2, 3, 4, 5]
    """

    def __init__(
        self,
        size: int,
        n_seq_max: int = 1,
        unified: bool = True,
        n_swa: int = 1024,
        swa_type: str = "standard",
        *,
        n_ubatch: int = 512,
        swa_full: bool = False,
        size_swa: int | None = None,
        **keys: Any,
    ) -> None:
        window = size_swa or (size if swa_full else swa_size(size, n_swa, n_seq_max, unified, n_ubatch))
        given = {"n_ubatch": n_ubatch, **keys}
        self.base = KVCache(size, n_seq_max, unified, name="cache_k_base", **given)
        self.swa = KVCache(window, n_seq_max, unified, n_swa, swa_type, name="cache_k_swa", **given)
        self.unified, self.n_ubatch = unified, n_ubatch

    def _repr_html_(self) -> str:
        """Both, one below the other, for a notebook."""
        return self.base._repr_html_() + self.swa._repr_html_()

    @property
    def can_shift(self) -> bool:
        """Whether positions may be moved: only where both caches are of one size."""
        return self.base.size == self.swa.size

    def pos_min(self, seq: int) -> int:
        """The first position of a sequence that both caches hold."""
        return self.swa.pos_min(seq)

    def pos_max(self, seq: int) -> int:
        """The last position of a sequence."""
        return self.swa.pos_max(seq)

    def append(self, tokens: int, seq: int = 0) -> list[DecodedISWA]:
        """Decode so many tokens at the next positions of a sequence."""
        first = self.pos_max(seq) + 1
        return self.decode([(first + i, (seq,)) for i in range(tokens)])

    def decode(self, tokens: Sequence[Any]) -> list[DecodedISWA]:
        """What ``llama_decode`` does: the micro-batches have to fit into both caches, else they are cut another way."""
        batch = self.swa.batch(tokens)
        for cache in (self.base, self.swa):
            cache.begin()
        cuts = [split_simple(batch, self.n_ubatch)] if self.unified else []
        cuts.append(split_equal(batch, self.n_ubatch, sequential=not self.unified))
        for pieces in cuts:
            base = self.base.prepare(pieces)
            swa = None if base is None else self.swa.prepare(pieces)
            if base is not None and swa is not None:
                return [
                    DecodedISWA(self.base.place(one, piece), self.swa.place(two, piece))
                    for piece, one, two in zip(pieces, base, swa)
                ]
        full = self.base if self.base.prepare(cuts[-1]) is None else self.swa
        raise KvvizError(f"{full.name}: {full.no_room(len(batch))}")

    def seq_rm(self, seq: int, first: int = -1, stop: int = -1) -> tuple[str, str]:
        """As of `KVCache`, in both."""
        return self.base.seq_rm(seq, first, stop), self.swa.seq_rm(seq, first, stop)

    def seq_cp(self, source: int, target: int, first: int = -1, stop: int = -1) -> tuple[str, str]:
        """As of `KVCache`, in both."""
        return self.base.seq_cp(source, target, first, stop), self.swa.seq_cp(source, target, first, stop)

    def seq_keep(self, seq: int) -> tuple[str, str]:
        """As of `KVCache`, in both."""
        return self.base.seq_keep(seq), self.swa.seq_keep(seq)

    def seq_add(self, seq: int, first: int, stop: int, delta: int) -> tuple[str, str]:
        """As of `KVCache`, in both."""
        return self.base.seq_add(seq, first, stop, delta), self.swa.seq_add(seq, first, stop, delta)

    def seq_div(self, seq: int, first: int, stop: int, by: int) -> tuple[str, str]:
        """As of `KVCache`, in both."""
        return self.base.seq_div(seq, first, stop, by), self.swa.seq_div(seq, first, stop, by)
