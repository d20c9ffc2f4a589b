"""Other uses of stitching: weights that a training loop updates where they are, an encoder that feeds a decoder."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import parser

import kvviz
from kvviz.device import Device
from tests.device.programs import codes, graph, numbers

WHISPER = Path(__file__).parents[2] / "assets" / "models" / "o03_optimum1_merged_whisper"


def test_what_an_encoder_gives_goes_to_the_decoder_without_the_host() -> None:
    encoder, decoder = (kvviz.load(WHISPER / name) for name in ("encoder.onnx", "model.onnx"))
    sound = numbers([d if isinstance(d, int) else 1 for d in encoder.inputs[0].shape or ()])
    hidden = kvviz.run(encoder, {encoder.inputs[0].name: sound}).outputs[encoder.outputs[0].name]
    given = {name: np.array(v) for name, v in kvviz.inputs(decoder, given={"encoder_hidden_states": hidden}).items()}
    expected = kvviz.run(decoder, given).outputs["logits"]
    device = Device()
    first, second = device.program(encoder), device.program(decoder)
    states = device.submit(first, {encoder.inputs[0].name: device.to_device(sound)})[encoder.outputs[0].name]
    others = {name: device.to_device(v, name=name) for name, v in given.items() if name != "encoder_hidden_states"}
    before = device.host_bytes
    outputs = device.submit(second, {**others, "encoder_hidden_states": states})
    assert device.host_bytes == before
    assert np.allclose(device.to_host(outputs["logits"]), expected, atol=1e-5)
    assert codes(device) == []


TRAIN = """<ir_version: 10, opset_import: ["" : 21]>
train (float[16,4] x, float[16,2] t, float[4,8] w1, float[8,2] w2)
=> (float[4,8] w1_next, float[8,2] w2_next, float loss)
<float rate = {0.01}> {
    a = MatMul(x, w1)
    h = Relu(a)
    y = MatMul(h, w2)
    e = Sub(y, t)
    squares = Mul(e, e)
    loss = ReduceSum <keepdims = 0> (squares)
    ht = Transpose(h)
    g2 = MatMul(ht, e)
    w2t = Transpose(w2)
    back = MatMul(e, w2t)
    on = Sign(h)
    ga = Mul(back, on)
    xt = Transpose(x)
    g1 = MatMul(xt, ga)
    d1 = Mul(g1, rate)
    d2 = Mul(g2, rate)
    w1_next = Sub(w1, d1)
    w2_next = Sub(w2, d2)
}"""
"""A step of a net of two layers; its gradients are those of half of the loss."""


def _slopes(weights: list[np.ndarray], x: np.ndarray, t: np.ndarray) -> list[np.ndarray]:
    """Gradients of half of the squared error by central differences, in double precision."""
    w1, w2 = (w.astype(np.float64) for w in weights)
    found = []
    for w in (w1, w2):
        slope = np.zeros_like(w)
        for place in np.ndindex(w.shape):
            sides = []
            for step in (1e-6, -1e-6):
                w[place] += step
                sides.append(0.5 * ((np.maximum(x @ w1, 0) @ w2 - t) ** 2).sum())
                w[place] -= step
            slope[place] = (sides[0] - sides[1]) / 2e-6
        found.append(slope)
    return found


def test_two_layers_learn_on_the_device_and_only_their_loss_comes_to_the_host() -> None:
    # given: one batch and both weights on the device; the batch is retained, the weights are not
    x, weights = numbers((16, 4), 1), [numbers((4, 8), 2) / 2, numbers((8, 2), 3) / 2]
    t = np.maximum(x @ numbers((4, 8), 4), 0) @ numbers((8, 2), 5) / 4
    device = Device()
    step = device.program(kvviz.load(parser.parse_model(TRAIN)), name="train")
    batch = {"x": device.to_device(x), "t": device.to_device(t)}
    for handle in batch.values():
        handle.retain = True
    w1, w2 = map(device.to_device, weights)
    before, losses, expected = device.host_bytes, [], weights
    # when
    for _ in range(12):
        made = device.submit(step, {"w1": w1, "w2": w2, **batch})
        w1, w2 = made["w1_next"], made["w2_next"]
        losses.append(float(device.to_host(made["loss"])))
        device.deallocate(made["loss"])
        expected = [w - 0.01 * slope for w, slope in zip(expected, _slopes(expected, x, t))]
    # then
    assert device.host_bytes - before == 12 * 4
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 2
    for handle, weight in zip((w1, w2), expected):
        assert np.allclose(device.to_host(handle), weight, atol=1e-4)
    trace = device.trace
    for name in ("w1_next", "w2_next"):
        updates = [s.outs[0] for s in trace.steps if s.outputs == (name,) and s.op_type == "Sub"]
        assert len(updates) == 12 and {out.how for out in updates} == {"in place"}
        assert len({out.storage for out in updates}) == 1
    for handle in (w1, w2, *batch.values()):
        handle.retain = False
        device.deallocate(handle)
    device.close()
    assert sum(device.live_bytes.values()) == 0 and "LEAK" not in codes(device)


def test_inputs_that_are_double_buffered_hide_the_transfers_behind_the_programs() -> None:
    def ran(overlapped: bool) -> tuple[float, float]:
        """Simulated time that it took, and how much of it a program ran during a transfer."""
        device = Device()
        nodes = [("MatMul", "x w", "a"), ("MatMul", "a w", "b"), ("MatMul", "b w", "y")]
        program = device.program(graph(nodes, {"x": (256, 256), "w": (256, 256)}, ["y"]))
        w = device.to_device(numbers((256, 256)))
        w.retain = True
        following = device.to_device(numbers((256, 256), 1))
        start = device.time
        for seed in range(8):
            y = device.submit(program, {"x": following, "w": w})["y"]
            if not overlapped:
                device.wait(y)
            following = device.to_device(numbers((256, 256), seed))
            device.wait(y)
            device.deallocate(y)
        times: dict[str, list[Any]] = {kind: [] for kind in ("submit", "transfer")}
        for step in device.trace.steps:
            if step.op_type in times:
                times[step.op_type].append(device.trace.log.declared.times[step.index])
        both = [min(a.end, b.end) - max(a.start, b.start) for a in times["submit"] for b in times["transfer"]]
        return device.time - start, sum(length for length in both if length > 0)

    transfer = Device().cost.of_transfer(256 * 256 * 4)
    (serial, none), (took, hidden) = ran(overlapped=False), ran(overlapped=True)
    assert none == 0 and hidden > 8 * 0.5 * transfer
    # What is hidden is saved, but for the half of a microsecond in which the host hands a submit over.
    assert abs(serial - took - hidden) < 8 and took >= 8 * transfer
