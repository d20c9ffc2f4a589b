"""What made-up inputs hold and how long they are: within look-ups, of ones, rising, long enough for windows."""

from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.errors import InputError
from tests.decode.small import small
from tests.engine.graphs import proto_of
from tests.graph.build import model, node, run_in_onnxruntime


def taken(proto: onnx.ModelProto, dims: dict[str, int] | None = None, **given: Any) -> dict[str, Any]:
    """The inputs made for a model, which kvviz and onnxruntime both run on with equal results."""
    loaded = kvviz.load(proto)
    feeds = kvviz.inputs(loaded, dims, given)
    outputs = kvviz.run(loaded, feeds).outputs
    for value, expected in zip(outputs.values(), run_in_onnxruntime(proto, **feeds)):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
    return feeds


# -- numbers that are looked up ---------------------------------------------------------------------------------------

ROWS = "float[3,2] rows = {1, 1, 1, 1, 1, 1}, float[2,3] wide = {1, 1, 1, 1, 1, 1}, float[2] offon = {0, 1}"
LOOK_UPS = {
    "directly": "y = Gather (rows, ids)",
    "on the last axis": "y = Gather <axis = 1> (wide, ids)",
    "cast and reshaped": "c = Cast <to = 6> (ids)  u = Unsqueeze (c, zero)  y = Gather (rows, u)",
    "one more": "more = Add (ids, one)  y = Gather (rows, more)",
    "one less": "less = Sub (ids, one)  same = Add (less, one)  y = Gather (rows, same)",
    "in a branch": """y = If (yes) <then_branch = a () => (float[] t) { t = Gather (rows, ids) },
        else_branch = b () => (float[] e) { e = Gather (rows, ids) }>""",
    "as one of many": "y = OneHot (ids, three, offon)",
}


@pytest.mark.parametrize("how", LOOK_UPS)
def test_numbers_stay_within_what_they_are_looked_up_in(how: str) -> None:
    constants = f"{ROWS}, int64 one = {{1}}, int64[1] zero = {{0}}, int64 three = {{3}}, bool yes = {{1}}"
    proto = proto_of(f"g (int64[length] ids) => (float[] y) <{constants}> {{ {LOOK_UPS[how]} }}")
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


def windowed(inputs: str, body: str, **constants: Any) -> onnx.ModelProto:
    """A model of ``y``; constants are arrays, or the shapes of kernels."""
    proto = proto_of(f"g ({inputs}) => (float[] y) {{ {body} }}")
    for name, value in constants.items():
        array = np.full(value, 0.1, np.float32) if isinstance(value, tuple) else np.array(value)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


SOUND, IMAGE = "float[batch,1,samples] x", "float[?,3,?,?] x"
WINDOWS = {
    "a long kernel": windowed(SOUND, "y = Conv <strides = [5]> (x, w)", w=(2, 1, 40)),
    "halved five times": windowed(
        IMAGE,
        """a = Conv <strides = [8, 8]> (x, w)  b = Conv <strides = [4, 4]> (a, v)
        y = MaxPool <kernel_shape = [3, 3]> (b)""",
        w=(2, 3, 8, 8),
        v=(2, 2, 4, 4),
    ),
    "a size that a table fixes": windowed(
        "float[N,1,H,W] x",
        "a = Conv <strides = [16, 16]> (x, w)  f = Flatten (a)  y = MatMul (f, t)",
        w=(1, 1, 16, 16),
        t=(196, 2),
    ),
    "a reflected edge": windowed(
        SOUND, 'p = Pad <mode = "reflect"> (x, pads)  y = Conv (p, w)', pads=[0, 0, 20, 0, 0, 20], w=(1, 1, 3)
    ),
    "halved and doubled again": windowed(
        IMAGE,
        "c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)  y = Resize (c, , scales)",
        w=(1, 3, 3, 3),
        scales=np.array([1, 1, 2, 2], np.float32),
    ),
    "nothing that asks for more": windowed(IMAGE, "y = Identity (x)"),
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
    body = """u = Unsqueeze (x, one)  c = Conv <strides = [8]> (u, w)  m = ReduceMean <keepdims = 0> (c)
        s = Squeeze (h, zero)  z = Concat <axis = 1> (s, x)  n = ReduceMean <keepdims = 0> (z)
        k = Add (m, n)  y = Add (h, k)"""
    made = taken(windowed("float[?,?] x, float[1,?,3] h", body, w=(1, 1, 20), one=[1], zero=[0]))
    assert made["h"].shape == (1, 1, 3)
    assert made["x"].shape[0] == 1 and made["x"].shape[1] >= 20


def test_a_graph_that_no_length_fits_gives_the_first_lengths() -> None:
    proto = windowed("float[batch,1,n] x", "c = Conv (x, w)  y = MatMul (c, t)", w=(1, 1, 3), t=(5, 2))
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
