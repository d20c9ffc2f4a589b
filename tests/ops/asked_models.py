"""Random calls of the operators of ai.onnx.ml."""

from typing import Any

import numpy as np

from tests.ops.asked import ML, Asked, Rng, asks, normal, shape, some
from tests.ops.asked_text import words


@asks("Binarizer")
def binarizer(rng: Rng) -> Asked:
    return Asked([normal(rng, *shape(rng, 2))], {"threshold": float(rng.normal())}, domain=ML)


@asks("FeatureVectorizer")
def feature_vectorizer(rng: Rng) -> Asked:
    rows, widths = int(rng.integers(1, 4)), shape(rng, int(rng.integers(1, 4)), 1, 4)
    return Asked([normal(rng, rows, w) for w in widths], {"inputdimensions": widths}, domain=ML, ml=1)


@asks("Imputer")
def imputer(rng: Rng) -> Asked:
    x = normal(rng, 3, 4).round(0)
    missing = some(rng, 0.0, 1.0, float("nan"))
    x[rng.random((3, 4)) < 0.3] = missing
    values = [float(v) for v in rng.normal(size=some(rng, 1, 4))]
    return Asked([x], {"imputed_value_floats": values, "replaced_value_float": missing}, domain=ML, ml=1)


@asks("LabelEncoder")
def label_encoder(rng: Rng) -> Asked:
    keys, values = rng.permutation(6)[:4], rng.permutation(9)[:4]
    kind = some(rng, ("strings", "int64s"), ("int64s", "strings"), ("int64s", "floats"), ("floats", "floats"))
    how: dict[str, Any] = {"strings": "w{}".format, "int64s": int, "floats": float}
    attributes: dict[str, Any] = {
        f"keys_{kind[0]}": [*map(how[kind[0]], keys)],
        f"values_{kind[1]}": [*map(how[kind[1]], values)],
    }
    if rng.random() < 0.5:
        name = {"strings": "default_string", "int64s": "default_int64", "floats": "default_float"}[kind[1]]
        attributes[name] = how[kind[1]](77)
    x = rng.integers(0, 8, shape(rng, 2))
    words = np.array([f"w{n}" for n in x.reshape(-1)], object).reshape(x.shape)
    if rng.random() < 0.4:
        # Version 1 has places in a list instead of keys and values.
        classes: dict[str, Any] = {"classes_strings": [f"w{n}" for n in (*keys, keys[0])]}
        if rng.random() < 0.5:
            classes |= {"default_string": "none", "default_int64": 77}
        return Asked([words if rng.random() < 0.5 else x - 1], classes, domain=ML, ml=1)
    if kind[0] == "strings":
        return Asked([words], attributes, domain=ML, ml=2)
    return Asked([x.astype(np.float32) if kind[0] == "floats" else x], attributes, domain=ML, ml=2)


POST = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@asks("LinearRegressor")
def linear_regressor(rng: Rng) -> Asked:
    targets, width = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    attributes: dict[str, Any] = {"targets": targets, "coefficients": rng.normal(size=targets * width).tolist()}
    if rng.random() < 0.6:
        attributes["intercepts"] = rng.normal(size=targets).tolist()
    if rng.random() < 0.6:
        attributes["post_transform"] = some(rng, *POST[:4])
    return Asked([normal(rng, 3, width)], attributes, domain=ML, ml=1)


@asks("LinearClassifier")
def linear_classifier(rng: Rng) -> Asked:
    classes, width = int(rng.integers(2, 5)), int(rng.integers(1, 5))
    rows = classes if classes > 2 or rng.random() < 0.5 else 1
    attributes: dict[str, Any] = {"coefficients": rng.normal(size=rows * width).tolist()}
    attributes["intercepts"] = rng.normal(size=rows).tolist()
    labels = rng.permutation(9)[:classes]
    if rng.random() < 0.5:
        attributes["classlabels_ints"] = [int(n) for n in labels]
    else:
        attributes["classlabels_strings"] = [f"w{n}" for n in labels]
    if rng.random() < 0.6:
        attributes["post_transform"] = some(rng, *POST[:4])
    return Asked([normal(rng, 3, width)], attributes, 2, domain=ML, ml=1)


@asks("Normalizer")
def normalizer(rng: Rng) -> Asked:
    x = normal(rng, *some(rng, (3, 4), (1, 3)))
    x[0] *= some(rng, 0, 1)
    return Asked([x], {"norm": some(rng, "MAX", "L1", "L2")}, domain=ML, ml=1)


@asks("OneHotEncoder")
def one_hot_encoder(rng: Rng) -> Asked:
    zeros = {"zeros": int(rng.integers(2))} if rng.random() < 0.6 else {}
    if rng.random() < 0.5:
        cats = [int(n) for n in rng.permutation(6)[:4]]
        x = rng.integers(0, 7, shape(rng, 2))
        return Asked([some(rng, x, x.astype(np.float32))], {"cats_int64s": cats, **zeros}, domain=ML, ml=1)
    return Asked([words(rng, *shape(rng, 2))], {"cats_strings": ["", "The", "THE", "a"], **zeros}, domain=ML, ml=1)


@asks("Scaler")
def scaler(rng: Rng) -> Asked:
    n, m = some(rng, (1, 1), (4, 4))
    offset, scale = rng.normal(size=n).tolist(), rng.normal(size=m).tolist()
    x = normal(rng, 3, 4)
    return Asked([some(rng, x, (x * 5).astype(np.int64))], {"offset": offset, "scale": scale}, domain=ML, ml=1)


@asks("ZipMap")
def zip_map(rng: Rng) -> Asked:
    width = int(rng.integers(1, 4))
    labels = [int(n) for n in rng.permutation(9)[:width]]
    attributes = (
        {"classlabels_int64s": labels} if rng.random() < 0.5 else {"classlabels_strings": [f"w{n}" for n in labels]}
    )
    rows = some(rng, (width,), (3, width), (0, width), (2, width + 1))
    return Asked([normal(rng, *rows)], attributes, domain=ML, ml=1)
