"""Ensembles of trees against onnxruntime: every comparison, missing values, and every way to put leaves together."""

from typing import Any

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import check, run

ML = "ai.onnx.ml"
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def forest(trees: int, depth: int, features: int, modes: list[str], seed: int = 0) -> tuple[dict[str, Any], list]:
    """Random trees, as attributes, and the (tree, node) pairs of their leaves."""
    rng = np.random.default_rng(seed)
    rows: list[tuple] = []
    leaves: list[tuple[int, int]] = []

    def grow(tree: int, node: int, level: int) -> None:
        if level == depth or (level and rng.random() < 0.2):
            leaves.append((tree, node))
            rows.append((tree, node, 0, 0.0, "LEAF", 0, 0, 0))
            return
        mode, value = str(rng.choice(modes)), float(rng.integers(-3, 4))
        missing = int(rng.integers(2))
        rows.append((tree, node, int(rng.integers(features)), value, mode, 2 * node + 1, 2 * node + 2, missing))
        grow(tree, 2 * node + 1, level + 1)
        grow(tree, 2 * node + 2, level + 1)

    for tree in range(trees):
        grow(tree, 0, 0)
    names = "treeids nodeids featureids values modes truenodeids falsenodeids missing_value_tracks_true"
    return {f"nodes_{name}": list(column) for name, column in zip(names.split(), zip(*rows))}, leaves


def rows_of(count: int, features: int, missing: bool = False) -> np.ndarray:
    """Whole and half numbers, so that comparisons meet equal ones; some missing."""
    rng = np.random.default_rng(1)
    x = (rng.integers(-8, 9, (count, features)) / 2).astype(np.float32)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    return x


# onnxruntime adds up in another order.
NEAR: dict[str, Any] = {"domain": ML, "rtol": 1e-5, "atol": 1e-5}


def given(kind: str, leaves: list, targets: int, each: int = 1, low: float = -1.0) -> dict[str, Any]:
    """What the leaves give: ``each`` entries a leaf."""
    rng = np.random.default_rng(2)
    places = [(leaf, (i + k) % targets) for i, leaf in enumerate(leaves) for k in range(each)]
    columns = zip(*((*leaf, target, float(rng.uniform(low, 1))) for leaf, target in places))
    return {f"{kind}_{name}": list(column) for name, column in zip(("treeids", "nodeids", "ids", "weights"), columns)}


@pytest.mark.parametrize("modes", [MODES[:1], MODES[2:4], MODES], ids=["one", "two", "all"])
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(("targets", "each"), [(1, 1), (3, 1), (3, 3)])
def test_a_regressor_agrees_with_onnxruntime(modes: list[str], how: str, targets: int, each: int) -> None:
    nodes, leaves = forest(7, 4, 5, modes)
    what = {**nodes, **given("target", leaves, targets, each), "n_targets": targets, "aggregate_function": how}
    for x in (rows_of(50, 5, missing=True), rows_of(1, 5)):
        check("TreeEnsembleRegressor", [x], **NEAR, **what)
        # To a target that no leaf reached gives anything, onnxruntime adds no base value unless the row is alone.
        if each == targets:
            check("TreeEnsembleRegressor", [x], base_values=[0.5 + k for k in range(targets)], **NEAR, **what)


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("labels", [[3, 7, 5], ["a", "b", "c", "d"], [0, 1]], ids=str)
@pytest.mark.parametrize("low", [0.0, -1.0])
@pytest.mark.parametrize("base", [False, True])
def test_a_classifier_agrees_with_onnxruntime(post: str, labels: list, low: float, base: bool) -> None:
    nodes, leaves = forest(6, 4, 5, MODES[:2])
    what = {**nodes, "post_transform": post, **given("class", leaves, len(labels), low=low)}
    what["classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"] = labels
    if base:
        what["base_values"] = [0.25 * (k + 1) for k in range(len(labels) if len(labels) > 2 else 1)]
    # With one base value, onnxruntime leaves a score unwritten where leaves give to the first of two classes only.
    if len(labels) > 2 or not base:
        check("TreeEnsembleClassifier", [rows_of(40, 5)], 2, **NEAR, **what)
    if len(labels) == 2:
        for scored in (0, 1):
            alone = {**what, "classlabels_int64s": [4, 9], "class_ids": [scored] * len(leaves)}
            check("TreeEnsembleClassifier", [rows_of(40, 5)], 2, **NEAR, **alone)


def test_trees_that_lead_nowhere_are_refused() -> None:
    nodes, leaves = forest(1, 2, 3, MODES[:1])
    what = {**nodes, **given("target", leaves, 1)}
    branch = nodes["nodes_modes"].index("BRANCH_LEQ")
    for name, value, message in (
        ("nodes_truenodeids", 99, r"node \(0, 99\)"),
        ("nodes_truenodeids", 0, "comes back"),
        ("nodes_featureids", 7, "feature 7"),
        ("nodes_modes", "BRANCH_NEAR", "BRANCH_NEAR"),
    ):
        changed = list(nodes[name])
        changed[branch] = value
        with pytest.raises(OpError, match=message):
            run("TreeEnsembleRegressor", [np.full((1, 3), -9, np.float32)], domain=ML, **{**what, name: changed})
