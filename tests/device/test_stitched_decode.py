"""Prefill and decode of the storyteller on the device: caches, mask and positions stay there from token to token."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.device import Device, DeviceProgram, Handle
from tests.graph.build import model, node

STORY = Path(__file__).parents[2] / "assets" / "models" / "storyteller"
PROMPT, NEW = [5, 17, 33, 9], 6
CONTROLS = ("position_ids", "cache_position", "attention_mask")


@cache
def story(form: str) -> Any:
    return kvviz.load(STORY / form / "model.onnx")


def small(op: str, inputs: dict[str, Any], **attributes: Any) -> Any:
    """A program of one op over int64: a position that goes on, a mask that grows."""
    values = [f"{name} int64 {' '.join(str(dim or '?') for dim in shape)}" for name, shape in inputs.items()]
    result = f"next int64{' ?' * len(next(iter(inputs.values())))}"
    return kvviz.load(model([node(op, " ".join(inputs), "next", **attributes)], values, [result]), name=f"next by {op}")


def carried(graph: Any) -> dict[str, str]:
    """Output that becomes an input again, by its name."""
    names = [value.name for value in graph.inputs]
    return {name.replace("past_key_values", "present"): name for name in names if name.startswith("past")}


def first_inputs(graph: Any) -> dict[str, np.ndarray]:
    n = len(PROMPT)
    given = {
        "input_ids": np.array([PROMPT], np.int64),
        "attention_mask": np.ones((1, n), np.int64),
        "position_ids": np.arange(n, dtype=np.int64)[None],
        "cache_position": np.arange(n, dtype=np.int64),
    }
    for value in graph.inputs:
        if value.name not in given:
            shape = [1 if isinstance(d, str) and "batch" in d else d if isinstance(d, int) else 0 for d in value.shape]
            given[value.name] = np.zeros(shape, np.float32)
    return {value.name: given[value.name] for value in graph.inputs}


class Loop:
    """A decode loop over a device, as a user writes it; ``stitched``: nothing but ids and logits meets the host."""

    def __init__(self, device: Device, form: str, stitched: bool) -> None:
        self.device, self.graph, self.stitched = device, story(form), stitched
        self.program: DeviceProgram = device.program(self.graph, name="decode")
        shape = [1] if form == "static_scatter_nd" else [1, 1]
        self.position = (1,) * len(shape)
        self.step = device.program(small("Add", {"p": shape, "one": shape}))
        self.grow = device.program(small("Concat", {"mask": [1, None], "one": [1, 1]}, axis=1))
        self.tokens: list[int] = []
        self.per_token: list[int] = []

    def run(self) -> None:
        device = self.device
        state: dict[str, Handle] = {
            name: device.to_device(v, name=name) for name, v in first_inputs(self.graph).items()
        }
        one = device.to_device(np.ones(self.position, np.int64))
        one.retain = True
        controls = [name for name in CONTROLS if name in state]
        for index in range(NEW):
            before = device.host_bytes
            if index:
                ids = np.array([[self.tokens[-1]]], np.int64)
                state["input_ids"] = device.to_device(ids, name="input_ids")
            for name in controls:
                state[name].retain = True
            outputs = device.submit(self.program, state)
            logits = device.to_host(outputs["logits"])
            device.deallocate(outputs["logits"])
            self.tokens.append(int(logits[0, -1].argmax()))
            for output, name in carried(self.graph).items():
                state[name] = outputs[output] if self.stitched else self.over_host(outputs[output], name)
            for name in controls if index < NEW - 1 else ():
                state[name] = self.advance(name, state[name], one, index)
            if index == NEW - 2:
                one.retain = False
                device.deallocate(one)
            self.per_token.append(device.host_bytes - before)
        for handle in state.values():
            if handle.is_allocated:
                handle.retain = False
                device.deallocate(handle)
        device.close()

    def over_host(self, handle: Handle, name: str) -> Handle:
        array = self.device.to_host(handle)
        self.device.deallocate(handle)
        return self.device.to_device(array, name=name)

    def advance(self, name: str, handle: Handle, one: Handle, index: int) -> Handle:
        """The mask with one more column, the position after this one: by programs of one op, on the device."""
        if name == "attention_mask":
            handle.retain = False
            return self.device.submit(self.grow, {"mask": handle, "one": one})["next"]
        handle.retain = False
        if not index:
            self.device.deallocate(handle)
            # After the prefill the host says once where it is.
            return self.device.to_device(np.full(self.position, len(PROMPT)), name=name)
        return self.device.submit(self.step, {"p": handle, "one": one})["next"]


@cache
def ran(form: str, stitched: bool) -> Loop:
    loop = Loop(Device(), form, stitched)
    loop.run()
    return loop


FORMS = pytest.mark.parametrize("form", ["concat", "static_scatter_nd"])


@FORMS
def test_the_tokens_are_those_of_decode(form: str) -> None:
    expected = kvviz.decode(story(form), PROMPT, max_new_tokens=NEW).tokens
    assert ran(form, True).tokens == ran(form, False).tokens == expected


@FORMS
def test_over_the_link_go_the_token_id_and_the_logits_alone(form: str) -> None:
    stitched, naive = ran(form, True), ran(form, False)
    assert stitched.per_token[1:] == [8 + 128 * 4] * (NEW - 1)
    # Unstitched, every cache goes there and back.
    caches = [3 * 2 * 2 * 16 * 4 * rows for rows in range(len(PROMPT) + 1, len(PROMPT) + NEW)]
    if form == "static_scatter_nd":
        caches = [3 * 2 * 2 * 160 * 16 * 4] * (NEW - 1)
    assert naive.per_token[1:] == [520 + 2 * size for size in caches]


def test_a_cache_that_is_scattered_into_stays_where_it_is() -> None:
    graph, device = story("tensor_scatter"), Device()
    program = device.program(graph)
    state = {
        value.name: device.to_device(np.zeros((1, *value.shape[1:]), np.float32), name=value.name)
        for value in graph.inputs
        if "cache" in value.name
    }
    ids, place, tokens = PROMPT, 0, []
    for _ in range(NEW):
        until = place + len(ids)
        controls = {
            "input_ids": [ids],
            "position_ids": [range(place, until)],
            "write_indices": [place],
            "nonpad_kv_seqlen": [until],
        }
        given = {name: device.to_device(np.array(value, np.int64), name=name) for name, value in controls.items()}
        outputs = device.submit(program, {**given, **state})
        state = {name: outputs[f"updated_{name}"] for name in state}
        tokens.append(int(device.to_host(outputs["logits"])[0, -1].argmax()))
        ids, place = tokens[-1:], until
    assert tokens == kvviz.decode(graph, PROMPT, max_new_tokens=NEW).tokens
    scatters = [step for step in device.trace.steps if step.op_type == "TensorScatter"]
    assert len(scatters) == 6 * NEW and {step.outs[0].how for step in scatters} == {"in place"}
    assert len({step.outs[0].storage for step in scatters}) == 6
    assert not [hazard for hazard in kvviz.hazards(device.trace) if hazard.broken]
