"""Tokenizers out of GGUF files, and the prompts that they make; those of SentencePiece are judged by SentencePiece."""

import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import kvviz
from kvviz.errors import KvvizError, LoadError
from kvviz.smollm2 import Tokenizer, tokenizer
from kvviz.smollm2.checkpoint import Checkpoint
from kvviz.smollm2.gguf_to_onnx import carried_tokenizer, piece_tokenizer
from kvviz.text.companions import TextSettings, ends_of
from tests.smollm2.tiny import SPECIAL, TEMPLATE, TOKENS, Tiny, write_tiny


@pytest.fixture(scope="module")
def words(folders: dict[str, Path]) -> Tokenizer:
    return tokenizer(folders["concat"])


def test_words_are_built_by_the_merges_and_special_tokens_and_digits_stay_alone(words: Tokenizer) -> None:
    pieces = [TOKENS[token] for token in words.encode("hello world 2024")]
    assert pieces == ["hell", "o", "Ġworld", "Ġ", "2", "0", "2", "4"]
    for token in ("<|im_end|>", "<box>"):  # one of the model's, and one that its users defined
        assert words.encode(f"a{token}b") == [TOKENS.index(one) for one in ("a", token, "b")]
    assert [words.encode(token) for token in SPECIAL] == [[0], [1], [2]]
    assert words.decode([1, TOKENS.index("hell"), 2]) == "<|im_start|>hell<|im_end|>"


def test_every_text_comes_back_from_its_tokens(words: Tokenizer) -> None:
    @given(st.text())
    def round_trip(text: str) -> None:
        assert words.decode(words.encode(text)) == text

    round_trip()


@pytest.mark.parametrize("system", [None, "Answer in one word."])
def test_a_chat_prompt_is_what_the_models_template_makes(words: Tokenizer, system: str | None) -> None:
    said = [{"role": "system", "content": system}] if system else []
    said.append({"role": "user", "content": "hello\nworld?"})
    expected = jinja2.Template(TEMPLATE).render(messages=said, add_generation_prompt=True)
    assert words.chat("hello\nworld?", system) == expected


def test_any_template_is_followed_and_without_one_there_is_no_chat(words: Tokenizer) -> None:
    template = "{{ bos_token }}{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}"
    other = Tokenizer(words.inner, TextSettings(("</s>",), (), template, "<s>"))
    assert other.chat("x") == "<s>[INST] x [/INST]"
    with pytest.raises(KvvizError, match="no chat template"):
        Tokenizer(words.inner, TextSettings()).chat("x")


def test_a_decode_takes_text_shows_words_and_ends_with_a_token_of_its_own_or_of_a_text(
    words: Tokenizer, folders: dict[str, Path]
) -> None:
    assert words.stop_tokens == (2, 0)
    assert Tokenizer(words.inner, TextSettings(ends_of("</s>"), (7,))).stop_tokens == (7, 0, 2)
    graph = kvviz.load(folders["concat"] / "model.onnx")
    trace = kvviz.decode(graph, words.chat("hello"), 3, tokenizer=words, progress=False)
    assert trace.prompt == words.encode(words.chat("hello"))
    assert trace.words is not None and trace.words[0] == "<|im_start|>" and len(trace.words) == len(trace.prompt) + 3


def test_a_folder_without_tokenizer_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(KvvizError, match=r"no tokenizer_config\.json; write it with: kvviz smollm2"):
        tokenizer(tmp_path)


# 600 pieces that sentencepiece 0.2.3 learned from this project's README (byte pairs, byte fallback), and texts in its
# tokens.
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
