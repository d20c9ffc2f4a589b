"""Rows of caches: circular, fed in chunks, and compared by their value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from kvviz.caches.path_search import way_of
from kvviz.decode.public_runs import run as run_once
from kvviz.decode.run_sessions import stream
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.lessons.run_meters import steps_of
from kvviz.trace.index.frame_values import RunFrames
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step


def circular(path: str | Path, rows: int, *, weights: bool = True) -> onnx.ModelProto:
    """A decoder with `TensorScatter` caches, made circular: row numbers are taken modulo the new capacity, ``rows``.

    ``weights``: let every `Attention` give its weights as a graph output, so that the page can show them.

    Raises `KvvizError`: if no op of the model writes a cache by `TensorScatter`.
    """
    proto = onnx.load(path)
    writers = [node for node in proto.graph.node if node.op_type == "TensorScatter"]
    if not writers:
        raise KvvizError(f"{path}: no TensorScatter in it, so there is no cache to make circular")
    for node in writers:
        node.attribute.append(helper.make_attribute("mode", "circular"))
    for node in proto.graph.node if weights else ():
        if node.op_type == "Attention":
            name = f"weights of {node.name.split('/')[1]}"
            node.output.extend(["", "", name])
            node.attribute.append(helper.make_attribute("qk_matmul_output_mode", 3))  # after the softmax
            proto.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    for value in (*proto.graph.input, *proto.graph.output):
        if "cache" in value.name:
            value.type.tensor_type.shape.dim[1].dim_value = rows
    del proto.graph.value_info[:]  # shapes of before
    return proto


def feed_chunks(
    graph: Graph, tokens: Sequence[int], chunks: Iterable[int], count: Callable[[int, int], int]
) -> tuple[Trace, np.ndarray]:
    """Feed known tokens in chunks, with a custom count of valid rows; returns the likeliest next token after each.

    ``chunks``: how many tokens each run reads. ``count``: a function of the tokens before a chunk and in it, for
    ``nonpad_kv_seqlen``. The correct count is their sum, and in a circular cache at most the capacity.
    """
    runs, past = [], 0
    for new in chunks:
        runs.append(_chunk_feeds(tokens[past : past + new], past, past, count(past, new)))
        past += new
    trace = stream(graph, runs, donate=[value.name for value in graph.inputs if "cache" in value.name])
    return trace, np.concatenate([result["logits"][0].argmax(-1) for result in trace.results])


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    weights: np.ndarray = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def first_difference(words: Sequence[str], truth: Sequence[str]) -> int | None:
    """The index of the first word that differs."""
    return next((i for i, (said, true) in enumerate(zip(words, truth, strict=False)) if said != true), None)


def cache_path(trace: Trace, run: int, cache: int = 0) -> list[Step]:
    """The steps that carry a cache through a run one after another, from its input to its output."""
    steps = {step.node: step for step in steps_of(trace, run)}
    way = way_of(trace, RunFrames(trace, run), trace.caches[cache])
    return [steps[link.node.name] for link in way.spine]


@dataclass(frozen=True, slots=True)
class RowTest:
    """The next token under other cached rows."""

    whole: Trace  # a decode with fixed caches in which no row was lost; rows are taken from its last caches

    def from_rows(self, at: int, rows: Mapping[str, np.ndarray]) -> np.ndarray:
        """Probabilities after the token at a position, with these rows of each cache, (1, n, width), in any order."""
        held = next(iter(rows.values())).shape[1]
        feeds = _chunk_feeds([[*self.whole.prompt, *self.whole.tokens][at]], at, held, held + 1)
        for cache in self.whole.caches:
            feeds[cache.input] = np.zeros_like(self.whole.outputs[cache.output])
            feeds[cache.input][:, :held] = rows[cache.input]
        return probabilities(run_once(self.whole.graph, feeds, record=False).outputs["logits"][0, -1])

    def without(self, at: int, gone: Iterable[int] = ()) -> np.ndarray:
        """The same with all rows before the position, except some deleted ones."""
        kept = np.setdiff1d(np.arange(at), list(gone))
        return self.from_rows(at, {c.input: self.whole.outputs[c.output][:, kept] for c in self.whole.caches})

    def put_back(self, small: Trace, run: int) -> dict[int | None, np.ndarray]:
        """Give a run with a circular cache one lost row back: probabilities by the row's position, and by None without
        it.

        Attention does not depend on the order of rows, so the lost row takes the place of the one that the run
        overwrites.
        """
        size, at = small.caches[0].runs[run].capacity, len(small.prompt) + run - 1
        found = {c.input: small.value(c.input, small.runs[run].first) for c in small.caches}
        after: dict[int | None, np.ndarray] = {None: probabilities(small.logits[run][0])}
        for position in range(at - size + 1):
            rows = {name: array.copy() for name, array in found.items()}
            for cache in self.whole.caches:
                rows[cache.input][:, at % size] = self.whole.outputs[cache.output][:, position]
            after[position] = self.from_rows(at, rows)
        return after


def _chunk_feeds(tokens: Sequence[int], past: int, row: int, count: int) -> dict[str, np.ndarray]:
    return {
        "input_ids": np.array([tokens]),
        "position_ids": np.arange(past, past + len(tokens))[None],
        "write_indices": np.array([row]),
        "nonpad_kv_seqlen": np.array([count]),
    }
