"""Loops on a device, each in two ways: every result to the host and back, or handles passed on ("stitched").

The four are those of `tt-mlir issue 671 <https://github.com/tenstorrent/tt-mlir/issues/671>`__: batches, programs that
feed each other, training, and double buffering. A tensor is freed with its last handle. Lesson 12 is about them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvviz.device import Device
from kvviz.graph.model import Graph
from kvviz.lessons.legal_orders import small_graph

LAYER = "layer (float[64,64] x, float[64,64] w) => (float[64,64] y) { h = MatMul(x, w)  y = Relu(h) }"
ADVANCE = """advance (int64[1,1] position_ids, int64[1] write_indices, int64[1] nonpad_kv_seqlen)
    => (int64[1,1] p, int64[1] w, int64[1] n) <int64 one = {1}>
    { p = Add(position_ids, one)  w = Add(write_indices, one)  n = Add(nonpad_kv_seqlen, one) }"""
TRAIN = """train (float[64,8] x, float[64,2] t, float[8,16] w1, float[16,2] w2)
    => (float[8,16] w1_next, float[16,2] w2_next, float loss) <float rate = {0.002}> {
    a = MatMul(x, w1)  h = Relu(a)  y = MatMul(h, w2)  e = Sub(y, t)
    squares = Mul(e, e)  loss = ReduceSum <keepdims = 0> (squares)
    ht = Transpose(h)  g2 = MatMul(ht, e)
    w2t = Transpose(w2)  back = MatMul(e, w2t)  on = Sign(h)  ga = Mul(back, on)
    xt = Transpose(x)  g1 = MatMul(xt, ga)
    d1 = Mul(g1, rate)  w1_next = Sub(w1, d1)
    d2 = Mul(g2, rate)  w2_next = Sub(w2, d2)
}"""
CHAIN = """chain (float[256,256] x, float[256,256] w) => (float[256,256] y)
    { a = MatMul(x, w)  b = MatMul(a, w)  y = MatMul(b, w) }"""


class Loop(NamedTuple):
    """The device of a loop, a token or a loss of each round, and bytes that each round sent over the link."""

    device: Device
    results: list[Any]
    link: list[int]
    weights: Sequence[np.ndarray] = ()  # after training


def program(device: Device, text: str, name: str) -> Any:
    """A program of a small graph in ONNX text."""
    return device.program(small_graph(text), name=name)


def with_layer(**named: Any) -> tuple[Device, Any]:
    """A device, which ``named`` describes, and its program of one layer, `LAYER`."""
    device = Device(**named)
    return device, program(device, LAYER, "layer")


def upload(device: Device, arrays: Mapping[str, Any], retain: bool = False) -> dict[str, Any]:
    """Send arrays to the device; with ``retain`` no submit frees them."""
    handles = {name: device.to_device(np.asarray(array), name=name) for name, array in arrays.items()}
    for handle in handles.values():
        handle.retain = retain
    return handles


def over_host(device: Device, handles: Mapping[str, Any]) -> dict[str, Any]:
    """Take tensors to the host and back, as a loop over arrays does."""
    return upload(device, {name: device.to_host(handle) for name, handle in handles.items()})


def rounds(x: np.ndarray, w: np.ndarray, count: int) -> tuple[Device, np.ndarray]:
    """The naive loop over a layer: everything goes up before a submit, and comes down after it."""
    device, layer = with_layer()
    for _ in range(count):
        out = device.submit(layer, upload(device, {"x": x, "w": w}))
        x = device.to_host(out.pop("y"))
    return device, x


def decode(story: Graph, prompt: Sequence[int], stitched: bool, new: int = 6) -> Loop:
    """Decode with static caches; stitched, caches and positions stay on the device."""
    device, tokens, link = Device(), [], []
    model, advance = device.program(story, name="decode"), program(device, ADVANCE, "advance")
    shapes = {value.name: (1, *(value.shape or ())[1:]) for value in story.inputs if "cache" in value.name}
    caches = upload(device, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    ids, place = list(prompt), 0
    for step in range(new):
        before, until = device.host_bytes, place + len(ids)
        if step < 2 or not stitched:  # the prompt, and where it ends; after that the device counts on
            counts = {"position_ids": [range(place, until)], "write_indices": [place], "nonpad_kv_seqlen": [until]}
            controls = upload(device, counts, retain=stitched)
        out = device.submit(model, {**upload(device, {"input_ids": [ids]}), **controls, **caches})
        tokens.append(int(device.to_host(out.pop("logits"))[0, -1].argmax()))
        caches = {name: out.pop(f"updated_{name}") for name in caches}
        if not stitched:
            caches = over_host(device, caches)
        elif step:
            moved = device.submit(advance, controls)
            controls = dict(zip(controls, moved.values(), strict=True))
            for handle in controls.values():
                handle.retain = True
        ids, place = tokens[-1:], until
        link.append(device.host_bytes - before)
    return Loop(device, tokens, link)


def transcribe(encoder: Graph, decoder: Graph, sound: np.ndarray, stitched: bool, new: int = 5) -> Loop:
    """A model for speech: the encoder runs once, and every step of the decoder reads its hidden states."""
    device, tokens, link = Device(), [1], []
    listen, write = device.program(encoder, name="encoder"), device.program(decoder, name="decoder")
    out = device.submit(listen, upload(device, {"input_features": sound}))
    hidden = {"encoder_hidden_states": out.pop("last_hidden_state")}
    empty = np.zeros((1, 4, 0, 8), np.float32)
    caches = upload(device, {v.name: empty for v in decoder.inputs if v.name.startswith("past")})
    for step in range(new):
        before = device.host_bytes
        if not stitched:
            hidden = over_host(device, hidden)
        hidden["encoder_hidden_states"].retain = True
        counts = {"input_ids": [tokens[-1:]], "cache_position": [step], "use_cache_branch": [step > 0]}
        out = device.submit(write, {**upload(device, counts), **caches, **hidden})
        tokens.append(int(device.to_host(out.pop("logits"))[0, -1].argmax()))
        made = {name: out.pop(name.replace("past_key_values", "present")) for name in caches}
        # Keys of the sound do not change: they are retained from the first step on, and later ones come out empty.
        made = {name: handle for name, handle in made.items() if not step or ".encoder." not in name}
        caches |= made if stitched else over_host(device, made)
        for name, handle in caches.items():
            handle.retain = ".encoder." in name
        link.append(device.host_bytes - before)
    return Loop(device, tokens[1:], link)


def training_data() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A batch of 64 samples that two layers made, and weights to start from."""
    normal = np.random.default_rng(2).standard_normal
    data = normal((64, 8), np.float32)
    target = np.maximum(data @ normal((8, 16), np.float32), 0) @ normal((16, 2), np.float32) / 16
    start = {name: normal(shape, np.float32) / 4 for name, shape in (("w1", (8, 16)), ("w2", (16, 2)))}
    return {"x": data, "t": target}, start


