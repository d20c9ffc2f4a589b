"""Settings in the files beside a model: which tokens end a text, the chat template, the configuration.

Hugging Face's layouts (``config.json``, ``generation_config.json``, ``tokenizer_config.json``, ``chat_template.jinja``)
and onnxruntime-genai's (``genai_config.json``). Files are read when needed; a missing file is ignored, and a damaged
one raises an error that names it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.errors import LoadError

_LIMIT = 64 << 20
# Tokens that end a turn or a text in the families that have them, whatever their files say.
# Source: the tokens that llama.cpp treats as end of generation by their text (src/llama-vocab.cpp).
_ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>", "<|eom_id|>")


@dataclass(frozen=True, slots=True)
class TextSettings:
    """The text settings of a model.

    Attributes
    ----------
    end : tuple of str
        Tokens that end an answer, as text; the one that the model names comes first.
    end_ids : tuple of int
        The same as numbers, from the generation settings.
    template : str
        The chat template; empty if there is none.
    begin : str
        The token that texts begin with; empty if there is none.
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
