"""What a query says, once it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Range(NamedTuple):
    """Numbers from the one to the other, both counted; a number alone is a range of one."""

    low: float
    high: float


class Buffer(NamedTuple):
    """A storage, and which contents of it; -1: any."""

    storage: int
    generation: int


Value: TypeAlias = str | Range | Buffer


@dataclass(frozen=True, slots=True)
class Compare:
    """A field that has one of some values (``:``, ``=``), none of them, or is larger or smaller than one."""

    field: str
    sign: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Word:
    """Anything that has this in its name, or is called so."""

    text: str


@dataclass(frozen=True, slots=True)
class Not:
    part: Part


@dataclass(frozen=True, slots=True)
class Every:
    """All of the parts hold."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """One of the parts holds."""

    parts: tuple[Part, ...]


Part: TypeAlias = Compare | Word | Not | Every | Some


class Order(NamedTuple):
    """To be put in the order of a field, the largest first if ``down``."""

    field: str
    down: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A query that was read.

    ``part``: what has to hold; None: of all steps.
    ``orders``: the first decides, the next where that is equal; then the number of the step.
    ``limit``: so many steps at most.
    """

    text: str
    part: Part | None
    orders: tuple[Order, ...] = ()
    limit: int | None = None
