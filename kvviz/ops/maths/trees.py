"""Ensembles of decision trees of ai.onnx.ml: all rows go down all trees together, one level at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.maths.matmul import ML, transformed
from kvviz.ops.numeric import FLOAT32, FLOAT64
from kvviz.ops.registry import op

_MODES: dict[str, Callable[[Any, Any], Any]] = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}
# Rows are processed in parts of about so many paths, which stay in a cache of the processor.
_PATHS = 1 << 14
_KEPT = 16


class _Forest(NamedTuple):
    """Nodes of all trees as arrays; a leaf's child is itself."""

    roots: np.ndarray
    feature: np.ndarray
    value: np.ndarray
    after: np.ndarray  # (node, 2): the next node where the test fails, and where it holds
    missing: np.ndarray  # whether NaN passes the test
    tests: list[tuple[Callable[[Any, Any], Any], np.ndarray]]  # a comparison, and which nodes make it
    leaf: np.ndarray
    first: np.ndarray  # of each node's entries in what follows, and their number
    entries: np.ndarray
    target: np.ndarray
    weight: np.ndarray


_forests: OrderedDict[tuple[int, ...], tuple[tuple, _Forest]] = OrderedDict()


def _forest_of(*parts: Any) -> _Forest:
    """The forest of these attributes, cached: a node of a graph always passes the same objects."""
    key = tuple(map(id, parts))
    if key not in _forests:
        _forests[key] = parts, _planted(*parts)
        if len(_forests) > _KEPT:
            _forests.popitem(last=False)
    return _forests[key][1]


_COLUMNS = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
_LEAVES = ("treeids", "nodeids", "ids", "weights")


def _parts_of(ensemble: dict[str, Any], leaves: str) -> tuple[Any, ...]:
    """The attributes of nodes and of the values of their leaves, for a ``"class"`` or a ``"target"``."""
    names = [f"nodes_{name}" for name in (*_COLUMNS, "missing_value_tracks_true")]
    names += [f"{leaves}_{name}" for name in _LEAVES]
    return tuple(_either(ensemble, name) for name in names)


def _either(attributes: dict[str, Any], name: str) -> Any:
    """An attribute that may be given as numbers or as a tensor."""
    return attributes.get(f"{name}_as_tensor", attributes.get(name, ()))


def _planted(trees, nodes, features, values, modes, true, false, missing, at_trees, at_nodes, targets, weights):
    count = len(trees)
    for name, column in zip(_COLUMNS, (trees, nodes, features, values, modes, true, false)):
        if len(column) != count:
            raise OpError(f"{len(column)} {name} of nodes do not fit {count} nodes")
    places = {name: place for place, name in enumerate(zip(trees, nodes))}
    try:
        leads = [
            (place, place) if mode == "LEAF" else (places[tree, no], places[tree, yes])
            for place, (tree, mode, yes, no) in enumerate(zip(trees, modes, true, false))
        ]
        ends = np.array([places[name] for name in zip(at_trees, at_nodes)], np.int64)
    except KeyError as error:
        raise OpError(f"a tree names node {error.args[0]} (tree, node), which it does not have") from None
    unknown = set(modes) - set(_MODES) - {"LEAF"}
    if unknown:
        raise OpError(f"modes {sorted(unknown)} are none of LEAF, {', '.join(_MODES)}")
    kinds, order = np.array(modes, object), np.argsort(ends, kind="stable")
    counts = np.bincount(ends, minlength=count)
    return _Forest(
        np.array([trees.index(tree) for tree in dict.fromkeys(trees)], np.int64),
        np.array(features, np.int64),
        np.asarray(values if isinstance(values, np.ndarray) else np.array(values, FLOAT32)),
        np.array(leads, np.int64).reshape(count, 2),
        np.array(missing or [0] * count, bool),
        [(test, kinds == mode) for mode, test in _MODES.items() if mode in modes],
        kinds == "LEAF",
        np.cumsum(counts) - counts,
        counts,
        np.array(targets, np.int64)[order],
        np.asarray(weights, FLOAT64)[order],
    )


def _leaves(x: np.ndarray, forest: _Forest) -> np.ndarray:
    index = np.repeat(forest.roots[None], len(x), 0)
    rows = np.arange(len(x))[:, None]
    for _ in range(len(forest.leaf)):
        if forest.leaf[index].all():
            return index
        met, bound = x[rows, forest.feature[index]], forest.value[index]
        test, _ = forest.tests[0]
        holds = test(met, bound)
        for test, where in forest.tests[1:]:
            np.copyto(holds, test(met, bound), where=where[index])
        if forest.missing.any():
            holds |= np.isnan(met) & forest.missing[index]
        index = forest.after[index, holds.astype(np.int64)]
    if forest.leaf[index].all():
        return index
    raise OpError("a path through a tree comes back to where it was")


