"""Loops on a device, each in two ways: every result to the host and back, or handles passed on.

The four are those of `tt-mlir issue 671 <https://github.com/tenstorrent/tt-mlir/issues/671>`__: batches, programs that
feed each other, training, and double buffering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvviz.device import Device
from kvviz.graph.model import Graph
from kvviz.lessons.small_graphs import small_graph

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

TTNN = """
#dram = #ttnn.buffer_type<dram>
#l1 = #ttnn.buffer_type<l1>
#square = #ttnn.ttnn_layout<(d0, d1) -> (d0, d1), <1x1>, memref<2x2x!ttcore.tile<32x32, bf16>, #dram>, <interleaved>>
#near = #ttnn.ttnn_layout<(d0, d1) -> (d0, d1), <1x2>, memref<2x1x!ttcore.tile<32x32, bf16>, #l1>, <width_sharded>>
func.func @forward(%arg0: tensor<64x64xbf16, #square>, %arg1: tensor<64x64xbf16, #square>)
    -> tensor<64x64xbf16, #square> {
  %0 = "ttnn.matmul"(%arg0, %arg1)
    : (tensor<64x64xbf16, #square>, tensor<64x64xbf16, #square>) -> tensor<64x64xbf16, #square>
  %1 = "ttnn.to_memory_config"(%0) : (tensor<64x64xbf16, #square>) -> tensor<64x64xbf16, #near>
  %2 = "ttnn.gelu"(%1) : (tensor<64x64xbf16, #near>) -> tensor<64x64xbf16, #near>
  "ttnn.deallocate"(%1) <{force = false}> : (tensor<64x64xbf16, #near>) -> ()
  %3 = "ttnn.add"(%arg0, %arg1)
    : (tensor<64x64xbf16, #square>, tensor<64x64xbf16, #square>) -> tensor<64x64xbf16, #square>
  "ttnn.deallocate"(%0) <{force = false}> : (tensor<64x64xbf16, #square>) -> ()
  return %3 : tensor<64x64xbf16, #square>
}
"""


@dataclass(frozen=True, slots=True)
class Loop:
    """What a loop gave.

    Attributes
    ----------
    device : Device
        Closed.
    results : list
        Of each round: a token, or a loss.
    link : list of int
        Bytes that each round sent over the link between host and device.
    left : list of ndarray
        What was learnt, after training.
    """

    device: Device
    results: list[Any]
    link: list[int]
    left: Sequence[np.ndarray] = ()


def program(device: Device, text: str, name: str) -> Any:
    """A program of a small graph in ONNX text."""
    return device.program(small_graph(text), name=name)


def with_layer(**named: Any) -> tuple[Device, Any]:
    """A device, which ``named`` describes, and its program of one layer, `LAYER`."""
    device = Device(**named)
    return device, program(device, LAYER, "layer")


def rounds(x: np.ndarray, w: np.ndarray, count: int) -> tuple[Device, np.ndarray]:
    """The naive loop over a layer: everything goes up before a submit, and comes down after it."""
    device, layer = with_layer()
    for _ in range(count):
        out = device.submit(layer, {"x": device.to_device(x, name="x"), "w": device.to_device(w, name="w")})
        x = device.to_host(out["y"])
        device.deallocate(out["y"])
    device.close()
    return device, x


def over_host(device: Device, handle: Any, name: str) -> Any:
    """A tensor that goes to the host and comes back, as in a loop that thinks in arrays."""
    array = device.to_host(handle)
    device.deallocate(handle)
    return device.to_device(array, name=name)


def free(device: Device, handles: Iterable[Any]) -> None:
    """Let go of handles, retained or not."""
    for handle in handles:
        handle.retain = False
        device.deallocate(handle)


def decode(story: Graph, prompt: Sequence[int], stitched: bool, new: int = 6) -> Loop:
    """Decode with static caches; stitched, caches and positions stay on the device."""
    device = Device()
    model, advance = device.program(story, name="decode"), program(device, ADVANCE, "advance")
    caches = {
        value.name: device.to_device(np.zeros((1, *(value.shape or ())[1:]), np.float32), name=value.name)
        for value in story.inputs
        if "cache" in value.name
    }
    ids, place, tokens, link = list(prompt), 0, [], []
    for step in range(new):
        before, until = device.host_bytes, place + len(ids)
        if step < 2 or not stitched:  # the prompt, and where it ends; after that the device counts on
            told = {"position_ids": [range(place, until)], "write_indices": [place], "nonpad_kv_seqlen": [until]}
            controls = {name: device.to_device(np.array(value), name=name) for name, value in told.items()}
        for handle in controls.values():
            handle.retain = True
        given = device.to_device(np.array([ids]), name="input_ids")
        out = device.submit(model, {"input_ids": given, **controls, **caches})
        tokens.append(int(device.to_host(out["logits"])[0, -1].argmax()))
        device.deallocate(out["logits"])
        caches = {name: out[f"updated_{name}"] for name in caches}
        for handle in controls.values():
            handle.retain = False
        if stitched and 0 < step < new - 1:
            controls = dict(zip(controls, device.submit(advance, controls).values(), strict=True))
        else:
            free(device, controls.values())
        if not stitched:
            caches = {name: over_host(device, handle, name) for name, handle in caches.items()}
        ids, place = tokens[-1:], until
        link.append(device.host_bytes - before)
    free(device, caches.values())
    device.close()
    return Loop(device, tokens, link)


def transcribe(encoder: Graph, decoder: Graph, sound: np.ndarray, stitched: bool, new: int = 5) -> Loop:
    """A model for speech: the encoder runs once, and every step of the decoder reads its hidden states."""
    device = Device()
    listen, write = device.program(encoder, name="encoder"), device.program(decoder, name="decoder")
    hidden = device.submit(listen, {"input_features": device.to_device(sound, name="sound")})["last_hidden_state"]
    empty = np.zeros((1, 4, 0, 8), np.float32)
    caches = {v.name: device.to_device(empty, name=v.name) for v in decoder.inputs if v.name.startswith("past")}
    token, tokens, link = 1, [], []
    for step in range(new):
        before = device.host_bytes
        if not stitched:
            hidden = over_host(device, hidden, "hidden states")
        hidden.retain = True
        told = {"input_ids": [[token]], "cache_position": [step], "use_cache_branch": [step > 0]}
        controls = {name: device.to_device(np.array(value), name=name) for name, value in told.items()}
        out = device.submit(write, {**controls, **caches, "encoder_hidden_states": hidden})
        token = int(device.to_host(out["logits"])[0, -1].argmax())
        device.deallocate(out["logits"])
        hidden.retain = stitched
        for name in caches:
            made = out[name.replace("past_key_values", "present")]
            if step and ".encoder." in name:  # keys of the sound do not change: they are retained, this is empty
                device.deallocate(made)
                continue
            caches[name] = made if stitched else over_host(device, made, name)
            caches[name].retain = ".encoder." in name
        tokens.append(token)
        link.append(device.host_bytes - before)
    free(device, [hidden, *caches.values()])
    device.close()
    return Loop(device, tokens, link)


def training_data() -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """A batch of 64 samples that two layers made, and weights to start from."""
    normal = np.random.default_rng(2).standard_normal
    data = normal((64, 8), np.float32)
    target = np.maximum(data @ normal((8, 16), np.float32), 0) @ normal((16, 2), np.float32) / 16
    start = [normal(shape, np.float32) / 4 for shape in ((8, 16), (16, 2))]
    return {"x": data, "t": target}, start


def train(batch: Mapping[str, np.ndarray], start: Sequence[np.ndarray], stitched: bool, epochs: int = 30) -> Loop:
    """Gradient descent on two layers: `TRAIN` works out a loss, its gradients and new weights."""
    device = Device()
    step = program(device, TRAIN, "train")
    given = {name: device.to_device(array, name=name) for name, array in batch.items()}
    for handle in given.values():
        handle.retain = True
    names = ("w1", "w2")
    weights = [device.to_device(array, name=name) for array, name in zip(start, names, strict=True)]
    losses, link = [], []
    for _ in range(epochs):
        before = device.host_bytes
        out = device.submit(step, {"w1": weights[0], "w2": weights[1], **given})
        losses.append(float(device.to_host(out["loss"])))
        device.deallocate(out["loss"])
        weights = [out["w1_next"], out["w2_next"]]
        if not stitched:
            weights = [over_host(device, handle, name) for handle, name in zip(weights, names, strict=True)]
        link.append(device.host_bytes - before)
    learnt = [device.to_host(handle) for handle in weights]
    free(device, [*given.values(), *weights])
    device.close()
    return Loop(device, losses, link, learnt)


def buffered(values: np.ndarray, double: bool) -> tuple[Device, float, float]:
    """Rounds of three products; with a second buffer the next input goes up while a program runs.

    Returns
    -------
    Device
    float
        When the rounds began, in simulated microseconds.
    float
        How long they took.
    """
    device = Device()
    chain = program(device, CHAIN, "chain")
    weights = device.to_device(values[-1], name="w")
    weights.retain = True
    handle, begun = device.to_device(values[0], name="x"), device.time
    for following in [*values[1:-1], None]:
        y = device.submit(chain, {"x": handle, "w": weights})["y"]
        if not double:
            device.wait(y)
        if following is not None:
            handle = device.to_device(following, name="x")
        device.wait(y)
        device.deallocate(y)
    took = device.time - begun
    free(device, [weights])
    device.close()
    return device, begun, took


def lanes(devices: Mapping[str, tuple[Device, float]]) -> Any:
    """Transfers and submits of closed devices as bars over simulated time, a pair of lanes for each device.

    Parameters
    ----------
    devices : mapping of str to (Device, float)
        By title; each with the simulated microseconds at which the picture begins.

    Returns
    -------
    matplotlib Figure
    """
    from matplotlib import pyplot as plt

    high = 0.4 + 1.1 * len(devices)
    figure, axes = plt.subplots(len(devices), 1, figsize=(8, high), sharex=True, squeeze=False, layout="constrained")
    for ax, (title, (device, begun)) in zip(axes[:, 0], devices.items()):
        times = device.trace.log.declared.times
        for step in device.trace.steps:
            when = times.get(step.index)
            if when is not None and step.op_type in ("transfer", "submit") and when.end > begun:
                row, colour = (0, "#2a6f97") if step.op_type == "transfer" else (1, "#d08c2e")
                span = (when.start - begun, when.end - when.start)
                ax.broken_barh([span], (row - 0.35, 0.7), color=colour, ec="white")
        ax.set(yticks=[0, 1], yticklabels=["link", "queue 0"])
        ax.set_title(title, loc="left", fontsize=9)
    axes[-1, 0].set_xlabel("simulated microseconds")
    return figure


def draw_link(loops: Mapping[tuple[str, str], int], ax: Any) -> None:
    """Bytes over the link, by loop and ``"naive"`` or ``"stitched"``, on a logarithmic scale."""
    names = ["layer", "decode", "speech", "training"]
    for shift, kind, colour in ((-0.2, "naive", "#b4503c"), (0.2, "stitched", "#2a6f97")):
        counts = [loops[name, kind] for name in names]
        bars = ax.barh(np.arange(4) + shift, counts, 0.36, color=colour, label=kind)
        ax.bar_label(bars, [f"{count:,} B" for count in counts], padding=3, fontsize=8)
    ax.set(xscale="log", xlim=(1, 3e6), yticks=range(4), yticklabels=names)
    ax.set_xlabel("bytes over the link for a round, a token or an epoch")
    ax.invert_yaxis()
    ax.legend(loc="lower right", fontsize=8)
