"""The tokenizer beside a model, as what `kvviz.decode` takes: text to tokens and back, and prompts of a chat."""

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
    """Text to tokens and back, over the package ``tokenizers``.

    Attributes
    ----------
    inner : tokenizers.Tokenizer
    settings : TextSettings
        What the files beside the model say.
    """

    def __init__(self, inner: Any, settings: TextSettings) -> None:
        self.inner = inner
        self.settings = settings

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """Tokens after which the model has nothing more to say: the end of an answer, and of a text."""
        ids = (self.inner.token_to_id(token) for token in self.settings.end)
        return tuple(dict.fromkeys((*self.settings.end_ids, *(id for id in ids if id is not None))))

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; special ones may be written out in it, and one that it begins with is not added again."""
        begin = self.settings.begin
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError(f"the text {text[:60]!r} is not valid UTF-8; check how it is written, or the locale")
        return list(self.inner.encode(text, add_special_tokens=not (begin and text.startswith(begin))).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of some tokens. A token that holds a part of a character gives a replacement character."""
        return str(self.inner.decode(list(tokens), skip_special_tokens=False))

    def chat(self, text: str, system: str | None = None) -> str:
        """The prompt that asks the model to answer a text, by its own template; ``system`` is by default what the
        template says, if anything."""
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
