"""What made-up inputs hold and how long they are: within look-ups, of ones, rising, long enough for windows."""

from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.errors import InputError
from tests.decode.small import small
from tests.graph.build import graph, model, node, run_in_onnxruntime

ROWS: Any = np.ones((3, 2), np.float32)


def taken(proto: onnx.ModelProto, dims: dict[str, int] | None = None, **given: Any) -> dict[str, Any]:
    """The inputs made for a model, which kvviz and onnxruntime both run on with equal results."""
    loaded = kvviz.load(proto)
    feeds = kvviz.inputs(loaded, dims, given)
    outputs = kvviz.run(loaded, feeds).outputs
    for value, expected in zip(outputs.values(), run_in_onnxruntime(proto, **feeds)):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
    return feeds


# -- numbers that are looked up ---------------------------------------------------------------------------------------

LOOK_UPS = {
    "directly": [node("Gather", "rows ids", "y")],
    "on the last axis": [node("Gather", "wide ids", "y", axis=1)],
    "cast and reshaped": [
        node("Cast", "ids", "c", to=6),
        node("Unsqueeze", "c zero", "u"),
        node("Gather", "rows u", "y"),
    ],
    "one more": [node("Add", "ids one", "more"), node("Gather", "rows more", "y")],
    "one less": [node("Sub", "ids one", "less"), node("Add", "less one", "same"), node("Gather", "rows same", "y")],
    "in a branch": [
        node(
            "If",
            "yes",
            "y",
            then_branch=graph([node("Gather", "rows ids", "t")], [], ["t"]),
            else_branch=graph([node("Gather", "rows ids", "e")], [], ["e"]),
        )
    ],
    "as one of many": [node("OneHot", "ids three offon", "y")],
}


@pytest.mark.parametrize("how", LOOK_UPS)
def test_numbers_stay_within_what_they_are_looked_up_in(how: str) -> None:
    constants = {"one": np.int64(1), "zero": np.array([0]), "three": np.int64(3), "yes": np.array(True)}
    proto = model(
        LOOK_UPS[how],
        ["ids int64 length"],
        ["y float"],
        rows=ROWS,
        wide=ROWS.T.copy(),
        offon=np.array([0, 1], np.float32),
        **constants,
    )
    for value in proto.graph.output:
        value.type.tensor_type.elem_type = 1
    ids = kvviz.inputs(kvviz.load(proto), {"length": 64})["ids"]
    kvviz.run(kvviz.load(proto), {"ids": ids})
    run_in_onnxruntime(proto, ids=ids)
    highest = {"one more": 1}.get(how, 2)
    assert (ids.min(), ids.max()) == (0, highest)


# -- names that say something -----------------------------------------------------------------------------------------


def test_masks_positions_segments_and_lengths_mean_what_they_are_called() -> None:
    names = [
        "attention_mask int64 batch length",
        "position_ids int64 batch length",
        "token_type_ids int64 batch length",
    ]
    names += ["padding_mask bool batch length", "audio_signal float batch 3 frames", "audio_length int64 batch"]
    names += ["bias_mask float batch length", "noise_scale float -", "sr int64 -"]
    inputs = ["input_ids int64 batch length", *names]
    nodes = [node("Identity", name.split()[0], f"o_{name.split()[0]}") for name in inputs]
    outputs = [f"o_{name}" for name in inputs]
    made = taken(model(nodes, inputs, outputs), {"length": 5, "frames": 30})
    assert made["input_ids"].shape == (1, 5)
    assert made["attention_mask"].tolist() == [[1] * 5]
    assert made["padding_mask"].tolist() == [[True] * 5]
    assert made["bias_mask"].tolist() == [[1.0] * 5]
    assert made["position_ids"].tolist() == [[0, 1, 2, 3, 4]]
    assert made["token_type_ids"].tolist() == [[0] * 5]
    assert made["audio_length"].tolist() == [30]
    assert made["noise_scale"].tolist() == 1.0
    assert made["sr"].tolist() == 16_000


# -- lengths ----------------------------------------------------------------------------------------------------------


def kernel(*shape: int) -> np.ndarray:
    return np.full(shape, 0.1, np.float32)


