"""A decode in onnxruntime, its buffers bound as a caller's loop binds them, and where each cache lies in each run.

Tokens, masks, positions and first caches are those of kvviz's own token loop; only the runs are onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.decode.decode_options import DecodeOptions
from kvviz.decode.token_loop import DecodeSession
from kvviz.graph.model import Graph
from kvviz.trace.records import Run

PAST, NEW = "past", "new"
Arrays = dict[str, np.ndarray]
Addresses = dict[str, int]
Seen = tuple[int, str, str, int, int]
"""Of one cache in one run: run, input, where its present lies, bytes moved, and bytes copied to a NumPy array, as in
`kvviz.verification.verify_decode.VerifiedCache`."""


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
        options: DecodeOptions,
        inputs: Mapping[str, Any],
        bound: Mapping[str, str] | None,
    ) -> None:
        super().__init__(graph, prompt, options, inputs, record=False)
        self.bound = bound
        self.seen: list[Seen] = []
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
            outputs, given, made = (self._by_arrays if self.bound is None else self._by_binding)(session, feeds)
            for pair in self.own:
                past, present, at = before[pair.input], outputs[pair.output], made[pair.output]
                inside = (name for name in before if given[name] <= at < given[name] + before[name].nbytes)
                lies = next(inside, NEW)
                moved = 0 if lies == pair.input else _moved(past, present, pair.axis)
                copied = present.nbytes * present.flags.owndata
                lies = PAST if lies == pair.input else lies
                self.seen.append((self.trace.runs[-1].index, pair.input, lies, moved, copied))
            self.ended(outputs)

    def _by_arrays(self, session: Any, feeds: Arrays) -> tuple[Arrays, Addresses, Addresses]:
        """Outputs of a run, and the addresses of its inputs and outputs."""
        names = [one.name for one in session.get_outputs()]
        outputs = dict(zip(names, session.run(names, feeds), strict=True))
        given, made = ({name: array.ctypes.data for name, array in one.items()} for one in (feeds, outputs))
        return outputs, given, made

    def _by_binding(self, session: Any, feeds: Arrays) -> tuple[Arrays, Addresses, Addresses]:
        """The same by IO binding."""
        from onnxruntime import OrtValue

        inputs = {name: self.values.get(name) or OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        binding, bound = session.io_binding(), self.bound or {}
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        names = [one.name for one in session.get_outputs()]
        for name in names:
            if name in bound:
                binding.bind_ortvalue_output(name, inputs[bound[name]])
            else:
                binding.bind_output(name)
        session.run_with_iobinding(binding)
        outputs = dict(zip(names, binding.get_outputs(), strict=True))
        self.values = {pair.input: outputs[pair.output] for pair in self.own}
        given, made = ({name: value.data_ptr() for name, value in one.items()} for one in (inputs, outputs))
        return {name: value.numpy() for name, value in outputs.items()}, given, made


def _moved(past: np.ndarray, present: np.ndarray, axis: int | None) -> int:
    """Bytes of the rows of a past, but for empty ones, that a present has in the same places."""
    if axis is None or past.ndim != present.ndim or not past.size:
        return 0
    before, after = np.moveaxis(past, axis, 0), np.moveaxis(present, axis, 0)[: past.shape[axis]]
    if before.shape != after.shape:
        return 0
    rows = (before == after).reshape(len(before), -1).all(1) & before.reshape(len(before), -1).any(1)
    return int(rows.sum()) * before[0].nbytes
