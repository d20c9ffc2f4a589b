"""Graphs that a real ggml executed: each alone, and all of a recording as one story."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kvviz.atomic_write import replacing
from kvviz.errors import SaveError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.order.graph_recipe import listed
from kvviz.trace.recording import Trace

ABOUT = "ggml's graph allocator, as it was recorded"
ABOUT_DOT = "not known: a DOT file says neither offsets nor strides, so a view may be any bytes of its root"


class RecordedGraph(ComputeGraph):
    """A graph as it was executed. ``number``: its place in the recording. ``step``: the call that it belongs to,
    ``"prefill"``, ``"decode0"`` …; one call may run several graphs."""

    def __init__(self, title: str, number: int = 0, step: str = "") -> None:
        super().__init__(title)
        self.number = number
        self.step = step

    @cached_property
    def trace(self) -> Trace:
        """This graph alone: one run, its nodes as ops in the order in which they were executed."""
        return _listed([self], self.title, [self.call])

    @property
    def call(self) -> str:
        """Its `step`, or ``"encode"`` if there is none and the graph uses the weights of an encoder."""
        encodes = not self.step and any(leaf.name.startswith("enc.") for leaf in self.leafs)
        return "encode" if encodes else self.step

    def __repr__(self) -> str:
        return f"<RecordedGraph {self.number} {self.step!r}: {len(self.nodes)} nodes, {len(self.leafs)} leafs>"


@dataclass(eq=False)
class Recording:
    """What was read of a file, or recorded from a running llama.cpp.

    Attributes
    ----------
    title : str
    graphs : tuple of RecordedGraph
        In the order in which they ran; weights and state are the same tensors in all of them.
    meta : dict
        What the recorder noted: versions, model, tokens, the script of calls.
    lines : sequence of mapping
        What `save` writes, of a recording that was made here.
    """

    title: str
    graphs: tuple[RecordedGraph, ...]
    meta: Mapping[str, Any] = field(default_factory=dict, repr=False)
    lines: Sequence[Mapping[str, Any]] = field(default=(), repr=False)

    @cached_property
    def trace(self) -> Trace:
        """All graphs as the runs of one story, in which weights and state keep their storages."""
        return _listed(self.graphs, self.title, _labels(self.graphs))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was recorded, for `kvviz.ggml.load`: ``.jsonl``, or packed as ``.jsonl.gz``.

        Raises
        ------
        SaveError
            If it was read from a file, which is there already, or the file cannot be written.
        """
        if not self.lines:
            raise SaveError(f"{self.title} was not recorded here; copy the file that it was read from")
        text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in self.lines)
        data = text.encode("utf-8", "replace")
        with replacing(path) as file:
            file.write(gzip.compress(data, 9, mtime=0) if os.fspath(path).endswith(".gz") else data)

    def __repr__(self) -> str:
        return (
            f"<Recording {self.title!r}: {len(self.graphs)} graphs, {sum(len(g.nodes) for g in self.graphs):,} nodes>"
        )


def _listed(graphs: Sequence[RecordedGraph], title: str, labels: Sequence[str]) -> Trace:
    about = ABOUT if all(tensor.exact for g in graphs for tensor in (*g.nodes, *g.leafs)) else ABOUT_DOT
    return listed(graphs, title, about=about, labels=labels)


def _labels(graphs: Sequence[RecordedGraph]) -> list[str]:
    steps = [graph.call or (f"graph {graph.number}" if len(graphs) > 1 else "") for graph in graphs]
    return [
        f"{step} ({steps[: at + 1].count(step)}/{steps.count(step)})" if steps.count(step) > 1 else step
        for at, step in enumerate(steps)
    ]


def leafs_of(nodes: Sequence[Tensor]) -> list[Tensor]:
    """Tensors that nodes use and that are not nodes, in order of first use; roots of views too."""
    own = set(nodes)
    found: dict[Tensor, None] = {}
    for node in nodes:
        found.update(dict.fromkeys(one for one in (*node.sources, node.root) if one not in own))
    return list(found)