def train(batch: Mapping[str, np.ndarray], start: Mapping[str, np.ndarray], stitched: bool, epochs: int = 30) -> Loop:
    """Gradient descent on two layers: `TRAIN` works out a loss, its gradients and new weights."""
    device, losses, link = Device(), [], []
    step = program(device, TRAIN, "train")
    given, weights = upload(device, batch, retain=True), upload(device, start)
    for _ in range(epochs):
        before = device.host_bytes
        out = device.submit(step, {**weights, **given})
        losses.append(float(device.to_host(out.pop("loss"))))
        weights = {name: out.pop(f"{name}_next") for name in start}
        if not stitched:
            weights = over_host(device, weights)
        link.append(device.host_bytes - before)
    return Loop(device, losses, link, [device.to_host(handle) for handle in weights.values()])


def buffered(values: np.ndarray, double: bool) -> tuple[Device, float, float]:
    """Rounds of three products; with a second buffer the next input goes up while a program runs.

    Gives the device, when the rounds began and how long they took, in simulated microseconds.
    """
    device = Device()
    chain, weights = program(device, CHAIN, "chain"), upload(device, {"w": values[-1]}, retain=True)
    x, begun = upload(device, {"x": values[0]}), device.time
    for following in [*values[1:-1], None]:
        y = device.submit(chain, {**x, **weights})["y"]
        if not double:
            device.wait(y)
        if following is not None:
            x = upload(device, {"x": following})
        device.wait(y)
    return device, begun, device.time - begun


def lanes(devices: Mapping[str, tuple[Device, float]]) -> Any:
    """Transfers and submits of devices as bars over simulated time: by title a device, and when its picture begins."""
    from matplotlib import pyplot as plt

    high = 0.4 + 1.1 * len(devices)
    figure, axes = plt.subplots(len(devices), 1, figsize=(8, high), sharex=True, squeeze=False, layout="constrained")
    for ax, (title, (device, begun)) in zip(axes[:, 0], devices.items()):
        times = device.trace.log.declared.times
        for step in device.trace.steps:
            when = times.get(step.index)
            if when is not None and step.op_type in ("transfer", "submit") and when.end > begun:
                row = int(step.op_type == "submit")
                look = ({"fc": "#2a6f97"}, {"fc": "#d08c2e", "hatch": "//"})[row]
                ax.broken_barh([(when.start - begun, when.end - when.start)], (row - 0.35, 0.7), ec="white", **look)
        ax.set(yticks=[0, 1], yticklabels=["link", "queue 0"])
        ax.set_title(title, loc="left", fontsize=9)
    axes[-1, 0].set_xlabel("simulated microseconds")
    return figure
