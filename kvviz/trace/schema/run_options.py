"""What a caller asked for when a trace was made, and how the arrays that it gave lay in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from kvviz.errors import InputError

KINDS = ("run", "decode", "stream")


def names_in(given: str | Iterable[str]) -> tuple[str, ...]:
    """Names that a caller gave: several, or one as it is."""
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Where an array lay in its block.

    ``block``: arrays of one block have the same number.
    ``size``: bytes of the block.
    ``offset``: bytes from its start.
    ``reserved``: for a block that `kvviz.reserve` made.
    ``repeats``: elements of the array share memory, so that it cannot be donated.
    ``shape, dtype``: of the array; older files do not say them.
    """

    block: int
    size: int
    offset: int
    strides: tuple[int, ...]
    reserved: tuple[tuple[int, ...], np.dtype, int] | None = None
    repeats: bool = False
    shape: tuple[int, ...] | None = None
    dtype: np.dtype | None = None

    @property
    def room(self) -> tuple[int, int] | None:
        """(axis, rows) of the block that the array may grow in; None where `kvviz.reserve` did not make it."""
        if self.reserved is None:
            return None
        shape, _, axis = self.reserved
        return axis, shape[axis]


@dataclass(frozen=True, slots=True)
class GivenInputs:
    """The inputs of the first run, those included that no op reads.

    ``layouts``: of those that did not fill a plain block alone.
    ``alike``: fresh arrays lie as the given ones did. Else another run may make a view where this one had to copy.
    """

    names: frozenset[str]
    layouts: Mapping[str, InputLayout]
    alike: bool


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run, a decode or a stream is asked for; what a trace records of it, and a session begins with.

    See `kvviz.run`, `kvviz.decode` and `kvviz.stream`.

    ``kind``: ``"run"``, ``"decode"`` or ``"stream"``.
    ``growth``: of a decode; None: as its policy has it, which is what a trace records.
    ``tokenizer``: of a decode; a trace records whether there was one.
    ``rows``: in a decode: rows that a cache holds at its end.
    ``lent``: inputs that later runs are fed again, so that none may overwrite them.
    ``given``: none where every run is given other arrays.
    ``dry``: only layouts were worked out, and no numbers; see `kvviz.dry`.
    ``chunk``: tokens of a prompt that a run is fed at most; None for all at once.
    ``stop_tokens, detail``: of a decode; not recorded.
    """

    kind: str = "run"
    donate: Sequence[str] = ()
    max_new_tokens: int | None = None
    kv_capacity: int | None = None
    growth: str | None = "start"
    cache: str = "growing"
    tokenizer: Any = False
    rows: int = 0
    lent: frozenset[str] = frozenset()
    given: GivenInputs | None = None
    dry: bool = False
    chunk: int | None = None
    stop_tokens: Collection[int] | None = None
    detail: Collection[int] | None = None

    @property
    def layouts(self) -> Mapping[str, InputLayout]:
        """Layouts of the given inputs, as far as they are known."""
        return {} if self.given is None else self.given.layouts


DECODE = RunOptions("decode", max_new_tokens=16, growth=None, tokenizer=None)
"""How to decode, where nothing else is asked for."""


def refuse_for_one_run(options: RunOptions, missing: str) -> None:
    """Raise `InputError` for an option that only a decode has; ``missing``: what a decode needs."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name != "donate" and value != getattr(DECODE, field.name):
            raise InputError(f"{field.name}={value!r} is for a decode; give {missing}, too")
