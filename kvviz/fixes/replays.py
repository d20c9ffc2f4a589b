"""A run of a trace, repeated on ghosts with a change. Its recorded bindings give the layouts of its inputs.

Neither the model's weights nor the caller's arrays are needed, so a trace loaded from a file can be replayed too.
Numbers that determine shapes are known if the trace is live; otherwise the recording has the shapes.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import ref

import numpy as np

from kvviz.decode.run_sessions import SingleRun
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine.planning import drop_plans
from kvviz.engine.policy import Policy
from kvviz.engine.recorded_answers import Answers, TraceAnswers
from kvviz.engine.sessions.session import whole
from kvviz.errors import KvvizError, UnknownValueError
from kvviz.fixes.changes import Capacity, Change, GrowAfter, Reorder, Reserve, RunFirst, UsePolicy, arguments, asked
from kvviz.graph.cache_pairs import control_inputs
from kvviz.graph.model import Graph, Value
from kvviz.memory.ghosts import ghost, is_ghost, reserved_block, with_room
from kvviz.runtimes.named_policies import OwnOrder, policy_of
from kvviz.runtimes.ort.known_types import take_types
from kvviz.runtimes.schedules import Picks
from kvviz.trace.index.value_index import Index
from kvviz.trace.recording import Trace
from kvviz.trace.schema.regions import packed_strides

# Up to this many elements, a replay gets the numbers of an input; longer inputs determine no shape.
_KNOWN = 1 << 12
# Changes are tried on this many steps of a trace.
_MOST_STEPS = 40_000


class Replays:
    """Replays of the trace of an index, which caches them; the caller holds the index. ``picked``: it ran in an order
    that a person chose, which is kept. Raises `KvvizError`: if its policy is not known here."""

    def __init__(self, index: Index, picked: bool = False) -> None:
        trace = index.trace
        self.trace, self.picked = trace, picked
        self._index = ref(index)
        policy = policy_of(trace) if trace.recipe is None else trace.recipe.options["policy"]
        if policy is None:
            raise KvvizError(f"the rules of the policy {trace.policy.name!r} are not known here")
        self.policy: Policy = policy
        self.graph: Graph = trace.graph if trace.recipe is None else trace.recipe.options["graph"]
        stated = None if trace.recipe is None else trace.recipe.options.get("dry")
        self.stated: Any = dict(stated or {})
        self._runs: dict[tuple[int, tuple[Change, ...]], Trace] = {}
        self._loops: dict[tuple[Change, ...], Trace] = {}
        self.effects: dict[Any, Any] = {}
        if trace.recipe is None:
            self.stated = TraceAnswers(trace, self.stated)
            self.graph = _as_recorded(trace)
            if isinstance(self.policy.schedule, OwnOrder) or isinstance(
                getattr(self.policy.schedule, "base", None), OwnOrder
            ):
                # The recording has an order that the caller chose.
                self.policy = replace(self.policy, schedule=Picks.of(trace))
            _describe_weights(trace)
            if trace.type_facts is not None:
                take_types(self.graph, trace.type_facts)

    def __del__(self) -> None:
        if isinstance(stated := getattr(self, "stated", None), Answers):
            stated.plans.clear()  # they hold the answers

    @property
    def index(self) -> Index:
        index = self._index()
        assert index is not None
        return index

    @property
    def _longest(self) -> int:
        return max([1, *(run.last - run.first for run in self.trace.runs)])

    @property
    def is_short(self) -> bool:
        """Whether changes are tried on the whole trace."""
        return len(self.trace.runs) * self._longest <= _MOST_STEPS

    def run(self, run: int, changes: tuple[Change, ...] = ()) -> Trace:
        """A single run of the trace with changes. Raises `KvvizError`: if they contradict each other, or if something
        that determines its shapes is not known."""
        key = run, changes
        if key not in self._runs:
            self._runs[key] = self._answered(run, 1, lambda dry: self._run(run, changes, dry))
        return self._runs[key]

    def policy_after(self, changes: tuple[Change, ...]) -> Policy:
        policy: Policy = self._arguments(changes).get("policy", self.policy)
        return policy

    def decode(self, changes: tuple[Change, ...] = (), most: int | None = _MOST_STEPS) -> Trace:
        if changes not in self._loops or most is None:
            made = self._answered(0, len(self.trace.runs), lambda dry: self._decode(changes, most, dry))
            if most is None or (changes and not reaches_over_runs(self.trace, changes)):
                return made
            self._loops[changes] = made
        return self._loops[changes]

    def whole(self, changes: tuple[Change, ...]) -> Trace:
        """The whole trace with changes. Raises `KvvizError`: if it is a stream."""
        kind = self.trace.options.kind
        if kind == "stream":
            raise KvvizError("a stream that was loaded from a file cannot be run again; record it again")
        return self.decode(changes, None) if kind == "decode" else self.run(0, changes)

    def totals(self, changes: tuple[Change, ...], most: int) -> Trace:
        """The totals of the trace with changes; for a decode, those of the runs that make up ``most`` steps. Raises
        `KvvizError`: as `run` does."""
        if self.trace.options.kind == "decode":
            runs = len(self.trace.runs)
            return self._answered(0, runs, lambda dry: self._decode(changes, most, dry, False))
        return self._answered(0, 1, lambda dry: self._run(0, changes, dry, False))

    def _arguments(self, changes: Sequence[Change]) -> dict[str, Any]:
        model = self.graph if self.trace.recipe is None else None
        return arguments(self.trace, changes, self.picked, self.policy, model)

    def _answered(self, run: int, runs: int, make: Any) -> Trace:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the recording has given the same warnings
            if not isinstance(self.stated, Answers):
                try:
                    return make(self.stated)
                except UnknownValueError:
                    self.stated = TraceAnswers(self.trace, self.stated)
            self.stated.begin(run, runs)
            return make(self.stated)

    def _run(self, run: int, changes: Sequence[Change], dry: Any, record: bool = True) -> Trace:
        arguments = self._arguments(changes)
        feeds, donated = _feeds(self.index, run, self.graph)
        for change in changes:
            if isinstance(change, Reserve):
                feeds[change.input] = with_room(feeds[change.input], change.axis, change.rows)
        session = SingleRun(
            arguments.get("graph", self.graph),
            feeds,
            arguments.get("outputs", asked(self.trace)),
            [*donated, *(name for name in arguments.get("donate", ()) if name not in donated)],
            arguments.get("policy", self.policy),
            record,
            dry=dry,
        )
        try:
            return whole(session.run_to_end())
        finally:
            if any(isinstance(change, (RunFirst, Reorder)) for change in changes):
                drop_plans(session.policy)

    def _decode(self, changes: Sequence[Change], most: int | None, dry: Any, record: bool = True) -> Trace:
        trace, options = self.trace, self.trace.options
        arguments = self._arguments(changes)
        runs = len(trace.runs)
        if most is not None:
            runs = min(runs, max(2, most // self._longest))
        fed = len(trace.runs) - (options.max_new_tokens or 0) if options.chunk else 0
        arguments["max_new_tokens"] = max(1, runs - max(fed, 0))
        if trace.recipe is not None:
            return whole(
                trace.recipe.session(**{**arguments, "detail": None, "record": record, "dry": dry}).run_to_end()
            )
        prompt, given = _prompt(self.index)
        # It ends after its recorded tokens.
        options = replace(options, tokenizer=None, stop_tokens=())
        usual = {"graph": self.graph, "policy": self.policy, "options": options}
        asked = {**usual, **arguments, "record": record, "dry": dry}
        return whole(DecodeSession(prompt=prompt, inputs=given, **asked).run_to_end())


def reaches_over_runs(trace: Trace, changes: Sequence[Change]) -> bool:
    """Whether changes affect the caches that a later run of a decode gets."""
    return trace.options.kind == "decode" and any(isinstance(c, (Capacity, GrowAfter, UsePolicy)) for c in changes)


def _feeds(index: Index, run: int, graph: Graph) -> tuple[dict[str, Any], list[str]]:
    """Inputs with the layouts of a run's inputs, and the names of those that it owned."""
    trace, frame = index.trace, index.frames[index.mains[run]]
    given = None if run else trace.options.given
    spots = {} if given is None else given.layouts
    replayer = trace.replayer
    entry = replayer.runs[run] if replayer is not None and run < len(replayer.runs) else None
    known = {} if entry is None else entry.kept.values
    bound = {bind.name: bind for bind in frame.bindings if bind.how not in ("weight", "captured by value")}
    often = Counter(bind.storage for bind in bound.values())
    # A storage is recorded with its final size; it was smaller before an op extended it.
    grew: Counter[int] = Counter()
    for step, storage, more in trace.log.grew:
        grew[storage] += more if step >= trace.runs[run].first else 0
    blocks: dict[Any, np.ndarray] = {}
    feeds: dict[str, Any] = {}
    # An input that no op reads may share memory with another one.
    storages = {spots[name].block: bind.storage for name, bind in bound.items() if name in spots}
    inputs = graph.inputs if given is None else (*graph.inputs, *graph.overridable)
    for value in inputs:
        name = value.name
        if name in bound or (given is not None and name not in given.names):
            continue
        feeds[name], spot = known.get(name), spots.get(name)
        if feeds[name] is None:
            shape = [dim if isinstance(dim, int) else 1 for dim in value.shape or ()]
            feeds[name] = ghost(shape, value.dtype or np.dtype("f4"))
        if spot is not None and spot.shape is not None and spot.block in storages:
            block = _block(blocks, storages[spot.block], spot.size, spot.reserved)
            feeds[name] = np.ndarray(spot.shape, spot.dtype, block, spot.offset, spot.strides)
    for name, bind in bound.items():
        kept = known.get(name)
        layout = bind.shape
        if layout is None:
            if kept is None:
                raise KvvizError(f"the input {name!r} is no tensor, and was not kept")
            feeds[name] = list(kept) if isinstance(kept, list) else kept
            continue
        bind = bind._replace(dtype=np.dtype(bind.dtype))
        size = trace.log.storages[bind.storage].capacity - grew[bind.storage]
        room = spots[name].reserved if name in spots else _room(trace, bind, size)
        strides = spots[name].strides if name in spots else _strides(index, run, bind)
        packed = packed_strides(layout, bind.dtype.itemsize)
        alone = often[bind.storage] == 1 and bind.storage not in blocks and room is None
        if alone and (strides or packed) == packed and size <= math.prod(layout) * bind.dtype.itemsize:
            small = isinstance(kept, np.ndarray) and kept.size <= _KNOWN and not is_ghost(kept)
            feeds[name] = np.array(kept) if small else ghost(layout, bind.dtype)
            continue
        if strides is None:
            strides = packed if room is None else packed_strides(room[0], bind.dtype.itemsize)
        block = _block(blocks, bind.storage, size, room)
        feeds[name] = np.ndarray(layout, bind.dtype, block, bind.offset, strides)
    unread = [name for name in trace.options.donate if name in feeds and name not in bound]
    return feeds, [*(name for name, bind in bound.items() if bind.how == "donated"), *unread]


