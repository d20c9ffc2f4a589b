"""What a model is, by its graph alone: decoders, classifiers, embeddings, recurrent states."""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.decode.model_kind import model_kind
from kvviz.errors import InputError
from tests.engine.graphs import graph_of, numbers
from tests.graph.build import model, node


def _tagger(classes: int, direction: str = "bidirectional") -> Any:
    """Characters to classes, one for each, by a recurrent layer."""
    ways = 2 if direction == "bidirectional" else 1
    shapes = {"E": (100, 8), "W": (ways, 32, 8), "R": (ways, 32, 8), "O": (8 * ways, classes)}
    weights: dict[str, Any] = {name: numbers(*shape) for name, shape in shapes.items()}
    nodes = [
        node("Gather", "E chars", "e"),
        node("Transpose", "e", "first", perm=[1, 0, 2]),
        node("LSTM", "first W R", "y", hidden_size=8, direction=direction),
        node("Transpose", "y", "back", perm=[2, 0, 1, 3]),
        node("Reshape", "back flat", "h"),
        node("MatMul", "h O", "tags"),
    ]
    outputs = [f"tags float batch length {classes}"]
    return model(nodes, ["chars int64 batch length"], outputs, **weights, flat=np.array([0, 0, 8 * ways]))


@pytest.mark.parametrize("direction", ["bidirectional", "forward"])
def test_what_scores_its_own_tokens_decodes_if_none_sees_those_after_it(direction: str) -> None:
    for classes in (2, 27, 101):
        graph = kvviz.load(_tagger(classes, direction))
        assert not model_kind(graph).decodes
        why = f"token classifier .* reads 100 tokens and scores {classes} classes; use kvviz.run"
        with pytest.raises(InputError, match=why):
            kvviz.decode(graph, [1, 2, 3], 3)
    assert model_kind(kvviz.load(_tagger(100, "forward"))).name == "a text decoder"
    graph = kvviz.load(_tagger(100))
    assert model_kind(graph).name == "a masked language model"
    with pytest.raises(InputError, match="nothing in the graph hides later tokens from earlier ones"):
        kvviz.decode(graph, [1, 2, 3], 3)


def _bert(*heads: Any, output: str) -> Any:
    """A model of tokens, segments and a mask whose inputs have no telling names."""
    weights: dict[str, Any] = {"E": numbers(60, 8), "T": numbers(2, 8)}
    nodes = [
        node("Gather", "T b", "t"),
        node("Gather", "E a", "e"),
        node("Add", "e t", "x"),
        node("Cast", "c", "real", to=1),
        node("Unsqueeze", "real last", "column"),
        node("Mul", "x column", "h"),
        *heads,
    ]
    inputs = [f"{name} int64 batch seq" for name in "bac"]
    more = {"last": np.array([2]), "axis": np.array([1]), "O": np.ones((8, 3), np.float32), "V": weights["E"].T.copy()}
    return model(nodes, inputs, [output], **weights, **more)


POOLED = [node("ReduceMean", "h axis", "p", keepdims=0), node("MatMul", "p O", "y")]


@pytest.mark.parametrize(
    ("heads", "output", "name"),
    [
        ([node("Identity", "h", "last_hidden_state")], "last_hidden_state float batch seq 8", "an embedding model"),
        ([node("MatMul", "h O", "y")], "y float batch seq 3", "a token classifier"),
        (POOLED, "y float batch 3", "a text classifier"),
        ([node("MatMul", "h V", "y")], "y float batch seq 60", "a masked language model"),
    ],
)
def test_of_several_inputs_the_tokens_are_those_looked_up_in_the_largest_table(
    heads: list[Any], output: str, name: str
) -> None:
    graph = kvviz.load(_bert(*heads, output=output))
    kind = model_kind(graph)
    assert (kind.name, kind.reads_text, kind.decodes) == (name, True, False)
    kvviz.run(graph, kvviz.inputs(graph))
    with pytest.raises(InputError):
        kvviz.decode(graph, [1, 2], 2)


# -- recurrent states -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("state", "stateN"), ("past", "present"), ("x1", "y1"), ("hidden", "output_hidden")])
@pytest.mark.parametrize("after", ["2,batch,128", "2,n,128", "?,?,?"])
def test_a_recurrent_state_of_several_layers_is_a_state_and_no_growing_cache(
    names: tuple[str, str], after: str
) -> None:
    # given two layers whose states come and go in one tensor
    graph = graph_of(f"""g (float[t,batch,64] x, float[2,batch,128] {names[0]}, float[1,384,64] W, float[1,384,128] W2,
        float[1,384,128] R) => (float[t,1,batch,128] y, float[{after}] {names[1]}) <int64[1] axis = {{1}}> {{
        one, two = Split <axis = 0, num_outputs = 2> ({names[0]})
        first, c = GRU <hidden_size = 128> (x, W, R, , , one)  between = Squeeze (first, axis)
        y, d = GRU <hidden_size = 128> (between, W2, R, , , two)  {names[1]} = Concat <axis = 0> (c, d) }}""")
    trace = kvviz.run(graph, kvviz.inputs(graph))
    assert model_kind(graph).name == "a model that carries a state on"
    assert [(cache.input, cache.output, cache.protocol) for cache in trace.caches] == [(*names, "state")]
    assert not kvviz.cache_warnings(trace) and not kvviz.explain(trace).caches


def test_a_state_that_no_operator_names_does_not_grow_along_the_batch() -> None:
    graph = graph_of("g (float[2,batch,128] past) => (float[2,n,128] present) { present = Erf (past) }")
    trace = kvviz.run(graph, {"past": np.ones((2, 3, 128), np.float32)})
    assert [cache.protocol for cache in trace.caches] == ["state"]
