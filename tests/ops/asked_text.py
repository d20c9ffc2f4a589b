"""Random calls on sequences and strings."""

from typing import Any

import numpy as np

from tests.ops.asked import Asked, Rng, asks, normal, shape, some


def parts(rng: Rng, low: int = 0) -> list[np.ndarray]:
    return [normal(rng, *shape(rng, 2)) for _ in range(int(rng.integers(low, 5)))]


def place(rng: Rng, length: int) -> np.ndarray | None:
    at = int(rng.integers(-length - 2, length + 3))
    return some(rng, None, np.array(at, np.int64), np.array(at, np.int32), np.array(at, np.int64))


@asks("SequenceInsert")
def sequence_insert(rng: Rng) -> Asked:
    s = parts(rng)
    at = place(rng, len(s))
    return Asked([s, normal(rng, 2), at] if at is not None else [s, normal(rng, 2)])


@asks("SequenceErase")
def sequence_erase(rng: Rng) -> Asked:
    s = parts(rng)
    at = place(rng, len(s))
    return Asked([s, at] if at is not None else [s])


@asks("SequenceAt")
def sequence_at(rng: Rng) -> Asked:
    s = parts(rng)
    at = place(rng, len(s))
    return Asked([s, np.array(0, np.int64) if at is None else at])


@asks("SequenceLength")
def sequence_length(rng: Rng) -> Asked:
    return Asked([parts(rng)])


@asks("SequenceConstruct")
def sequence_construct(rng: Rng) -> Asked:
    return Asked(parts(rng, 1))


@asks("ConcatFromSequence")
def concat_from_sequence(rng: Rng) -> Asked:
    rank, new = int(rng.integers(1, 4)), int(rng.integers(0, 2))
    common = shape(rng, rank)
    axis = int(rng.integers(-rank - 2, rank + 2))
    s = []
    for _ in range(int(rng.integers(1, 4))):
        lengths = list(common)
        if not new and -rank <= axis < rank and rng.random() < 0.7:
            lengths[axis] = int(rng.integers(0, 4))
        elif rng.random() < 0.05:
            lengths[0] += 1
        s.append(normal(rng, *lengths))
    return Asked([s], {"axis": axis, "new_axis": new})


@asks("SplitToSequence")
def split_to_sequence(rng: Rng) -> Asked:
    rank = int(rng.integers(1, 4))
    x = normal(rng, *shape(rng, rank, 1, 7))
    axis = int(rng.integers(-rank - 1, rank + 1))
    attributes = {"axis": axis}
    length = x.shape[axis] if -rank <= axis < rank else 3
    kind = some(rng, "none", "scalar", "lengths", "wrong")
    if kind == "none":
        # With lengths ONNX ignores this attribute, and onnxruntime does not.
        return Asked([x], {**attributes, "keepdims": int(rng.integers(0, 2))} if rng.random() < 0.7 else attributes)
    if kind == "scalar":
        return Asked([x, np.array(rng.integers(-1, 4), np.int64)], attributes)
    cuts = np.sort(rng.integers(0, length + 1, 2))
    lengths = np.diff([0, *cuts, length])
    if kind == "wrong":
        lengths[int(rng.integers(3))] += some(rng, -1, 1, -3)
    return Asked([x, lengths.astype(np.int64)], attributes)


# -- strings ----------------------------------------------------------------------------------------------------------

# Without tabs: onnxruntime splits at spaces only, where ONNX says white space.
WORDS = ["a", "B c", "", "the cat", "The", " x  y ", "é", "1,2,,3", "a,b", "THE", "ß", "end", "a  b"]
ASCII = [word for word in WORDS if word.isascii()]


def words(rng: Rng, *size: int, among: list[str] = WORDS) -> np.ndarray:
    return np.array([some(rng, *among) for _ in range(int(np.prod(size)))], object).reshape(size)


@asks("StringConcat")
def string_concat(rng: Rng) -> Asked:
    a = shape(rng, 2)
    b = some(rng, a, (1,), (), (a[1],), (a[0], 1), (3,))
    return Asked([words(rng, *a), words(rng, *b)])


@asks("StringSplit")
def string_split(rng: Rng) -> Asked:
    attributes: dict[str, Any] = {}
    if rng.random() < 0.7:
        attributes["delimiter"] = some(rng, "", " ", ",", "a")
    if rng.random() < 0.6:
        attributes["maxsplit"] = int(rng.integers(-1, 4))
    return Asked([words(rng, *shape(rng, int(rng.integers(0, 3)), 0, 4))], attributes, 2)


@asks("StringNormalizer")
def string_normalizer(rng: Rng) -> Asked:
    attributes: dict[str, Any] = {"case_change_action": some(rng, "NONE", "LOWER", "UPPER"), "locale": "C"}
    if rng.random() < 0.6:
        attributes["is_case_sensitive"] = int(rng.integers(0, 2))
    if rng.random() < 0.7:
        attributes["stopwords"] = [some(rng, *ASCII) for _ in range(int(rng.integers(1, 4)))]
    n = int(rng.integers(1, 5))
    return Asked([words(rng, *some(rng, (n,), (1, n), (2, n)), among=ASCII)], attributes, opset=10)


@asks("RegexFullMatch")
def regex_full_match(rng: Rng) -> Asked:
    return Asked([words(rng, *shape(rng, 2))], {"pattern": some(rng, r"\w+", "a.*", "", ".*", "(the|a)( cat)?")})


@asks("TfIdfVectorizer")
def tfidf(rng: Rng) -> Asked:
    most = int(rng.integers(1, 4))
    singles, pairs = int(rng.integers(1, 4)), int(rng.integers(0, 3)) if most > 1 else 0
    triples = int(rng.integers(0, 2)) if most > 2 else 0
    text = rng.random() < 0.3
    pool = rng.permutation(5)[:singles].tolist()
    pool += [int(n) for _ in range(pairs) for n in rng.integers(0, 5, 2)]
    pool += [int(n) for _ in range(triples) for n in rng.integers(0, 5, 3)]
    total = singles + pairs + triples
    attributes: dict[str, Any] = {
        "mode": some(rng, "TF", "IDF", "TFIDF"),
        "min_gram_length": int(rng.integers(1, most + 1)),
        "max_gram_length": most,
        "max_skip_count": int(rng.integers(0, 3)),
        "ngram_counts": [0, singles, singles + 2 * pairs][:most],
        "ngram_indexes": rng.permutation(total).tolist(),
    }
    attributes["pool_strings" if text else "pool_int64s"] = [f"w{n}" for n in pool] if text else pool
    if rng.random() < 0.5:
        attributes["weights"] = [float(w) for w in rng.uniform(0.5, 2, total)]
    n = int(rng.integers(1, 7))
    x = rng.integers(0, 5, some(rng, (n,), (2, n)))
    x = np.array([f"w{v}" for v in x.reshape(-1)], object).reshape(x.shape) if text else x
    return Asked([x], attributes)
