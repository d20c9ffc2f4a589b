"""Small words that every sentence, table and picture shares: sizes, buffers, counts.

Invariant: the same number is written the same way everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvviz.trace.schema.element_types import dims as dims

_UNITS = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9))


def size(nbytes: float) -> str:
    """Bytes for a reader: exact below 10,000, then three digits and a decimal unit, as the page writes them.

    Examples
    --------
    >>> size(256), size(2176), size(12345), size(2306867)
    ('256 B', '2,176 B', '12.3 kB', '2.31 MB')
    """
    if abs(nbytes) < 10_000:
        return f"{int(nbytes):,} B"
    unit, scale = next(((u, s) for u, s in _UNITS if abs(nbytes) < 999.5 * s), _UNITS[-1])
    amount = nbytes / scale
    digits = 2 if abs(amount) < 9.995 else 1 if abs(amount) < 99.95 else 0
    return f"{amount:,.{digits}f} {unit}"


def size_of(part: float, whole: float) -> str:
    """Part of a whole in bytes; the unit is said once where both have it: ``0 of 2,176 B``."""
    first, second = size(part), size(whole)
    number, _, unit = first.partition(" ")
    return f"{number if unit == second.partition(' ')[2] else first} of {second}"


def buffer(storage: int, generation: int = 0) -> str:
    """Name of a storage: ``B12``, and ``B12.3`` after it was overwritten in place three times."""
    return f"B{storage}.{generation}" if generation else f"B{storage}"


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 row``, ``1,024 rows``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def short(text: str, limit: int = 60) -> str:
    """Text cut in the middle to at most ``limit`` characters, control characters made visible."""
    clean = visible(text)
    if len(clean) <= limit:
        return clean
    head = (limit - 1) * 2 // 3
    return f"{clean[:head]}…{clean[len(clean) - (limit - 1 - head) :]}"


def visible(text: str) -> str:
    """Text with its control characters made visible."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "·" for c in text)


def with_short_names(text: str, names: Iterable[str], limit: int) -> str:
    """A sentence in which long names are cut; its own words never are.

    Examples
    --------
    >>> with_short_names("Add cannot overwrite /layers.0/input: Neg still reads it", ["/layers.0/input"], 12)
    'Add cannot overwrite /layers…nput: Neg still reads it'
    """
    for name in sorted(set(names), key=len, reverse=True):
        if len(name) > limit:
            text = text.replace(name, short(name, limit))
    return visible(text)
