"""The tokenizer beside a model, in the form that `kvviz.decode` takes: text to tokens and back, and chat prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kvviz.errors import InputError, KvvizError, LoadError
from kvviz.text.chat_template import render_chat
from kvviz.text.needed_package import needed
from kvviz.text.text_settings import TextSettings, find_file, read_settings, text_file
from kvviz.text.word_list import Words

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
