"""Which positions a query may see through a sliding window, in the three ways that llama.cpp knows."""

from __future__ import annotations

from typing import Literal, get_args

from kvviz.errors import KvvizError

SwaType = Literal["none", "standard", "chunked", "symmetric"]
SWA_TYPES: tuple[str, ...] = get_args(SwaType)


def is_masked_swa(n_swa: int, kind: str, key: int, query: int) -> bool:
    """Whether the window hides the token at position ``key`` from one at position ``query``.

    ``"standard"`` shows the last ``n_swa`` positions, ``"chunked"`` those since the last multiple of ``n_swa``,
    ``"symmetric"`` ``n_swa / 2`` to either side (``llama_hparams::is_masked_swa``). Causality is not asked here.

    >>> [key for key in range(8) if not is_masked_swa(4, "standard", key, 6)]
    [3, 4, 5, 6, 7]
    >>> [key for key in range(8) if not is_masked_swa(4, "chunked", key, 6)]
    [4, 5, 6, 7]
    >>> [key for key in range(10) if not is_masked_swa(4, "symmetric", key, 6)]
    [4, 5, 6, 7, 8]
    """
    if kind == "standard":
        return query - key >= n_swa
    if kind == "chunked":
        return key < query // n_swa * n_swa
    if kind == "symmetric":
        return abs(query - key) > n_swa // 2
    return False


def checked_window(n_swa: int, kind: str) -> None:
    """Refuse a window that llama.cpp could not have."""
    if kind not in SWA_TYPES:
        raise KvvizError(f"there is no window type {kind!r}; choose one of {', '.join(SWA_TYPES)}")
    if kind != "none" and n_swa < 1:
        raise KvvizError(f"a window cannot have {n_swa} positions; give n_swa=1 or more, or swa_type='none'")
