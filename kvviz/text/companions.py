"""The files beside a model: its tokenizer, chat template and configuration, and the tokens that end a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvviz.errors import InputError
from kvviz.text.text_settings import json_file
from kvviz.text.tokenizer_file import FILE, open_tokenizer


@dataclass(frozen=True)
class Companions:
    """The files beside a model, read when needed.

    Attributes
    ----------
    folders : tuple of str
        Where to look, in this order: the model's folder, and its parent if the model lies in ``onnx/``.
    files : tuple of str
        All models in the folder, by the names that ``kvviz.load(…, graph=…)`` takes.
    made : callable, optional
        Makes the tokenizer, if the model file itself contains it.
    """

    folders: tuple[str, ...]
    files: tuple[str, ...] = ()
    made: Callable[[], Any] | None = None

    @cached_property
    def tokenizer(self) -> Any:
        """An object with ``encode``, ``decode``, ``stop_tokens``, and ``chat`` if the folder has a
        ``tokenizer.json``; None if there is no tokenizer."""
        return open_tokenizer(self.folders) if self.made is None else self.made()

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        return () if self.tokenizer is None else tuple(self.tokenizer.stop_tokens)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The contents of ``config.json``; empty if there is no such file."""
        return json_file(self.folders, "config.json")

    def __getstate__(self) -> dict[str, Any]:
        """Include a tokenizer from the model file, which may be gone when the object is unpickled."""
        if self.made is None:
            return {"folders": self.folders, "files": self.files, "made": None}
        return {"folders": self.folders, "files": self.files, "made": None, "tokenizer": self.tokenizer}

    def needed_tokenizer(self) -> Any:
        """The tokenizer; an error lists the searched folders if there is none."""
        if self.tokenizer is None:
            places = " nor in ".join(self.folders)
            raise InputError(f"there is no {FILE} in {places}; put the model's own there, or give token numbers")
        return self.tokenizer

    def chat(self, text: str, system: str | None = None) -> str:
        """The prompt for an answer to a text, from the model's chat template."""
        words = self.needed_tokenizer()
        if not hasattr(words, "chat"):
            raise InputError("a model with a vocabulary of whole words cannot chat; give it a text")
        return str(words.chat(text, system))
