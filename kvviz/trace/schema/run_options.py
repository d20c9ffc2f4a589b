"""The options of the call that made a trace, and how its arrays lay in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from kvviz.errors import InputError

KINDS = ("run", "decode", "stream")


def names_in(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Where an array lay in its block.

    ``block``: equal for arrays of one block.
    ``size``: bytes of the block.
    ``offset``: bytes from its start.
    ``reserved``: made by `kvviz.reserve`.
    ``repeats``: elements share memory, so the array cannot be donated.
    ``shape, dtype``: of the array; missing in older files.
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
        """(axis, rows) that the array may grow by; None if `kvviz.reserve` did not make its block."""
        if self.reserved is None:
            return None
        shape, _, axis = self.reserved
        return axis, shape[axis]


@dataclass(frozen=True, slots=True)
class GivenInputs:
    """The inputs of the first run, including those that no op reads. ``layouts``: of those that did not fill a plain
    block alone. ``alike``: fresh arrays get the given layouts; else another run may make a view where this one had to
    copy."""

    names: frozenset[str]
    layouts: Mapping[str, InputLayout]
    alike: bool


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run, a decode or a stream, recorded in the trace; see `kvviz.run`, `kvviz.decode` and
    `kvviz.stream`.

    ``kind``: ``"run"``, ``"decode"`` or ``"stream"``.
    ``growth``: of a decode; None: that of its policy, which is what a trace records.
    ``tokenizer``: of a decode; a trace records whether there was one.
    ``rows``: final rows of a cache in a decode.
    ``lent``: inputs that later runs get again, so that none may overwrite them.
    ``given``: None if every run gets other arrays.
    ``dry``: layouts only; see `kvviz.dry`.
    ``chunk``: the most tokens of a prompt per run; None: all at once.
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
        """Layouts of the given inputs, if they are known."""
        return {} if self.given is None else self.given.layouts


DECODE = RunOptions("decode", max_new_tokens=16, growth=None, tokenizer=None)
"""The default options of a decode."""


def refuse_for_one_run(options: RunOptions, missing: str) -> None:
    """Raise `InputError` for an option that only a decode has; ``missing``: what a decode needs."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name != "donate" and value != getattr(DECODE, field.name):
            raise InputError(f"{field.name}={value!r} is for a decode; give {missing}, too")
