"""The tokenizer that a GGUF file carries: made into ``tokenizer.json``, and read back as what `kvviz.decode` takes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvviz.errors import KvvizError, LoadError
from kvviz.smollm2.checkpoint import Checkpoint, needed

FILES = ("tokenizer.json", "tokenizer_config.json")
# Kinds of tokens in GGUF that text is searched for before it is split: control tokens, and those users defined.
_CONTROL, _DEFINED = 3, 4
_DEFAULT_SYSTEM = re.compile(r"<\|im_start\|>system(?:\\n|\n)(.+?)<\|im_end\|>", re.DOTALL)


class Tokenizer:
    """Text to tokens and back, and prompts in the form of a chat; a template in ChatML is understood."""

    def __init__(self, inner: Any, end: str, template: str) -> None:
        self.inner = inner
        self.end = end
        self.template = template

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """Tokens after which the model has nothing more to say: the end of an answer, and of a text."""
        found = (self.inner.token_to_id(token) for token in (self.end, "<|endoftext|>"))
        return tuple(token for token in found if token is not None)

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; special ones may be written out in it."""
        return list(self.inner.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of some tokens. A token that holds a part of a character gives a replacement character."""
        return str(self.inner.decode(list(tokens), skip_special_tokens=False))

    def chat(self, text: str, system: str | None = None) -> str:
        """The prompt that asks the model to answer a text; ``system`` is by default what the template says, if
        anything."""
        if "<|im_start|>" not in self.template:
            raise KvvizError("the model's chat template is not ChatML; write the prompt by hand")
        told = _DEFAULT_SYSTEM.search(self.template) if system is None else None
        said = told[1] if told else system
        turns = [("system", said)] if said is not None else []
        turns.append(("user", text))
        past = "".join(f"<|im_start|>{role}\n{words}<|im_end|>\n" for role, words in turns)
        return f"{past}<|im_start|>assistant\n"


def tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """Read the tokenizer that `kvviz.smollm2.gguf_to_onnx` wrote to a folder."""
    paths = [Path(folder) / name for name in FILES]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise KvvizError(f"{folder} has no {' and no '.join(missing)}; write it with: python -m kvviz.smollm2 {folder}")
    config = json.loads(paths[1].read_text("utf-8"))
    inner = needed("tokenizers").Tokenizer.from_file(str(paths[0]))
    return Tokenizer(inner, config["eos_token"], config["chat_template"])


def write_tokenizer(checkpoint: Checkpoint, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, in the layout that the package ``tokenizers`` reads."""
    library = needed("tokenizers")
    kind, split = checkpoint.get("tokenizer.ggml.model"), checkpoint.get("tokenizer.ggml.pre")
    if (kind, split) != ("gpt2", "smollm"):
        raise LoadError(
            f"{checkpoint.path} has a tokenizer of the kind {kind!r}, {split!r}; only 'gpt2', 'smollm' can be converted"
        )
    tokens, kinds = checkpoint.get("tokenizer.ggml.tokens"), checkpoint.get("tokenizer.ggml.token_type", ())
    merges, end = checkpoint.get("tokenizer.ggml.merges"), checkpoint.get("tokenizer.ggml.eos_token_id")
    if not tokens or merges is None or end is None or not 0 <= end < len(tokens):
        raise LoadError(f"{checkpoint.path} holds only a part of its tokenizer")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    try:
        model = library.models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges])
    except Exception as error:  # the library has no class of its own for it
        raise LoadError(f"{checkpoint.path} has merges that do not fit its tokens: {error}") from None
    inner = library.Tokenizer(model)
    pre = library.pre_tokenizers
    inner.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    inner.decoder = library.decoders.ByteLevel()
    added = [(token, is_a) for token, is_a in zip(tokens, kinds) if is_a in (_CONTROL, _DEFINED)]
    inner.add_special_tokens([library.AddedToken(t, normalized=False, special=True) for t, k in added if k == _CONTROL])
    inner.add_tokens([library.AddedToken(t, normalized=False) for t, k in added if k == _DEFINED])
    inner.save(str(folder / FILES[0]))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": checkpoint.shape.positions,
        "eos_token": tokens[end],
        "chat_template": checkpoint.get("tokenizer.chat_template", ""),
    }
    (folder / FILES[1]).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")
