"""The options of a decode, as one value that is passed on from whoever asks for it to the session that runs it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

from kvviz.errors import InputError


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

    def refuse(self, missing: str) -> None:
        """Raise `InputError` for an option that a single run does not have; ``missing`` is what a decode needs."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "donate" and value != field.default:
                raise InputError(f"{field.name}={value!r} is for a decode; give {missing}, too")
