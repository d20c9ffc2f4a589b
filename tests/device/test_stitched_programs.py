"""Other uses of stitching: weights that a training loop updates where they are, an encoder that feeds a decoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import kvviz
from kvviz.device import Device, Layout
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


def test_inputs_that_are_double_buffered_hide_the_transfers_behind_the_programs() -> None:
    def took(overlapped: bool) -> float:
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
        return device.time - start

    device = Device()
    transfer = device.cost.of_transfer(256 * 256 * 4)
    assert took(overlapped=False) - took(overlapped=True) > 0.5 * transfer
    assert took(overlapped=True) >= 8 * transfer


def test_a_view_that_is_strided_is_copied_into_where_it_lies() -> None:
    device = Device()
    program = device.program(graph([("Transpose", "x", "y")], {"x": (4, 8)}, ["y"]))
    x = device.to_device(numbers((4, 8)))
    x.retain = True
    y = device.submit(program, {"x": x})["y"]
    new = numbers((8, 4), 1)
    device.memcpy(y, new)
    assert np.array_equal(device.to_host(y), new)
    accesses = next(reversed(device.trace.log.declared.accesses.values()))
    assert [access.region.strides for access in accesses] != []
    assert device.to_layout(y, Layout("l1")).shape == (8, 4)
