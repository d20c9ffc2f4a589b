"""The small decoders in onnxruntime: one run, and a token loop; and a decode that is watched."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvviz.decode.token_loop import DecodeSession
from tests.decode.small import HEADS, SIZE, Feeds, Small
from tests.ort_session import session_of


def told(one: Small, prompt: Sequence[int], count: int) -> tuple[list[int], list[np.ndarray], Feeds]:
    """Tokens, logits and the caches at the end, by onnxruntime."""
    session = session_of(one.proto)
    names = [output.name for output in session.get_outputs()]
    caches = {name: np.zeros((1, HEADS, one.rows, SIZE), np.float32) for name in one.caches}
    tokens, logits, past = list(prompt), [], 0
    fresh = np.array([prompt], np.int64)
    for _ in range(count):
        feeds = {"input_ids": fresh, **one.controls(past, fresh.shape[1]), **caches}
        outputs = dict(zip(names, session.run(None, feeds), strict=True))
        past += fresh.shape[1]
        logits.append(outputs["logits"][:, -1])
        tokens.append(int(logits[-1].argmax()))
        fresh = np.array([[tokens[-1]]], np.int64)
        caches = {name: outputs[output] for name, output in one.caches.items()}
    return tokens[len(prompt) :], logits, caches


def in_onnxruntime(proto: Any, feeds: Feeds) -> Feeds:
    """Outputs of one run by name."""
    session = session_of(proto)
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))


def assert_close(have: np.ndarray, want: np.ndarray) -> None:
    """Equal but for rounding."""
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)


class Watched(DecodeSession):
    """A decode that keeps what went into each run and what came out."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.fed: list[Feeds] = []
        self.made: list[Feeds] = []
        super().__init__(*args, **options)

    def next_run(self) -> bool:
        more = super().next_run()
        if more:
            self.fed.append({name: np.array(value) for name, value in self.feeds.items()})
        return more

    def ended(self, outputs: dict[str, Any]) -> None:
        self.made.append({name: np.array(value) for name, value in outputs.items()})
        super().ended(outputs)
