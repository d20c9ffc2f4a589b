"""Loops on a device: what they give is what arrays give, and nothing is left behind."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import kvviz

ROOT = Path(__file__).resolve().parents[2]
STORY = ROOT / "assets" / "models" / "storyteller" / "tensor_scatter" / "model.onnx"
device_loops = SimpleNamespace(**runpy.run_path(str(ROOT / "notebooks" / "device_loops.py")))


@pytest.mark.parametrize("stitched", [False, True])
def test_a_decode_tells_the_tokens_of_the_graph_and_frees_all(stitched: bool) -> None:
    graph = kvviz.load(STORY)
    told = device_loops.decode(graph, [5, 17, 33, 9], stitched, new=4)
    assert told.results == kvviz.decode(graph, [5, 17, 33, 9], 4, progress=False).tokens
    assert not any(told.device.live_bytes.values())
    # stitched: a token id up, the logits down
    assert (told.link[-1] == 8 + 128 * 4) == stitched


@pytest.mark.parametrize("stitched", [False, True])
def test_training_on_a_device_learns_what_numpy_learns(stitched: bool) -> None:
    batch, start = device_loops.training_data()
    told = device_loops.train(batch, start, stitched, epochs=10)
    w1, w2 = start.values()
    for _ in range(10):
        hidden = np.maximum(batch["x"] @ w1, 0)
        error = hidden @ w2 - batch["t"]
        w1, w2 = w1 - 0.002 * batch["x"].T @ (error @ w2.T * (hidden > 0)), w2 - 0.002 * hidden.T @ error
    for mine, theirs in zip(told.weights, (w1, w2), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)
    assert told.link[-1] == 4 + (0 if stitched else 2 * (w1.nbytes + w2.nbytes))


def test_a_second_buffer_hides_transfers_behind_programs() -> None:
    values = np.random.default_rng(0).standard_normal((5, 256, 256), np.float32)
    (_, _, one), (_, _, two) = (device_loops.buffered(values, double) for double in (False, True))
    assert two < one


def test_a_naive_round_sends_both_inputs_up_and_the_result_down() -> None:
    x, w = (np.random.default_rng(seed).standard_normal((64, 64), np.float32) / 8 for seed in range(2))
    device, last = device_loops.rounds(x, w, 3)
    assert device.host_bytes == 3 * 3 * 16384 and sum(device.live_bytes.values()) == 0
    assert np.allclose(last, np.maximum(np.maximum(np.maximum(x @ w, 0) @ w, 0) @ w, 0), atol=1e-5)
