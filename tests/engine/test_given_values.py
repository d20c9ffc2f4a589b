"""Inputs that are no arrays yet: lists and numbers become what the graph declares, if nothing of them is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.errors import InputError
from tests.engine.graphs import graph_of

TEXT = "g ({} [2, n] x) => ({} [2, n] y) {{ y = Identity(x) }}"


@pytest.mark.parametrize(
    ("dtype", "given", "want"),
    [
        ("int64", [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
        ("float", [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], np.float32)),
        ("float", [[0.5], [2.0]], np.array([[0.5], [2]], np.float32)),
        ("int64", [[], []], np.zeros((2, 0), np.int64)),
        ("bool", [[True], [False]], np.array([[True], [False]])),
    ],
)
def test_lists_become_arrays_of_the_declared_type(dtype: str, given: Any, want: np.ndarray) -> None:
    graph = graph_of(TEXT.format(dtype, dtype))
    output = kvviz.run(graph, {"x": given}).outputs["y"]
    assert output.dtype == want.dtype
    np.testing.assert_array_equal(output, want)


@pytest.mark.parametrize(
    ("dtype", "given"),
    [("int64", [[1.0], [2.5]]), ("bool", [[0.5], [1.0]]), ("int64", [[1j], [2]]), ("float", [["a"], ["b"]])],
)
def test_lists_that_would_lose_something_are_refused(dtype: str, given: Any) -> None:
    with pytest.raises(InputError, match="input 'x' must be"):
        kvviz.run(graph_of(TEXT.format(dtype, dtype)), {"x": given})


@pytest.mark.parametrize("shape", [(3, 2), (2,), (2, 2, 1), (0, 2)])
def test_an_array_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="input 'x' has shape"):
        kvviz.run(graph_of(TEXT.format("float", "float")), {"x": np.zeros(shape, np.float32)})
