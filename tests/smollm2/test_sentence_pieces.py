"""SentencePiece's tokenizers in GGUF files, judged by SentencePiece.

``tests/data/sentence_pieces.json`` holds 600 pieces that sentencepiece 0.2.3 learned from this project's README (byte
pairs, byte fallback), and into which tokens it cuts some texts.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import kvviz
from kvviz.errors import LoadError
from kvviz.smollm2.checkpoint import Checkpoint
from kvviz.smollm2.gguf_to_onnx import carried_tokenizer, piece_tokenizer
from tests.smollm2.tiny import TOKENS, Tiny, write_tiny

LEARNED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "sentence_pieces.json").read_text("utf-8"))
PIECES, SCORES, KINDS = (LEARNED[key] for key in ("pieces", "scores", "kinds"))


@pytest.mark.parametrize(("text", "expected"), LEARNED["texts"], ids=[repr(text) for text, _ in LEARNED["texts"]])
def test_texts_are_cut_as_sentencepiece_cuts_them_and_come_back_behind_one_space(
    text: str, expected: list[int]
) -> None:
    words = piece_tokenizer(tokenizers, PIECES, SCORES, KINDS, True)
    assert words.encode(text, add_special_tokens=False).ids == expected
    assert not text or words.decode(words.encode(text).ids) == f" {text}"


def test_a_file_with_such_a_tokenizer_is_loaded_and_begins_its_texts(tmp_path: Path) -> None:
    # given a model of as many tokens as the tiny one has
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["▁t", "he", "▁the", "▁", "t", "h", "e", *"abcdefghijklm"][: len(TOKENS) - len(tokens)]
    header = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": None,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259),
        "tokenizer.ggml.bos_token_id": 1,
    }
    path = write_tiny(tmp_path / "x.gguf", Tiny(header=header))
    # when
    trace = kvviz.decode(kvviz.load(path), "the", 2, progress=False)
    # then
    assert trace.prompt == [1, tokens.index("▁the")]
    assert carried_tokenizer(Checkpoint(path)).decode(trace.prompt) == "<s> the"
    # given one that lacks scores
    broken = write_tiny(tmp_path / "y.gguf", Tiny(header={**header, "tokenizer.ggml.scores": [0.0]}))
    with pytest.raises(LoadError, match="only a part of its tokenizer"):
        carried_tokenizer(Checkpoint(broken))
