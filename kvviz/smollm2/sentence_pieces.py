"""SentencePiece's byte pairs, as GGUF keeps them: pieces with scores, of which text is put together best first.

Two neighbouring pieces whose union is a piece are joined, the union with the highest score first; so the scores are an
order of merges. What no piece has is written as bytes.
(Source: SentencePiece, src/bpe_model.cc, and llama.cpp, src/llama-vocab.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_NORMAL, _UNKNOWN = 1, 2
_SPACE = "▁"


def piece_tokenizer(
    library: Any, tokens: Sequence[str], scores: Sequence[float], kinds: Sequence[int], prefix: bool
) -> Any:
    """A tokenizer of the package ``tokenizers`` that cuts text as SentencePiece does.

    Parameters
    ----------
    library : module
        ``tokenizers``.
    tokens, scores, kinds : sequence
        Of each piece its text, its score, and its kind in GGUF's numbers.
    prefix : bool
        Whether a text is taken as if a space stood before it.
    """
    vocabulary = {token: i for i, token in enumerate(tokens)}
    order = []
    for i, piece in enumerate(tokens):
        if kinds and kinds[i] != _NORMAL:
            continue
        for cut in range(1, len(piece)):
            left, right = vocabulary.get(piece[:cut]), vocabulary.get(piece[cut:])
            if left is not None and right is not None:
                order.append((-scores[i], i, left, right))
    merges = [(tokens[left], tokens[right]) for _, _, left, right in sorted(order)]
    unknown = next((token for token, kind in zip(tokens, kinds) if kind == _UNKNOWN), None)
    model = library.models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    made = library.Tokenizer(model)
    normalizers, decoders = library.normalizers, library.decoders
    spaces = normalizers.Replace(" ", _SPACE)
    made.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefix else spaces
    made.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return made
