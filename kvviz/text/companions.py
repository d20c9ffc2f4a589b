"""What lies beside a model file: its tokenizer, its chat template, the tokens that end a text, its configuration."""

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
    """The files around a model, read when they are asked for.

    Attributes
    ----------
    folders : tuple of str
        Where to look, the first first: the model's folder, and the one above where the model lies in ``onnx/``.
    files : tuple of str
        All models in the folder, as `kvviz.load` takes them by ``graph=``.
    made : callable, optional
        Gives the tokenizer where the model file itself carries it.
    """

    folders: tuple[str, ...]
    files: tuple[str, ...] = ()
    made: Callable[[], Any] | None = None

    @cached_property
    def tokenizer(self) -> Any:
        """An object with ``encode``, ``decode``, ``stop_tokens``, and ``chat`` where the folder has a
        ``tokenizer.json``; None where there is no tokenizer."""
        return open_tokenizer(self.folders) if self.made is None else self.made()

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        return () if self.tokenizer is None else tuple(self.tokenizer.stop_tokens)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """What ``config.json`` says; empty without one."""
        return json_file(self.folders, "config.json")

    def __getstate__(self) -> dict[str, Any]:
        """Pickled with the tokenizer that the model file carries, as there may be no such file later."""
        if self.made is None:
            return {"folders": self.folders, "files": self.files, "made": None}
        return {"folders": self.folders, "files": self.files, "made": None, "tokenizer": self.tokenizer}

    def needed_tokenizer(self) -> Any:
        """The tokenizer, or an error that says where it was looked for."""
        if self.tokenizer is None:
            places = " nor in ".join(self.folders)
            raise InputError(f"there is no {FILE} in {places}; put the model's own there, or give token numbers")
        return self.tokenizer

    def chat(self, text: str, system: str | None = None) -> str:
        """The prompt that asks the model to answer a text, by its chat template."""
        words = self.needed_tokenizer()
        if not hasattr(words, "chat"):
            raise InputError("a model with a vocabulary of whole words cannot chat; give it a text")
        return str(words.chat(text, system))
