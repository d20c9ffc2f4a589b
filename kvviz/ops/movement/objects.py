"""Values other than tensors of numbers: sequences, whose elements are shared, optionals, maps and strings."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from kvviz.errors import OpError
from kvviz.interrupts import interruptible
from kvviz.ops.numeric import FLOAT32, counted, scalar
from kvviz.ops.registry import op


def _place(position: np.ndarray, length: int, last: int) -> int:
    """A position counted from 0; negative ones count from the end of the sequence."""
    place = int(scalar(position, "position"))
    if not -length <= place <= last:
        raise OpError(f"position {place} is out of range for a sequence of {length} tensors: use {-length} to {last}")
    return place + length if place < 0 else place


def _part(x: np.ndarray, axis: int, where: slice | int) -> np.ndarray:
    index = (*(slice(None),) * axis, where)
    return x[index]


@op("SequenceInsert", views=(0, 1))
def sequence_insert(sequence, tensor, position=None):
    """The sequence with a tensor put before ``position``; without one, or at its length, behind the last."""
    place = len(sequence) if position is None else _place(position, len(sequence), len(sequence))
    return [*sequence[:place], tensor, *sequence[place:]]


@op("SequenceErase", views=(0,))
def sequence_erase(sequence, position=None):
    """The sequence without the tensor at ``position``, or without its last."""
    if not sequence:
        raise OpError("an empty sequence has no tensor to erase")
    place = len(sequence) - 1 if position is None else _place(position, len(sequence), len(sequence) - 1)
    return [*sequence[:place], *sequence[place + 1 :]]


@op("SplitToSequence", views=(0,), moves=True)
def split_to_sequence(x, split=None, *, axis=0, keepdims=1):
    """Views of a tensor: of given lengths, of one length (the last may be shorter), or one an index. Only the last of
    these drops the axis, where ``keepdims`` is 0."""
    axis = counted(axis, x.ndim)
    total = x.shape[axis]
    if split is None:
        return [_part(x, axis, slice(i, i + 1) if keepdims else i) for i in range(total)]
    if split.ndim == 0:
        length = int(split)
        if length < 1:
            raise OpError(f"a split of {length} is no length: it must be 1 or more")
        bounds = [*range(0, total, length), total]
    else:
        lengths = split.tolist()
        if min(lengths, default=0) < 0 or sum(lengths) != total:
            raise OpError(f"lengths {lengths} do not add up to {total}, the length of axis {axis}")
        bounds = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
    return [_part(x, axis, slice(b, e)) for b, e in pairwise(bounds)]


@op("Optional", views=(0,))
def optional(x=None, *, type=None):
    return x


@op("OptionalGetElement", views=(0,))
def optional_get_element(x):
    if x is None:
        raise OpError("the optional is empty, so there is no element to get")
    return x


@op("OptionalHasElement", unread=(0,))
def optional_has_element(x=None):
    return np.array(x is not None)


@op("ZipMap", domain="ai.onnx.ml")
def zip_map(x, *, classlabels_int64s=(), classlabels_strings=()):
    """One map per row, from class labels to scores; a vector is one row."""
    labels = list(classlabels_strings) or list(classlabels_int64s)
    if bool(classlabels_strings) == bool(classlabels_int64s):
        raise OpError("one of classlabels_strings and classlabels_int64s must be given, and not both")
    if x.ndim not in (1, 2) or x.shape[-1] != len(labels):
        raise OpError(f"scores of shape {x.shape} do not give one number to each of the {len(labels)} labels {labels}")
    return [dict(zip(labels, row)) for row in np.atleast_2d(x).tolist()]


@op("StringSplit")
def string_split(x, *, delimiter="", maxsplit=None):
    """The parts of each string along a new last axis, padded with empty ones, and their number. The default delimiter
    is white space. An empty string has no part, as in onnxruntime."""
    most = -1 if maxsplit is None else maxsplit
    found = [_parts(text, delimiter, most) for text in x.reshape(-1).tolist()]
    width = max(map(len, found), default=0)
    y = np.full((len(found), width), "", object)
    for row, parts in zip(y, found):
        row[: len(parts)] = parts
    return y.reshape(*x.shape, width), np.array([len(parts) for parts in found], np.int64).reshape(x.shape)


def _parts(text: str, delimiter: str, most: int) -> list[str]:
    if delimiter:
        return text.split(delimiter, most) if text else []
    return text.strip().split(None, most)


@op("StringNormalizer", since=10)
def string_normalizer(x, *, case_change_action="NONE", is_case_sensitive=0, locale="", stopwords=()):
    """The strings of a row without the stop words, in upper or lower case by Unicode's rules, whatever the locale; one
    empty string if none is left."""
    if x.ndim not in (1, 2) or (x.ndim == 2 and len(x) != 1):
        raise OpError(f"the input must have shape (n,) or (1, n), but has {x.shape}")
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    change = changes.get(case_change_action)
    if change is None:
        raise OpError(f"case_change_action {case_change_action!r} is none of NONE, LOWER, UPPER")
    key = str if is_case_sensitive else str.lower
    unwanted = {key(word) for word in stopwords}
    kept = [change(text) for text in x.reshape(-1).tolist() if key(text) not in unwanted] or [""]
    return np.array(kept, object).reshape(*x.shape[:-1], len(kept))


@op("RegexFullMatch")
def regex_full_match(x, *, pattern=""):
    r"""Whether each whole string matches. Classes such as ``\w`` are those of ASCII, as in RE2."""
    try:
        matcher = re.compile(pattern, re.ASCII)
    except re.error as error:
        raise OpError(f"pattern {pattern!r} is no regular expression: {error}") from None
    with interruptible():  # one that goes back and forth may take for ever
        found = [matcher.fullmatch(text) is not None for text in x.reshape(-1).tolist()]
    return np.array(found, np.bool_).reshape(x.shape)


@op("LabelEncoder", domain="ai.onnx.ml")
def label_encoder(x, *, classes_strings, default_int64=-1, default_string="_Unused"):
    """Version 1: the places of strings in a list of classes (of equal strings the last one, as in onnxruntime), or the
    strings at such places; unknown ones become the default. Later versions have keys and values, which `onnx.reference`
    looks up."""
    if x.dtype == object:
        places = {text: place for place, text in enumerate(classes_strings)}
        return np.array([places.get(text, default_int64) for text in x.reshape(-1)], np.int64).reshape(x.shape)
    known = (x >= 0) & (x < len(classes_strings))
    labels = np.array([*classes_strings, default_string], object)
    return labels[np.where(known, x, len(classes_strings))]


@op("TfIdfVectorizer")
def tfidf_vectorizer(
    x,
    *,
    max_gram_length,
    max_skip_count,
    min_gram_length,
    mode,
    ngram_counts,
    ngram_indexes,
    pool_int64s=(),
    pool_strings=(),
    weights=(),
):
    """How often each n-gram of the pool occurs in each row, with up to ``max_skip_count`` items skipped between two.
    IDF gives its weight if it occurs, TFIDF the weight times the count; without weights they are 1."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise OpError(f"mode {mode!r} is none of TF, IDF, TFIDF")
    if x.ndim not in (1, 2):
        raise OpError(f"the input must have 1 or 2 dimensions, but has shape {x.shape}")
    wanted = _pool(list(pool_strings) or list(pool_int64s), ngram_counts, min_gram_length, max_gram_length)
    if wanted and max(wanted.values()) >= len(ngram_indexes):
        raise OpError(f"{len(ngram_indexes)} ngram_indexes do not name a place for every n-gram of the pool")
    width = max(ngram_indexes) + 1
    rows = x.reshape(-1, x.shape[-1]).tolist()
    y = np.zeros((len(rows), width), FLOAT32)
    for row, items in zip(y, rows):
        for length in range(min_gram_length, max_gram_length + 1):
            # Single items cannot skip anything.
            for step in range(1, (max_skip_count + 1 if length > 1 else 1) + 1):
                for start in range(len(items) - (length - 1) * step):
                    place = wanted.get(tuple(items[start : start + (length - 1) * step + 1 : step]))
                    if place is not None:
                        row[ngram_indexes[place]] += 1
    if mode != "TF":
        factor = np.ones(width, FLOAT32)
        if weights:
            factor[list(ngram_indexes)] = weights
        y = (y > 0) * factor if mode == "IDF" else y * factor
    return y.astype(FLOAT32, copy=False).reshape(*x.shape[:-1], width)


def _pool(items: list, counts: tuple[int, ...], least: int, most: int) -> dict[tuple, int]:
    found: dict[tuple, int] = {}
    number = 0
    for length, (start, end) in enumerate(zip(counts, (*counts[1:], len(items))), 1):
        for place in range(start, end, length):
            if least <= length <= most:
                found.setdefault(tuple(items[place : place + length]), number)
            number += 1
    return found
