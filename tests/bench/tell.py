"""How the benchmark prints: rows of a table, and figures against their limits."""

from __future__ import annotations

from collections.abc import Sequence


def row(name: str, cells: Sequence[str]) -> None:
    """Print one row of a table."""
    print(f"{name:<28}" + "".join(f"{cell:>18}" for cell in cells))


def hold(name: str, figure: float, limit: float | None = None) -> bool:
    """Print a figure, and whether it is over its limit."""
    over = limit is not None and figure > limit
    told = "" if limit is None else f"   limit {limit:.2f}: {'over limit' if over else 'within limit'}"
    print(f"{name:<56}{figure:>8.2f}{told}")
    return over
