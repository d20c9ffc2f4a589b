"""Lengths that a window fits into: a graph with convolutions takes no signal of four numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvviz.decode.single_run import SingleRun
from kvviz.engine.session import whole
from kvviz.errors import KvvizError, OpError
from kvviz.graph.model import Graph

_WINDOWS = frozenset(
    {
        *("Conv", "ConvInteger", "ConvTranspose", "QLinearConv", "FusedConv", "NhwcConv", "DeformConv"),
        *("AveragePool", "MaxPool", "LpPool", "MaxUnpool", "QLinearAveragePool", "MaxRoiPool", "RoiAlign"),
        *("STFT", "DFT", "MelWeightMatrix", "Col2Im", "DepthToSpace", "SpaceToDepth", "Pad", "Resize", "Upsample"),
    }
)
# Powers of two for nets that halve again and again, and what nets for images are usually trained at.
_LADDER = (16, 32, 48, 64, 96, 128, 192, 224, 256, 299, 320, 384, 448, 512, 640, 1024, 2048, 4096, 8192, 16384, 32768)
_LARGEST = 1 << 22
_GROUPS = 4


def fitting(
    graph: Graph, lengths: Mapping[str, int], free: list[str], make: Callable[[Mapping[str, int]], dict[str, Any]]
) -> dict[str, int]:
    """Lengths with which the graph runs: those given, or else the first larger ones of the ``free`` dimensions. Where
    nothing fits they stay as given, so that the run itself says what is wrong."""
    first = dict(lengths)
    # Only an operator that looks at several places at once may find an input too small.
    if not free or not has_windows(graph):
        return first
    for group in [free, *_groups(free)]:
        # The others are one: a state beside a signal has the batch anywhere.
        ones = {**first, **dict.fromkeys(set(free) - set(group), 1)}
        for tried in _candidates(ones, group):
            feeds = make(tried)
            if sum(math.prod(getattr(value, "shape", ())) for value in feeds.values()) > _LARGEST:
                break
            if _runs(graph, feeds):
                return tried
    return first


def has_windows(graph: Graph) -> bool:
    """Whether an operator looks at several places at once."""
    return any(node.op_type in _WINDOWS for _, node in graph.walk())


def _groups(free: list[str]) -> list[list[str]]:
    """The dimensions of each input for themselves, where several inputs have such as have no name but their place."""
    found: dict[str, list[str]] = {}
    for name in free:
        found.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return list(found.values()) if 1 < len(found) <= _GROUPS else []


def _candidates(first: dict[str, int], free: list[str]) -> Iterator[dict[str, int]]:
    yield first
    for length in _LADDER:
        if length > max(first[name] for name in free):
            yield {**first, **dict.fromkeys(free, length)}


def _runs(graph: Graph, feeds: dict[str, Any]) -> bool:
    """Whether a run ends, and no window had nothing to look at."""
    try:
        trace = whole(SingleRun(graph, feeds).run_to_end())
    except OpError:
        return False
    except KvvizError:
        # Not a matter of lengths; the run that the caller wants says it.
        return True
    windows = [step for step in trace.steps if step.op_type in _WINDOWS]
    return all(out.nbytes for step in windows for out in step.outs) and all(_reflects(graph, step) for step in windows)


def _reflects(graph: Graph, step: Any) -> bool:
    """Whether a reflected edge is shorter than what it reflects, as onnxruntime demands (NumPy reflects again)."""
    node, shape = step.graph_node, step.outs[0].shape
    if node.op_type != "Pad" or node.attributes.get("mode") not in ("reflect", b"reflect"):
        return True
    pads = node.attributes.get("pads")
    if pads is None:
        pads = graph.weights.get(node.inputs[1]) if len(node.inputs) in (2, 3) else None
    if pads is None or len(pads) != 2 * len(shape):
        return True
    edges = [(int(before), int(after)) for before, after in zip(pads, pads[len(shape) :])]
    return all(max(edge) < length - sum(edge) for edge, length in zip(edges, shape) if max(edge) > 0)
