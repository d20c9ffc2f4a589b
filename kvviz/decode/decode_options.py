"""The options of a decode, as one value that is passed on from the public function to the session that runs it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

from kvviz.errors import InputError
from kvviz.trace.schema.run_options import RunOptions, names_in


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How to decode; see `kvviz.decode` for each option, and `kvviz.dry` for ``chunk``."""

    max_new_tokens: int = 16
    kv_capacity: int | None = None
    tokenizer: Any = None
    stop_tokens: Collection[int] | None = None
    growth: str | None = None
    donate: str | Sequence[str] = ()
    cache: str = "growing"
    detail: Collection[int] | None = None
    chunk: int | None = None

    @classmethod
    def of(cls, recorded: RunOptions) -> DecodeOptions:
        """The options under which a trace was recorded; it ends after its recorded tokens."""
        return cls(
            recorded.max_new_tokens or 1,
            recorded.kv_capacity,
            stop_tokens=(),
            growth=recorded.growth,
            donate=recorded.donate,
            cache=recorded.cache,
            chunk=recorded.chunk,
        )

    def recorded(self, rows: int, lent: Collection[str], dry: bool) -> RunOptions:
        """What a trace records of them; see `RunOptions` for ``rows`` and ``lent``."""
        return RunOptions(
            "decode",
            names_in(self.donate),
            int(self.max_new_tokens),
            None if self.kv_capacity is None else int(self.kv_capacity),
            self.growth or "start",
            self.cache,
            self.tokenizer is not None,
            rows,
            frozenset(lent),
            dry=dry,
            chunk=self.chunk,
        )

    def refuse(self, missing: str) -> None:
        """Raise `InputError` for an option that a single run does not have; ``missing`` is what a decode needs."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "donate" and value != field.default:
                raise InputError(f"{field.name}={value!r} is for a decode; give {missing}, too")