WINDOWS: dict[str, Any] = {
    "a long kernel": model(
        [node("Conv", "x w", "y", strides=[5])], ["x float batch 1 samples"], ["y float batch 2 m"], w=kernel(2, 1, 40)
    ),
    "halved five times": model(
        [
            node("Conv", "x w", "a", strides=[8, 8]),
            node("Conv", "a v", "b", strides=[4, 4]),
            node("MaxPool", "b", "y", kernel_shape=[3, 3]),
        ],
        ["x float ? 3 ? ?"],
        ["y float ? 2 ? ?"],
        w=kernel(2, 3, 8, 8),
        v=kernel(2, 2, 4, 4),
    ),
    "a size that a table fixes": model(
        [node("Conv", "x w", "a", strides=[16, 16]), node("Flatten", "a", "f"), node("MatMul", "f t", "y")],
        ["x float N 1 H W"],
        ["y float N 2"],
        w=kernel(1, 1, 16, 16),
        t=kernel(196, 2),
    ),
    "a reflected edge": model(
        [node("Pad", "x pads", "p", mode="reflect"), node("Conv", "p w", "y")],
        ["x float batch 1 samples"],
        ["y float batch 1 m"],
        pads=np.array([0, 0, 20, 0, 0, 20]),
        w=kernel(1, 1, 3),
    ),
    "halved and doubled again": model(
        [node("Conv", "x w", "c", strides=[2, 2], pads=[1, 1, 1, 1]), node("Resize", "c none scales", "y")],
        ["x float ? 3 ? ?"],
        ["y float ? 1 ? ?"],
        w=kernel(1, 3, 3, 3),
        none=np.zeros(0, np.float32),
        scales=np.array([1, 1, 2, 2], np.float32),
    ),
    "nothing that asks for more": model([node("Identity", "x", "y")], ["x float ? 3 ? ?"], ["y float ? 3 ? ?"]),
}
EXPECTED = {
    "a size that a table fixes": (1, 1, 224, 224),
    "halved and doubled again": (1, 3, 64, 64),
    "nothing that asks for more": (1, 3, 4, 4),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_lengths_grow_until_every_window_fits(name: str) -> None:
    x = taken(WINDOWS[name])["x"]
    assert len(x) == 1 and x.shape == EXPECTED.get(name, x.shape)


def test_a_state_beside_a_signal_has_its_batch_anywhere() -> None:
    nodes = [
        node("Unsqueeze", "x one", "u"),
        node("Conv", "u w", "c", strides=[8]),
        node("ReduceMean", "c", "m", keepdims=0),
        node("Add", "h m", "y"),
        node("Squeeze", "h zero", "s"),
        node("Concat", "s x", "z", axis=1),
    ]
    weights: dict[str, Any] = {"w": kernel(1, 1, 20), "one": np.array([1]), "zero": np.array([0])}
    made = taken(model(nodes, ["x float ? ?", "h float 1 ? 3"], ["y float 1 ? 3", "z float ? ?"], **weights))
    assert made["h"].shape == (1, 1, 3)
    assert made["x"].shape[0] == 1 and made["x"].shape[1] >= 20


def test_a_graph_that_no_length_fits_gives_the_first_lengths() -> None:
    nodes = [node("Conv", "x w", "c"), node("MatMul", "c t", "y")]
    proto = model(nodes, ["x float batch 1 n"], ["y float batch 1 2"], w=kernel(1, 1, 3), t=kernel(5, 2))
    assert kvviz.inputs(kvviz.load(proto))["x"].shape == (1, 1, 4)


# -- dimensions -------------------------------------------------------------------------------------------------------


def test_dimensions_are_told_by_name_and_by_place() -> None:
    proto = model(
        [node("MatMul", "x w", "y"), node("Identity", "z", "u")],
        ["x float n n", "z float n ?"],
        ["y float ? 4", "u float ? ?"],
        w=np.ones((3, 4), np.float32),
    )
    shapes = {name: array.shape for name, array in taken(proto, {"n": 3, "z.1": 5}).items()}
    assert shapes == {"x": (3, 3), "z": (3, 5)}
    # one name for two lengths: a place counts for itself
    shapes = {name: array.shape for name, array in taken(proto, {"x.0": 2, "x.1": 3, "z.1": 5}).items()}
    assert shapes == {"x": (2, 3), "z": (2, 5)}


# -- logits without a length ------------------------------------------------------------------------------------------


def with_logits(shape: str) -> onnx.ModelProto:
    """The growing decoder with its logits in another shape."""
    proto = onnx.ModelProto.FromString(small("concat").proto.SerializeToString())
    proto.graph.node[-1].output[0] = "all"
    last = [node("Gather", "all end", "logits", axis=1)]
    flat = [node("Reshape", "all rows", "logits")]
    one = [node("Gather", "all end", "final", axis=1), node("Gather", "final begin", "logits")]
    proto.graph.node.extend({"last": last, "flat": flat, "one": one}[shape])
    for name, array in {"end": np.int64(-1), "rows": np.array([-1, 24]), "begin": np.int64(0)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    dims = {"last": ["batch", 24], "flat": ["any", 24], "one": [24]}[shape]
    proto.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("logits", 1, dims))
    return proto


@pytest.mark.parametrize("shape", ["last", "flat", "one"])
def test_a_decode_reads_logits_without_a_length(shape: str) -> None:
    graph, usual = kvviz.load(with_logits(shape)), kvviz.load(small("concat").proto)
    for prompt in ([3, 1, 4], [[3, 1, 4], [1, 5, 9]]) if shape != "one" else ([3, 1, 4],):
        expected, trace = (kvviz.decode(one, prompt, 6) for one in (usual, graph))
        assert trace.batch_tokens == expected.batch_tokens
        for got, wanted in zip(trace.logits, expected.logits):
            np.testing.assert_array_equal(got, wanted)


def test_logits_that_tell_no_next_token_are_one_clear_error() -> None:
    with pytest.raises(InputError, match=r"logits of shape \[24\] do not tell the next tokens of 2 sequences"):
        kvviz.decode(kvviz.load(with_logits("one")), [[3, 1, 4], [1, 5, 9]], 6)