def _scores(x: np.ndarray, forest: _Forest, width: int, how: str) -> tuple[np.ndarray, np.ndarray]:
    """The sums of the leaves for each of ``width`` targets, (rows, width) in float64, and which of them got any."""
    if forest.target.size and not 0 <= forest.target.min() <= forest.target.max() < width:
        raise OpError(f"leaves give to targets {forest.target.min()} to {forest.target.max()}, but there are {width}")
    if forest.feature.size and not 0 <= forest.feature.min() <= forest.feature.max() < x.shape[-1]:
        raise OpError(f"trees ask for feature {forest.feature.max()} of an input of shape {x.shape}")
    start = {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0)
    total, given = np.full(len(x) * width, start), np.zeros(len(x) * width, bool)
    several = max(_PATHS // max(len(forest.roots), 1), 1)
    for first in range(0, len(x), several):
        leaves = _leaves(x[first : first + several], forest)
        counts = forest.entries[leaves].reshape(-1)
        # The entries of all leaves that were reached, one after the other.
        starts = forest.first[leaves].reshape(-1) + counts - np.cumsum(counts)
        places = np.arange(counts.sum()) + np.repeat(starts, counts)
        rows = np.repeat(np.repeat(np.arange(first, first + len(leaves)), leaves.shape[1]), counts)
        cells, weights = rows * width + forest.target[places], forest.weight[places]
        given[cells] = True
        if how in ("MIN", "MAX"):
            (np.minimum if how == "MIN" else np.maximum).at(total, cells, weights)
        else:
            total += np.bincount(cells, weights, len(total))
    if how == "AVERAGE":
        total /= len(forest.roots)
    total[~given] = 0
    return total.reshape(len(x), width), given.reshape(len(x), width)


def _rows(x: np.ndarray) -> np.ndarray:
    x = np.atleast_2d(x)
    return x if x.dtype.kind == "f" else x.astype(FLOAT32)


@op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(x, *, aggregate_function="SUM", n_targets=1, post_transform="NONE", **ensemble):
    """The values of the reached leaves, combined by target, plus the base values; always float32."""
    if aggregate_function not in ("SUM", "AVERAGE", "MIN", "MAX"):
        raise OpError(f"aggregate_function {aggregate_function!r} is none of SUM, AVERAGE, MIN, MAX")
    forest = _forest_of(*_parts_of(ensemble, "target"))
    y, _ = _scores(_rows(x), forest, n_targets, aggregate_function)
    base = _either(ensemble, "base_values")
    return transformed((y + np.asarray(base) if len(base) else y).astype(FLOAT32), post_transform)


@op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(x, *, classlabels_int64s=(), classlabels_strings=(), post_transform="NONE", **ensemble):
    """The label with the highest score of those that a leaf gave, and all scores. Of two classes the second is chosen
    if its score, or the only one, is over 0, or over 0.5 if one class alone is scored by no negative weight
    (onnxruntime 1.31, which treats two base values of two classes in a way of its own that ONNX's text does not
    mention)."""
    forest = _forest_of(*_parts_of(ensemble, "class"))
    labels = np.array(classlabels_strings, object) if classlabels_strings else np.array(classlabels_int64s, np.int64)
    y, given = _scores(_rows(x), forest, len(labels), "SUM")
    base = np.asarray(_either(ensemble, "base_values"), FLOAT64)
    if len(labels) != 2 or base.size > 1:
        best = (y + base if base.size else np.where(given, y, -np.inf)).argmax(1)
        return labels[best], transformed((y + base if base.size else y).astype(FLOAT32), post_transform)
    if base.size:
        y[given[:, 0], 0] += base
    alone, y = ~given[:, 1], y.astype(FLOAT32)
    score = np.where(alone, y[:, 0], y[:, 1])
    positive = len(set(ensemble.get("class_ids", ()))) == 1 and forest.weight.min(initial=0) >= 0
    best = (score > (0.5 if positive else 0)).astype(np.int64)
    # Softmax variants do not change a pair that was made of one score.
    logistic = post_transform == "LOGISTIC"
    pair = np.stack([1 - score if positive and not logistic else -score, score], 1)
    pair = transformed(pair, "LOGISTIC" if logistic else "NONE")
    return labels[best], np.where(alone[:, None], pair, transformed(y, post_transform))