def _block(blocks: dict[Any, np.ndarray], storage: int, size: int, room: Any) -> np.ndarray:
    """The bytes of a storage, as a ghost; with room to grow where it had some."""
    if storage not in blocks:
        block = ghost((size,), np.uint8) if room is None else reserved_block(room[0], room[1], room[2], True)
        blocks[storage] = block.reshape(-1).view(np.uint8)
    return blocks[storage]


def _room(trace: Trace, bind: Any, size: int) -> tuple[tuple[int, ...], np.dtype, int] | None:
    axis = next((c.axis for c in trace.caches if c.input == bind.name and c.protocol == "growing"), None)
    if trace.options.kind != "decode" or axis is None or bind.offset:
        return None
    row = math.prod(bind.shape[:axis] + bind.shape[axis + 1 :]) * bind.dtype.itemsize
    rows = size // row if row else 0
    later = trace.options.growth == "after"
    if rows * row != size or (rows <= bind.shape[axis] and not later and trace.options.kv_capacity is None):
        return None
    return (*bind.shape[:axis], rows, *bind.shape[axis + 1 :]), bind.dtype, axis


def _strides(index: Index, run: int, bind: Any) -> tuple[int, ...] | None:
    """The strides of an input that is an output of an earlier run; None for other inputs."""
    for frame, name in reversed(index.in_storage(bind.storage)):
        place = index.places[frame, name]
        if index.frames[frame].run >= run or place.bound:
            continue
        if place.shape == bind.shape and place.offset == bind.offset:
            return place.strides
    return None


