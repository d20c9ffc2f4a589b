"""Other uses of stitching: weights that a training loop updates where they are, an encoder that feeds a decoder."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import parser

import kvviz
from kvviz.device import Device
from tests.device.programs import codes, graph, numbers

WHISPER = Path(__file__).parents[2] / "assets" / "models" / "o03_optimum1_merged_whisper"


def test_a_training_loop_updates_its_weights_in_place_and_learns() -> None:
    device, n, rate = Device(), 16, np.array(0.01, np.float32)
    # y = x w; the gradient of the squared error is xᵀ (x w - t)
    nodes = [
        ("MatMul", "x w", "y"),
        ("Sub", "y t", "e"),
        ("Transpose", "x", "xt"),
        ("MatMul", "xt e", "g"),
        ("Mul", "g rate", "step"),
        ("Sub", "w step", "w_next"),
    ]
    step = device.program(graph(nodes, {"w": (4, 2), "x": (n, 4), "t": (n, 2)}, ["w_next"], rate=rate), name="train")
    truth, guess = numbers((4, 2), 1), numbers((4, 2), 2)
    w, expected, errors = device.to_device(guess), guess, []
    for epoch in range(30):
        x = numbers((n, 4), 10 + epoch)
        given = {"x": device.to_device(x), "t": device.to_device(x @ truth)}
        w = device.submit(step, {"w": w, **given})["w_next"]
        expected = expected - x.T @ (x @ expected - x @ truth) * rate
        errors.append(float(np.abs(expected - truth).max()))
    assert np.allclose(device.to_host(w), expected, atol=1e-5) and errors[-1] < errors[0] / 10
    trace = device.trace
    updates = [s.outs[0] for s in trace.steps if s.outputs == ("w_next",) and s.frame]
    assert len({out.storage for out in updates}) == 1 and {out.how for out in updates} == {"in place"}
    device.deallocate(w)
    device.close()
    assert device.warnings == [] and sum(device.live_bytes.values()) == 0


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


class Transcriber:
    """Greedy tokens of the whisper model on a device; ``stitched``: hidden states and caches stay there."""

    def __init__(self, stitched: bool) -> None:
        self.device, self.stitched = Device(), stitched
        encoder, self.graph = (kvviz.load(WHISPER / name) for name in ("encoder.onnx", "model.onnx"))
        self.encoder, self.decoder = self.device.program(encoder), self.device.program(self.graph)
        self.tokens: list[int] = []
        self.per_token: list[int] = []

    def kept(self, handle: Any, name: str) -> Any:
        """A tensor that the next submit reads: as it is, or after a trip over the host."""
        if not self.stitched:
            array = self.device.to_host(handle)
            self.device.deallocate(handle)
            handle = self.device.to_device(array, name=name)
        handle.retain = not name.endswith(("decoder.key", "decoder.value"))
        return handle

    def run(self, sound: np.ndarray, tokens: int) -> None:
        device = self.device
        hidden = device.submit(self.encoder, {"input_features": device.to_device(sound)})["last_hidden_state"]
        hidden = self.kept(hidden, "encoder_hidden_states")
        empty = np.zeros((1, 4, 0, 8), np.float32)
        state = {v.name: device.to_device(empty) for v in self.graph.inputs if v.name.startswith("past")}
        given = 1
        for place in range(tokens):
            before = device.host_bytes
            if not self.stitched and place:
                hidden.retain = False
                hidden = self.kept(hidden, "encoder_hidden_states")
            told = {
                "input_ids": np.array([[given]]),
                "cache_position": np.array([place]),
                "use_cache_branch": np.array([place > 0]),
            }
            controls = {name: device.to_device(value, name=name) for name, value in told.items()}
            outputs = device.submit(self.decoder, {**controls, **state, "encoder_hidden_states": hidden})
            given = int(device.to_host(outputs["logits"])[0, -1].argmax())
            device.deallocate(outputs["logits"])
            for name in state:
                made = outputs[name.replace("past_key_values", "present")]
                # What the encoder's part of a cache is, the first token says; later ones give something empty.
                if place and ".encoder." in name:
                    device.deallocate(made)
                else:
                    state[name] = self.kept(made, name)
            self.tokens.append(given)
            self.per_token.append(device.host_bytes - before)
        for handle in (hidden, *state.values()):
            handle.retain = False
            device.deallocate(handle)
        device.close()


def test_a_transcript_needs_the_host_for_ids_and_logits_alone() -> None:
    # given: the same loop in NumPy arrays
    sound = numbers((1, 8, 40))
    encoder, decoder = (kvviz.load(WHISPER / name) for name in ("encoder.onnx", "model.onnx"))
    hidden = kvviz.run(encoder, {"input_features": sound}).outputs["last_hidden_state"]
    state = {v.name: np.zeros((1, 4, 0, 8), np.float32) for v in decoder.inputs if v.name.startswith("past")}
    expected, given = [], 1
    for place in range(5):
        told = {"input_ids": np.array([[given]]), "cache_position": np.array([place])}
        told |= {"use_cache_branch": np.array([place > 0]), "encoder_hidden_states": hidden}
        outputs = kvviz.run(decoder, {**told, **state}).outputs
        given = int(outputs["logits"][0, -1].argmax())
        expected.append(given)
        made = {name: outputs[name.replace("past_key_values", "present")] for name in state}
        state |= {name: value for name, value in made.items() if value.size}
    # when
    stitched, naive = Transcriber(True), Transcriber(False)
    for loop in (stitched, naive):
        loop.run(sound, 5)
    # then: an id, a position, a flag and 128 logits
    assert stitched.tokens == naive.tokens == expected
    assert stitched.per_token == [8 + 8 + 1 + 128 * 4] * 5
    # Unstitched, two layers' keys and values (4 heads of 8) of each token so far go there and back, and after the
    # first token the hidden states; with it, the keys and values of the encoder's 20 positions.
    row, hidden_bytes = 2 * 2 * 4 * 8 * 4, 20 * 32 * 4
    assert naive.per_token == [
        529 + 2 * row * (place + 1) + 2 * (hidden_bytes if place else 20 * row) for place in range(5)
    ]
    for loop in (stitched, naive):
        assert sum(loop.device.live_bytes.values()) == 0
    assert codes(stitched.device) == [] and set(codes(naive.device)) == {"HOST_ROUND_TRIP"}


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
