"""The files beside a model: its tokenizer, in the form that `kvviz.decode` takes, chat template and configuration.

Layouts are Hugging Face's (``config.json``, ``generation_config.json``, ``tokenizer_config.json``,
``chat_template.jinja``) and onnxruntime-genai's (``genai_config.json``). Files are read when needed; a missing file is
ignored, and a damaged one raises an error that names it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvviz.errors import InputError, KvvizError, LoadError
from kvviz.text import needed, template_process

_LIMIT = 64 << 20
# Tokens that end a turn or a text in the families that have them, whatever their files say.
# Source: the tokens that llama.cpp treats as end of generation by their text (src/llama-vocab.cpp).
_ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>", "<|eom_id|>")


@dataclass(frozen=True, slots=True)
class TextSettings:
    """The text settings of a model.

    ``end``: tokens that end an answer, as text; the one that the model names comes first.
    ``end_ids``: the same as numbers, from the generation settings.
    ``template``: the chat template; empty if there is none.
    ``begin``: the token that texts begin with; empty if there is none.
    """

    end: tuple[str, ...] = ()
    end_ids: tuple[int, ...] = ()
    template: str = ""
    begin: str = ""


def read_settings(folders: Sequence[str]) -> TextSettings:
    """The settings in the files of some folders; earlier folders take precedence."""
    config = json_file(folders, "tokenizer_config.json")
    names = {**json_file(folders, "special_tokens_map.json"), **config}
    end, begin = _content(names.get("eos_token")), _content(names.get("bos_token"))
    template = _template(folders, config)
    return TextSettings(ends_of(end), _end_ids(folders), template, begin)


def ends_of(named: str) -> tuple[str, ...]:
    """Tokens that end an answer: the one that a model names, if any, then the usual ones."""
    return tuple(dict.fromkeys(filter(None, (named, *_ENDS))))


def json_file(folders: Sequence[str], name: str) -> Mapping[str, Any]:
    """The object in a JSON file, from the first folder that has the file; empty if none has it."""
    text = text_file(folders, name)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{name} beside the model is not JSON ({error}); get it again, or remove it") from None
    return found if isinstance(found, dict) else {}


def text_file(folders: Sequence[str], name: str) -> str | None:
    """The contents of a text file, from the first folder that has it; None if none has it."""
    path = find_file(folders, name)
    if path is None:
        return None
    if os.path.getsize(path) > _LIMIT:
        raise LoadError(f"{name} beside the model has more than {_LIMIT >> 20} MB, the limit")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{name} beside the model cannot be read: {error}") from None


def find_file(folders: Sequence[str], name: str) -> str | None:
    paths = (os.path.join(folder, name) for folder in folders)
    return next((path for path in paths if os.path.isfile(path)), None)


def _content(token: Any) -> str:
    """The text of a special token, which is stored as a string or as an object with ``content``."""
    found = token.get("content") if isinstance(token, Mapping) else token
    return found if isinstance(found, str) else ""


def _end_ids(folders: Sequence[str]) -> tuple[int, ...]:
    genai = json_file(folders, "genai_config.json").get("model")
    ids = [json_file(folders, name).get("eos_token_id") for name in ("generation_config.json", "config.json")]
    ids.insert(0, genai.get("eos_token_id") if isinstance(genai, Mapping) else None)
    found = next((one for one in ids if one is not None), ())
    several = found if isinstance(found, list) else (found,) if isinstance(found, int) else ()
    return tuple(number for number in several if type(number) is int and number >= 0)


def _template(folders: Sequence[str], config: Mapping[str, Any]) -> str:
    """The chat template. A separate file takes precedence over the configuration; of several, the default is used."""
    alone = text_file(folders, "chat_template.jinja")
    if alone is not None:
        return alone
    found = config.get("chat_template") or json_file(folders, "chat_template.json").get("chat_template")
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, Mapping)}
        found = named.get("default") or next(iter(named.values()), "")
    return found if isinstance(found, str) else ""


# -- chat templates ---------------------------------------------------------------------------------------------------
# Prompts from a model's chat template, rendered in a sandbox with a time limit.
#
# Templates are part of a model and are not trusted. They expect Jinja as the package ``transformers`` configures it:
# blocks are trimmed, ``raise_exception`` and ``strftime_now`` exist, and JSON is not escaped for HTML.


LONGEST = 10.0
"""Time limit for a template, in seconds; real ones take a few milliseconds."""


def render_chat(template: str, messages: Sequence[Mapping[str, str]], names: Mapping[str, str]) -> str:
    """The prompt for a conversation that the model is to continue. ``messages``: each with ``role`` and ``content``.
    ``names``: special tokens by their names in templates: ``bos_token``, ``eos_token``. Raises `KvvizError`: if Jinja
    is not installed, or the template cannot be used for these messages, or takes too long."""
    needed("jinja2")
    given = json.dumps([template, [dict(message) for message in messages], dict(names)], default=str)
    # The process finds the same packages as this one.
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"}
    line = [sys.executable, template_process.__file__]
    try:
        done = subprocess.run(line, input=given.encode(), capture_output=True, timeout=LONGEST, env=where)
    except subprocess.TimeoutExpired:
        raise KvvizError(
            f"the model's chat template did not end within {LONGEST:g} seconds; give the prompt as a text in the "
            "form that the model expects"
        ) from None
    except OSError as error:
        raise KvvizError(f"the process that fills in the model's chat template cannot start: {error}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise KvvizError(f"the model's chat template cannot be run: {''.join(said) or 'its process was ended'}")
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise KvvizError(f"the model's chat template cannot be used here: {answer['refused']}")
    if "failed" in answer:
        raise KvvizError(f"the model's chat template fails: {answer['failed']}")
    return str(answer["text"])


class Words:
    """A tokenizer for a vocabulary of words, one token each. Texts begin with ``start``, by default ``"<s>"``, and end
    with ``"</s>"`` if the vocabulary has it."""

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
    """The files beside a model, read when needed. ``folders``: where to look, in this order: the model's folder, and
    its parent if the model lies in ``onnx/``. ``files``: all models in the folder, by the names that ``kvviz.load(…,
    graph=…)`` takes. ``made``: makes the tokenizer, if the model file itself contains it."""

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
        words = self.needed_tokenizer()
        if not hasattr(words, "chat"):
            raise InputError("a model with a vocabulary of whole words cannot chat; give it a text")
        return str(words.chat(text, system))