def _describe_weights(trace: Trace) -> None:
    """Give the weights of a loaded model the layouts in its frames."""
    for frame in trace.log.frames:
        weights: Any = frame.program.graph.weights
        for bind in frame.bindings:
            if bind.how == "weight" and bind.shape is not None and weights[bind.name].shape != bind.shape:
                weights[bind.name] = ghost(bind.shape, np.dtype(bind.dtype))
                weights[bind.name].flags.writeable = False


def _as_recorded(trace: Trace) -> Graph:
    """The model of a loaded trace, with the recorded lengths of its caches if it does not state them, and with the
    caller's values instead of weights."""
    bound = {bind.name: bind.shape for bind in trace.log.frames[0].bindings} if trace.log.frames else {}
    axes = {cache.input: cache.axis for cache in trace.caches}
    inputs = []
    for value in trace.graph.inputs:
        lengths = bound.get(value.name) if value.name in axes else None
        if lengths is not None and value.shape is not None:
            shape = tuple(m if axis != axes[value.name] else n for axis, (n, m) in enumerate(zip(value.shape, lengths)))
            value = replace(value, shape=shape)
        inputs.append(value)
    graph, given = trace.graph, trace.options.given
    names = (given.names if given is not None else bound.keys()) & graph.weights.keys()
    instead = tuple(
        Value(name, None, bound.get(name)) for name in sorted(names) if name not in {v.name for v in inputs}
    )
    if inputs == list(graph.inputs) and not instead:
        return graph
    return replace(graph, inputs=tuple(inputs), overridable=instead)


def _prompt(index: Index) -> tuple[list[list[int]], dict[str, Any]]:
    """Placeholder tokens of a loaded decode, and the caller's other inputs."""
    trace = index.trace
    feeds, donated = _feeds(index, 0, index.trace.graph)
    tokens = feeds.pop(control_inputs(trace.graph)["tokens"])
    lent = [name for name in feeds if name in trace.options.lent or name in trace.options.donate]
    pasts = [cache.input for cache in trace.caches if cache.input in feeds and cache.input not in donated]
    given = {name: feeds[name] for name in (*lent, *pasts)}
    return [[0] * tokens.shape[1]] * tokens.shape[0], given
