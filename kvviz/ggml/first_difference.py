"""Two runs of the same nodes in two orders: the first node whose bytes differ, how many, and which pair explains it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvviz.ggml.broken_pairs import BrokenPair
from kvviz.ggml.compute_graph import ComputeGraph
from kvviz.ggml.executor import Executor
from kvviz.ggml.op_effects import effects
from kvviz.ggml.tensor import Tensor
from kvviz.trace.element_types import unit
from kvviz.trace.recording import Trace
from kvviz.trace.regions import Region

Written = dict[Tensor, np.ndarray]
"""The bytes that each node wrote, as they were when it had run."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the results of two orders part.

    Attributes
    ----------
    node : Tensor
        The first node of the new order that writes other bytes; where all write the same, a leaf that is left with
        other bytes.
    step, step_before : int or None
        The step of the node in the trace of the new order, and in that of the graph's own; None for a leaf.
    bytes, of : int
        How many of the bytes that it writes differ, and how many it writes.
    first_byte : int
        Which of them is the first that differs.
    pair : BrokenPair or None
        What explains it.
    """

    node: Tensor
    step: int | None
    step_before: int | None
    bytes: int
    of: int
    first_byte: int
    pair: BrokenPair | None

    @property
    def sentence(self) -> str:
        """What differs, and why."""
        what = f"{self.node.op} {self.node.name}" if self.step is not None else f"what is left in {self.node.name}"
        text = f"{what} is the first that differs, in {self.bytes:,} of {self.of:,} bytes"
        return f"{text}: {self.pair.sentence}" if self.pair is not None else text


def run_noting(graph: ComputeGraph, title: str, values: int | str) -> tuple[Trace, Written]:
    """Run a graph, and keep what each node wrote."""
    executor = Executor(title, values=values)
    executor.begin(graph)
    written: Written = {}
    node = executor.step()
    while node is not None:
        parts = [_held(effect.region, effect.tensor.root) for effect in effects(node) if effect.writes]
        if parts:
            written[node] = np.concatenate(parts)
        node = executor.step()
    return executor.finish(), written


def first_difference(
    before: Written,
    after: Written,
    steps: tuple[Sequence[Tensor], Sequence[Tensor]],
    left: tuple[Mapping[Tensor, np.ndarray], Mapping[Tensor, np.ndarray]],
    broken: Sequence[BrokenPair],
) -> Difference | None:
    """Compare two runs.

    Parameters
    ----------
    before, after : dict of Tensor to ndarray
        What each node wrote in the graph's own order, and in the new one.
    steps : pair of sequences of Tensor
        The nodes of both, in the order in which they ran.
    left : pair of mappings of Tensor to ndarray
        What leafs hold after both.
    broken : sequence of BrokenPair
    """
    places = [{node: i for i, node in enumerate(part)} for part in steps]
    for node, now in after.items():
        differ = np.flatnonzero(now != before[node])
        if len(differ):
            pair = _because(node, broken, after)
            step, step_before = places[1][node], places[0][node]
            return Difference(node, step, step_before, len(differ), len(now), int(differ[0]), pair)
    for leaf, data in left[1].items():
        differ = np.flatnonzero(data != left[0][leaf])
        if len(differ):
            kept = next((pair for pair in broken if pair.root is leaf and pair.kind == "WAW"), None)
            return Difference(leaf, None, None, len(differ), len(data), int(differ[0]), kept)
    return None


def _because(node: Tensor, broken: Iterable[BrokenPair], order: Mapping[Tensor, object]) -> BrokenPair | None:
    """The pair that let a node read other bytes: it came before a write that it needs, or after one that it must not.

    Of several writes that it came after, the last one is what it saw; a swap of two writes into what it reads is the
    next best.
    """
    place = {one: i for i, one in enumerate(order)}
    reads = {effect.tensor.root for effect in effects(node) if not effect.writes}
    late = [pair for pair in broken if pair.kind == "WAR" and pair.first is node]
    early = [pair for pair in broken if pair.kind == "RAW" and pair.second is node]
    swapped = [pair for pair in broken if pair.kind == "WAW" and pair.root in reads and place[pair.first] < place[node]]
    chosen = early or sorted(late, key=lambda pair: -place[pair.second]) or swapped
    return chosen[0] if chosen else None


def _held(region: Region, root: Tensor) -> np.ndarray:
    """The bytes of a region, one after the other."""
    assert root.data is not None
    shape, item = unit(region.shape, region.dtype)
    starts = region.rows if region.rows is not None else (0,)
    parts = [
        np.ndarray(shape, f"V{item}", root.data, region.offset + start, region.strides).tobytes() for start in starts
    ]
    return np.frombuffer(b"".join(parts), np.uint8)
