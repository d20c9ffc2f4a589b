"""A decode in onnxruntime, its buffers bound as a caller's loop binds them, and where each cache lies in each run.

Tokens, masks, positions and first caches are those of kvviz's own token loop; only the runs are onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvviz.decode.token_loop import DecodeSession
from kvviz.graph.model import Graph
from kvviz.runtimes.ort.bound_runs import bound_values
from kvviz.trace.records import Run
from kvviz.trace.schema.run_options import RunOptions

PAST, NEW = "past", "new"


@dataclass(frozen=True, slots=True)
class VerifiedCache:
    """One cache in one run.

    Attributes
    ----------
    run : int
    cache : str
        Its input.
    observed, predicted : str
        Where its present lies: ``"past"`` in the memory of its own past, ``"new"`` in memory that no past has, else the
        input in whose memory it lies.
    moved, by_python : int
        Observed bytes: rows of the past that are in a present at another address, which the run copied at least; and
        what the call copied to give the present as a NumPy array.
    copied : int
        Bytes that the run copies on the way from the past to the present, as predicted.
    why : str
        What the op that makes the present does to memory by the policy, and why.
    agrees : bool
        It lies where predicted, and no more was moved than is copied by the prediction.
    """

    run: int
    cache: str
    observed: str
    moved: int
    by_python: int
    predicted: str = "unknown"
    copied: int = 0
    why: str = "the graph that the session runs does not show that it is a cache"
    agrees: bool = False

    def __str__(self) -> str:
        return f"run {self.run}, {self.cache}: {self.observed}, predicted {self.predicted}: {self.why}"


class BoundLoop(DecodeSession):
    """A greedy decode whose runs are made by an onnxruntime session.

    ``bound``: outputs that are bound to the buffers of inputs; other presents are bound as pasts as they are. None for
      a loop without IO binding, which hands NumPy arrays on.
    ``seen``: all caches, run by run.
    """

    def __init__(
        self,
        graph: Graph,
        prompt: Any,
        options: RunOptions,
        inputs: Mapping[str, Any],
        bound: Mapping[str, str] | None,
    ) -> None:
        super().__init__(graph, prompt, options, inputs, record=False)
        self.bound = bound
        self.seen: list[VerifiedCache] = []
        self.own = [pair for pair in self.pairs if pair.protocol != "cross"]
        self.values: dict[str, Any] = {}  # presents of the run before, to be bound again
        self.buffers = self.caches.copy()  # an OrtValue does not keep the array that it was made from

    def begin(self, feeds: Mapping[str, Any], donate: Sequence[str], carried: Any = None) -> None:
        """Begin a run, which has no steps here."""
        self.trace.runs.append(Run(len(self.trace.runs), 0, 0))

    def decode_in(self, session: Any) -> None:
        """Decode to the end."""
        while self.next_run():
            feeds = {one.name: np.asarray(self.feeds[one.name], order="C") for one in session.get_inputs()}
            before = {pair.input: feeds[pair.input].copy() for pair in self.own}
            feeds |= self.values
            if self.bound is None:
                names = [one.name for one in session.get_outputs()]
                made = outputs = dict(zip(names, session.run(names, feeds), strict=True))
            else:
                made = bound_values(session, feeds, self.bound)
                outputs = {name: value.numpy() for name, value in made.items()}
                self.values = {pair.input: made[pair.output] for pair in self.own}
            starts = {name: _address(feeds[name]) for name in before}
            for pair in self.own:
                past, present, at = before[pair.input], outputs[pair.output], _address(made[pair.output])
                lies = next((name for name, start in starts.items() if start <= at < start + before[name].nbytes), NEW)
                moved = 0 if lies == pair.input else _moved(past, present, pair.axis)
                copied = present.nbytes * present.flags.owndata
                lies = PAST if lies == pair.input else lies
                self.seen.append(VerifiedCache(self.trace.runs[-1].index, pair.input, lies, moved, copied))
            self.ended(outputs)


def _address(value: Any) -> int:
    """Of an array or an OrtValue."""
    found: int = value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
    return found


def _moved(past: np.ndarray, present: np.ndarray, axis: int | None) -> int:
    """Bytes of the rows of a past, but for empty ones, that a present has in the same places."""
    if axis is None or past.ndim != present.ndim or not past.size:
        return 0
    before, after = np.moveaxis(past, axis, 0), np.moveaxis(present, axis, 0)[: past.shape[axis]]
    if before.shape != after.shape:
        return 0
    rows = (before == after).reshape(len(before), -1).all(1) & before.reshape(len(before), -1).any(1)
    return int(rows.sum()) * before[0].nbytes
