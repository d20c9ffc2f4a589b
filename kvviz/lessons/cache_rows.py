"""Rows of caches: deleted by a click, written by other operators, fed in chunks, compared by what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from uuid import uuid4

import ipywidgets
import numpy as np
import onnx
from IPython.display import display
from onnx import helper, parser

from kvviz.caches.path_search import way_of
from kvviz.decode.public_runs import run
from kvviz.decode.public_runs import run as run_once
from kvviz.decode.run_sessions import stream
from kvviz.errors import KvvizError, OpError
from kvviz.graph.loading.load import load
from kvviz.graph.model import Graph
from kvviz.lessons.run_meters import steps_of
from kvviz.trace.index.frame_values import RunFrames
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.widget.still_image import stands_in


class RowDeletion(ipywidgets.VBox):
    """A button for each row: pressed, it deletes the row from all caches. The last line of a cell displays it.

    ``words``: the token of the row at each position, as text.
    ``without``: takes the deleted positions and returns the probability of each token.
    ``text_of``: returns the text of a token.

    Attributes
    ----------
    deleted : tuple of int
        Positions. May be set.
    likeliest : list of (str, float)
        The five likeliest tokens with their probabilities, the likeliest first.
    """

    def __init__(
        self, words: Sequence[str], without: Callable[[Sequence[int]], np.ndarray], text_of: Callable[[int], str]
    ) -> None:
        self._without, self._text_of = without, text_of
        self._key, self._setting = uuid4().hex, False
        layout = ipywidgets.Layout(width="auto", margin="1px")
        style = ipywidgets.ToggleButton().style  # one for all: a saved notebook is smaller
        names = [word.strip(" ") if word.strip() else "⏎" if "\n" in word else "␣" for word in words]
        self.rows = [
            ipywidgets.ToggleButton(description=name, tooltip=f"row {at}", layout=layout, style=style)
            for at, name in enumerate(names)
        ]
        self._shown = ipywidgets.HTML()
        for row in self.rows:
            row.observe(self._follow, "value")
        super().__init__([ipywidgets.Box(self.rows, layout=ipywidgets.Layout(flex_flow="row wrap")), self._shown])
        self.add_class("kv-deletion")
        self._follow()

    @property
    def deleted(self) -> tuple[int, ...]:
        """Positions of the rows that are deleted."""
        return tuple(at for at, row in enumerate(self.rows) if row.value)

    @deleted.setter
    def deleted(self, positions: Sequence[int]) -> None:
        if wrong := [at for at in positions if not 0 <= at < len(self.rows)]:
            raise KvvizError(f"there is no row {wrong[0]}; the rows are 0 to {len(self.rows) - 1}")
        self._setting = True
        for at, row in enumerate(self.rows):
            row.value = at in positions
        self._setting = False
        self._follow()

    def _follow(self, change: Any = None) -> None:
        if self._setting:
            return
        gone = ", ".join(f"{at} {self.rows[at].description}" for at in self.deleted) or "none"
        title = f"<p>Rows deleted: {escape(gone)}</p>"
        try:
            found = self._without(self.deleted)
        except Exception as error:  # the buttons are pressed already: say that this is not their answer
            self._shown.value = f"{title}<p>{escape(f'{error}')}</p>"
            raise
        self.likeliest = [(self._text_of(int(token)), float(found[token])) for token in np.argsort(found)[:-6:-1]]
        lines = "".join(
            f'<tr><td style="text-align: left"><code>{escape(repr(text))}</code></td><td>{share:.1%}</td>'
            f'<td style="width: 12em; text-align: left"><span style="display: inline-block; height: .7em; '
            f'width: {12 * share:.2f}em; background: #3b82d6"></span></td></tr>'
            for text, share in self.likeliest
        )
        self._shown.value = f"{title}<table><tr><th>next token</th><th>p</th><th></th></tr>{lines}</table>"

    def _ipython_display_(self) -> None:
        """Show the buttons, and after them in an output of its own what a reader sees where they cannot be."""
        display(super()._repr_mimebundle_(), raw=True)
        display({"text/html": stands_in(self._key, self._shown.value, "kv-deletion")}, raw=True)

    def __repr__(self) -> str:
        return f"<RowDeletion: {len(self.deleted)} of {len(self.rows)} rows deleted>"


Shape = tuple[int, int, int, int]  # sequences, heads, rows, numbers in a row

_HEAD = """<ir_version: 10, opset_import: ["" : 24]>
rows (float[{cache}] past, float[{new}] row, int64[{numbers}] at) => (float[{cache}] present)"""
_FORMS = {
    "TensorScatter": "{{ present = TensorScatter <axis = -2> (past, row, at) }}",
    "ScatterElements": "{{ present = ScatterElements <axis = -2> (past, at, row) }}",
    "ScatterND": """<int64[2] flat = {{-1, {size}}}, int64[4] whole = {{{cache}}}> {{
rows = Reshape (past, flat)
news = Reshape (row, flat)
written = ScatterND (rows, at, news)
present = Reshape (written, whole) }}""",
}


def row_writer(op: str, shape: Shape, new: int, numbers: Sequence[int]) -> onnx.ModelProto:
    """The model of one operator that writes new rows; ``numbers`` is the shape of their row numbers."""
    batch, heads, _, size = shape
    cache, at, rows = (",".join(map(str, dims)) for dims in (shape, numbers, (batch, heads, new, size)))
    return parser.parse_model((_HEAD + _FORMS[op]).format(cache=cache, new=rows, numbers=at, size=size))


def write_costs(policies: Sequence[str], shape: Shape) -> list[dict[str, Any]]:
    """What writing one row of every sequence and head takes by each operator.

    Gives the bytes of its row numbers, and the bytes that a run with a donated cache copies under each policy.
    """
    batch, heads, capacity, size = shape
    middle = capacity // 2
    starts = np.arange(batch * heads)[:, None] * capacity
    every = np.full((batch, heads, 1, size), middle)
    table = []
    for op, at in {"TensorScatter": every[:, 0, 0, 0], "ScatterElements": every, "ScatterND": starts + middle}.items():
        graph, feeds = load(row_writer(op, shape, 1, at.shape)), _feeds(shape, 1, at)
        copied = {name: run(graph, feeds, donate=["past"], policy=name).bytes_copied for name in policies}
        table.append({"written by": op, "row numbers": at.nbytes, **copied})
    return table


def beside_tensor_scatter(
    write: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray], shape: Shape, new: int, at: Sequence[int]
) -> dict[str, str]:
    """What becomes of new rows, written by a function and by `TensorScatter`: right, refused, or wrong in what.

    ``write``: of a cache of zeros, the new rows and the first row number of each sequence; gives the new cache.
    ``new``: rows for each sequence and head, at ``at``. They hold the number of their sequence, from 1.
    """
    feeds = _feeds(shape, new, np.array(at))
    graph = load(row_writer("TensorScatter", shape, new, [len(at)]))
    writers = {
        "by hand": lambda: write(feeds["past"], feeds["row"], feeds["at"]),
        "TensorScatter": lambda: run(graph, feeds).outputs["present"],
    }
    return {name: _outcome(make, new) for name, make in writers.items()}


def _outcome(make: Callable[[], np.ndarray], new: int) -> str:
    try:
        cache = make()
    except (OpError, ValueError) as error:
        return f"refused: {str(error).partition(' failed: ')[2].partition(':')[0] or error}"
    for number, sequence in enumerate(cache, 1):
        if others := sorted({int(held) for held in np.unique(sequence)} - {0, number}):
            return f"wrong: sequence {number} holds a row of sequence {others[0]}"
    full = (cache != 0).any(-1).sum(-1) == new
    return "right" if full.all() else "wrong: a row is missing"


def _feeds(shape: Shape, new: int, numbers: np.ndarray) -> dict[str, np.ndarray]:
    batch, heads, _, size = shape
    rows = np.arange(1, batch + 1, dtype=np.float32).reshape(-1, 1, 1, 1) * np.ones((1, heads, new, size), np.float32)
    return {"past": np.zeros(shape, np.float32), "row": rows, "at": numbers}


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
    """Feed known tokens in chunks, with one's own count of valid rows; gives the likeliest next token after each.

    ``chunks``: how many tokens each run reads.
    ``count``: of the tokens before a chunk and those in it; gives ``nonpad_kv_seqlen``. Right is their sum, and in a
    circular cache at most the capacity.
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
    """The index of the first word that is another one."""
    return next((i for i, (said, true) in enumerate(zip(words, truth, strict=False)) if said != true), None)


def cache_path(trace: Trace, run: int, cache: int = 0) -> list[Step]:
    """The steps that carry a cache through a run one after another, from its input to its output."""
    steps = {step.node: step for step in steps_of(trace, run)}
    way = way_of(trace, RunFrames(trace, run), trace.caches[cache])
    return [steps[link.node.name] for link in way.spine]


@dataclass(frozen=True, slots=True)
class RowTest:
    """What the next token would be if other rows were cached."""

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
        """The same with all rows before the position, but for some that are deleted."""
        kept = np.setdiff1d(np.arange(at), list(gone))
        return self.from_rows(at, {c.input: self.whole.outputs[c.output][:, kept] for c in self.whole.caches})

    def put_back(self, small: Trace, run: int) -> dict[int | None, np.ndarray]:
        """Give a run with a circular cache one lost row back: probabilities by its position, and by None as it was.

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
