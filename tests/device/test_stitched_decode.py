"""Programs that feed each other on the device: a decode loop, an encoder and its decoder, a training loop, overlap."""

from typing import Any

import numpy as np
from onnx import parser

import kvviz
from kvviz.device import Device
from tests.device.programs import codes, graph, numbers
from tests.graph.build import MODELS, model, node

WHISPER = MODELS / "o03_optimum1_merged_whisper"
PROMPT, NEW = [5, 17, 33, 9], 6


def story(form: str) -> Any:
    return kvviz.load(MODELS / "storyteller" / form / "model.onnx")


def of_one_op(device: Device, op: str, first: str, **attributes: Any) -> Any:
    """A program over int64: a position that goes on, a mask that grows."""
    proto = model([node(op, "x one", "next", **attributes)], [f"x int64 {first}", "one int64 1 1"], ["next int64 ? ?"])
    return device.program(kvviz.load(proto))


def test_of_a_decode_the_token_ids_and_the_logits_alone_go_over_the_link() -> None:
    device, decoder = Device(), story("concat")
    program = device.program(decoder, name="decode")
    step, grow = of_one_op(device, "Add", "1 1"), of_one_op(device, "Concat", "1 ?", axis=1)
    one = device.to_device(np.ones((1, 1), np.int64))
    one.retain = True
    rows = np.arange(len(PROMPT))[None]
    mask, position = device.to_device(np.ones_like(rows)), device.to_device(rows)
    pasts = [value.name for value in decoder.inputs if "past" in value.name]
    caches = {name: device.to_device(np.zeros((1, 2, 0, 16), np.float32)) for name in pasts}
    ids, tokens, sent = PROMPT, [], []
    for number in range(NEW):
        before = device.host_bytes
        mask.retain = position.retain = True
        given = {"input_ids": device.to_device(np.array([ids])), "attention_mask": mask, "position_ids": position}
        outputs = device.submit(program, {**given, **caches})
        mask.retain = position.retain = False
        tokens.append(int(device.to_host(outputs["logits"])[0, -1].argmax()))
        caches = {name: outputs[name.replace("past_key_values", "present")] for name in pasts}
        ids = tokens[-1:]
        mask = device.submit(grow, {"x": mask, "one": one})["next"]
        # After the prefill the host says once where it is.
        first = device.to_device(np.array([[len(PROMPT)]])) if not number else None
        position = first or device.submit(step, {"x": position, "one": one})["next"]
        sent.append(device.host_bytes - before)
    assert tokens == kvviz.decode(decoder, PROMPT, max_new_tokens=NEW).tokens
    assert sent[1:] == [8 + 128 * 4] * (NEW - 1)


def test_a_cache_that_is_scattered_into_stays_where_it_is() -> None:
    device, decoder = Device(), story("tensor_scatter")
    program = device.program(decoder)
    pasts = [value for value in decoder.inputs if "cache" in value.name]
    state = {value.name: device.to_device(np.zeros((1, *value.shape[1:]), np.float32)) for value in pasts}
    ids, place, tokens = PROMPT, 0, []
    for _ in range(NEW):
        until = place + len(ids)
        controls = {"input_ids": [ids], "position_ids": [range(place, until)]}
        controls |= {"write_indices": [place], "nonpad_kv_seqlen": [until]}
        given = {name: device.to_device(np.array(value, np.int64), name=name) for name, value in controls.items()}
        outputs = device.submit(program, {**given, **state})
        state = {name: outputs[f"updated_{name}"] for name in state}
        tokens.append(int(device.to_host(outputs["logits"])[0, -1].argmax()))
        ids, place = tokens[-1:], until
    assert tokens == kvviz.decode(decoder, PROMPT, max_new_tokens=NEW).tokens
    scatters = [step for step in device.trace.steps if step.op_type == "TensorScatter"]
    assert len(scatters) == 6 * NEW and {step.outs[0].how for step in scatters} == {"in place"}
    assert len({step.outs[0].storage for step in scatters}) == 6
    assert not [hazard for hazard in kvviz.hazards(device.trace) if hazard.broken]


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


# A step of a net of two layers; its gradients are those of half of the loss.
TRAIN = """<ir_version: 10, opset_import: ["" : 21]>
train (float[16,4] x, float[16,2] t, float[4,8] w1, float[8,2] w2)
=> (float[4,8] w1_next, float[8,2] w2_next, float loss)
<float rate = {0.01}> {
    a = MatMul(x, w1)  h = Relu(a)  y = MatMul(h, w2)
    e = Sub(y, t)  squares = Mul(e, e)  loss = ReduceSum <keepdims = 0> (squares)
    ht = Transpose(h)  g2 = MatMul(ht, e)
    w2t = Transpose(w2)  back = MatMul(e, w2t)  on = Sign(h)  ga = Mul(back, on)
    xt = Transpose(x)  g1 = MatMul(xt, ga)
    d1 = Mul(g1, rate)  d2 = Mul(g2, rate)  w1_next = Sub(w1, d1)  w2_next = Sub(w2, d2)
}"""


def test_weights_are_trained_where_they_are_and_only_their_loss_comes_to_the_host() -> None:
    # given: one batch and both weights on the device; the batch is retained, the weights are not
    net = kvviz.load(parser.parse_model(TRAIN))
    expected = {"w1": numbers((4, 8), 2) / 2, "w2": numbers((8, 2), 3) / 2}
    x = numbers((16, 4), 1)
    given = {"x": x, "t": np.maximum(x @ numbers((4, 8), 4), 0) @ numbers((8, 2), 5) / 4}
    device = Device()
    step = device.program(net, name="train")
    batch = {name: device.to_device(array) for name, array in given.items()}
    for handle in batch.values():
        handle.retain = True
    held = {name: device.to_device(array) for name, array in expected.items()}
    before, losses = device.host_bytes, []
    # when
    for _ in range(12):
        made = device.submit(step, {**held, **batch})
        held = {name: made[f"{name}_next"] for name in held}
        losses.append(float(device.to_host(made["loss"])))
        device.deallocate(made["loss"])
        outputs = kvviz.run(net, {**given, **expected}).outputs
        expected = {name: outputs[f"{name}_next"] for name in expected}
    # then
    assert device.host_bytes - before == 12 * 4
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 2
    trace = device.trace
    for name, handle in held.items():
        assert np.allclose(device.to_host(handle), expected[name], atol=1e-5)
        updates = [s.outs[0] for s in trace.steps if s.outputs == (f"{name}_next",) and s.op_type == "Sub"]
        assert len(updates) == 12 and {out.how for out in updates} == {"in place"}
        assert len({out.storage for out in updates}) == 1
    for handle in (*held.values(), *batch.values()):
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
