"""The files beside a model: its tokenizer, in the form that `kvviz.decode` takes, chat template and configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvviz.errors import InputError, KvvizError, LoadError
from kvviz.text import needed
from kvviz.text.chat_template import render_chat
from kvviz.text.text_settings import TextSettings, find_file, json_file, read_settings, text_file


class Words:
    """A tokenizer for a vocabulary of words, one token each.

    Texts begin with ``start``, by default ``"<s>"``, and end with ``"</s>"`` if the vocabulary has it.
    """

    def __init__(self, words: Sequence[str], start: int | None = None) -> None:
        self.words = list(words)
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.start = self.ids.get("<s>") if start is None else start

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return tuple(self.ids[word] for word in ("</s>",) if word in self.ids)

    def encode(self, text: str) -> list[int]:
        unknown = [word for word in text.split() if word not in self.ids]
        if unknown:
            raise InputError(
                f"the vocabulary of {len(self.words)} words does not have {', '.join(map(repr, unknown[:8]))}"
            )
        return ([] if self.start is None else [self.start]) + [self.ids[word] for word in text.split()]

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(self.words[t] if 0 <= t < len(self.words) else f"<{t}>" for t in tokens)


FILE = "tokenizer.json"
WORDS_FILE = "vocab.json"


class Tokenizer:
    """Text to tokens and back, with the package ``tokenizers``.

    Attributes
    ----------
    inner : tokenizers.Tokenizer
    settings : TextSettings
        The settings in the files beside the model.
    """

    def __init__(self, inner: Any, settings: TextSettings) -> None:
        self.inner = inner
        self.settings = settings

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """Tokens that end an answer or a text."""
        ids = (self.inner.token_to_id(token) for token in self.settings.end)
        return tuple(dict.fromkeys((*self.settings.end_ids, *(id for id in ids if id is not None))))

    def encode(self, text: str) -> list[int]:
        """Tokens of a text. It may contain special tokens; a begin token at its start is not added again."""
        begin = self.settings.begin
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError(f"the text {text[:60]!r} is not valid UTF-8; check how it is written, or the locale")
        return list(self.inner.encode(text, add_special_tokens=not (begin and text.startswith(begin))).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of some tokens. A token that is part of a character becomes a replacement character."""
        return str(self.inner.decode(list(tokens), skip_special_tokens=False))

    def chat(self, text: str, system: str | None = None) -> str:
        """The prompt for an answer to a text, from the model's chat template. Without ``system``, the template's own
        system message is used, if it has one."""
        settings = self.settings
        if not settings.template:
            raise KvvizError("there is no chat template beside the model; write the prompt yourself, as a text")
        said = [] if system is None else [{"role": "system", "content": system}]
        names = {"bos_token": settings.begin, "eos_token": settings.end[0] if settings.end else ""}
        return render_chat(settings.template, [*said, {"role": "user", "content": text}], names)


def open_tokenizer(folders: Sequence[str]) -> Tokenizer | Words | None:
    """The tokenizer in some folders: a ``tokenizer.json``, or a list of words in ``vocab.json``; None without both."""
    path = find_file(folders, FILE)
    if path is not None:
        library = needed("tokenizers")
        try:
            inner = library.Tokenizer.from_file(path)
        except Exception as error:  # the library has no class of its own for it
            raise LoadError(f"{FILE} beside the model cannot be read: {' '.join(str(error).split())}") from None
        return Tokenizer(inner, read_settings(folders))
    if find_file(folders, WORDS_FILE) is None:
        return None
    try:
        words = json.loads(text_file(folders, WORDS_FILE) or "")
    except ValueError:
        return None
    # An object is the vocabulary of a tokenizer whose other files are missing.
    return Words(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


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
