"""Simulated time: what bytes and operations cost, and when the link and the queues are busy."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from kvviz.graph.model import Node

LINK = "host"
"""The lane of transfers between host and device."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs in microseconds: a model with round numbers, not a measurement.

    Attributes
    ----------
    issue : float
        Of one call by the host.
    op : float
        Of starting an op, whatever it does.
    link, dram, l1 : float
        Bytes per microsecond over the link to the host, and out of and into each memory.
    flops : float
        Operations per microsecond.
    """

    issue: float = 0.5
    op: float = 1.0
    link: float = 16_000.0
    dram: float = 250_000.0
    l1: float = 2_000_000.0
    flops: float = 10_000_000.0

    def of_transfer(self, nbytes: int) -> float:
        """Time of a transfer between host and device."""
        return self.op + nbytes / self.link

    def of_op(self, dram: int, l1: int, flops: int) -> float:
        """Time of an op that touches so many bytes of each memory and computes so much: that of the slower part."""
        return self.op + max(dram / self.dram + l1 / self.l1, flops / self.flops)


_PRODUCTS = frozenset({"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "FusedGemm"})


def flops(node: Node, inputs: list[tuple[int, ...] | None], outputs: list[tuple[int, ...] | None]) -> int:
    """Operations of an op: two for each product of a matrix, else one for each output element."""
    made = sum(prod(shape) for shape in outputs if shape is not None)
    if node.op_type in _PRODUCTS and inputs and inputs[0]:
        shape = inputs[0]
        inner = shape[0] if node.attributes.get("transA") else shape[-1]
        return 2 * made * inner
    if node.op_type in ("Conv", "FusedConv") and len(inputs) > 1 and inputs[1]:
        return 2 * made * int(np.prod(inputs[1][1:]))
    return made


class Clock:
    """The host's time, and until when each queue is busy. The link is busy while the host waits for it."""

    def __init__(self, queues: int) -> None:
        self.now = 0.0
        self.queues = [0.0] * queues

    def state(self) -> Any:
        """The state to restore if the next call fails."""
        return self.now, list(self.queues)

    def restore(self, state: Any) -> None:
        self.now, self.queues = state

    def pick(self, ready: float) -> int:
        """The queue on which work that is ready at a time begins first; the first of several."""
        begins = [max(busy, ready, self.now) for busy in self.queues]
        return begins.index(min(begins))

    def begin(self, queue: int, ready: float) -> float:
        return max(self.queues[queue], ready, self.now)

    def run(self, ready: float, took: float) -> tuple[int, float, float]:
        """Put work that is ready at a time on the queue that begins it first; returns that queue, start and end."""
        queue = self.pick(ready)
        start = self.begin(queue, ready)
        self.queues[queue] = start + took
        return queue, start, start + took

    def move(self, ready: float, took: float) -> tuple[float, float]:
        """A transfer over the link, for whose end the host waits; returns its start and end."""
        start = max(self.now, ready)
        self.now = start + took
        return start, self.now
