"""A decode loop in onnxruntime beside its prediction: which present lies in which past, and what is copied for it.

Buffers are bound as by a caller's loop. Tokens, masks, positions and first caches are those of kvviz's own token loop;
only the runs are onnxruntime's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kvviz.decode.cache_protocols import is_fixed, kept_as, may_share, writers
from kvviz.decode.prompt import as_batch, tokenizer_for
from kvviz.decode.synthetic_inputs import generated
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine.sessions.io_binding import bind
from kvviz.errors import InputError
from kvviz.explain.sentences import sentence
from kvviz.graph.cache_pairs import CachePair, cache_pairs
from kvviz.graph.model import Graph
from kvviz.other_names import with_other_names
from kvviz.report.faces.hazard_table import hazards
from kvviz.report.faces.steps_table import Table
from kvviz.text.companions import json_file
from kvviz.trace.model_or_trace import as_graph, as_inputs
from kvviz.trace.recording import Trace
from kvviz.trace.records import Run
from kvviz.trace.schema.run_options import DECODE, RunOptions
from kvviz.trace.units import size
from kvviz.verification.session_record import bound_values, observe
from kvviz.verification.verified import Verified
from kvviz.verification.verify import notes_of, replay, timed_steps

PAST, NEW = "past", "new"


@dataclass(frozen=True, slots=True)
class VerifiedCache:
    """One cache in one run.

    ``cache``: its input.
    ``observed, predicted``: where its present lies: ``"past"`` in the memory of its own past, ``"new"`` in memory that
      no past has, else the input in whose memory it lies.
    ``moved, by_python``: observed bytes: rows of the past that are in a present at another address, which the run
      copied at least; and those that the call copied to return the present as a NumPy array.
    ``copied``: predicted bytes that the run copies on the way from the past to the present.
    ``why``: what the op that makes the present does to memory by the policy, and why.
    ``agrees``: it lies where predicted, and no more was moved than the prediction copies.
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
    """A greedy decode whose runs are made by an onnxruntime session. ``bound``: outputs that are bound to the buffers
    of inputs; other presents become pasts unchanged. None for a loop without IO binding, which passes NumPy arrays on.
    ``seen``: all caches, run by run."""

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
        self.trace.runs.append(Run(len(self.trace.runs), 0, 0))

    def decode_in(self, session: Any) -> None:
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
    found: int = value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
    return found


def _moved(past: np.ndarray, present: np.ndarray, axis: int | None) -> int:
    """Bytes of the rows of a past, except empty ones, that a present has in the same places."""
    if axis is None or past.ndim != present.ndim or not past.size:
        return 0
    before, after = np.moveaxis(past, axis, 0), np.moveaxis(present, axis, 0)[: past.shape[axis]]
    if before.shape != after.shape:
        return 0
    rows = (before == after).reshape(len(before), -1).all(1) & before.reshape(len(before), -1).any(1)
    return int(rows.sum()) * before[0].nbytes


BINDINGS = ("none", "io", "shared")
# Logits that differ by more than this part of the largest one are those of another computation.
_ROUNDING = 1e-3
_HAZARDS = 12
_COLUMNS = (
    ("run", "run", True, 5),
    ("steps", "presents", True, 8),
    ("in", "in", False, 40),
    ("moved", "moved", True, 10),
    ("by_python", "by Python", True, 10),
    ("copied", "predicted", True, 10),
)


@dataclass(frozen=True, repr=False)
class VerifiedDecode(Verified):
    """Where the caches of a decode lie, beside the prediction.

    Attributes
    ----------
    rows : tuple of VerifiedCache
        Those that differ first, then by run.
    binding : str
    tokens : tuple of int
        What onnxruntime generated after the first prompt.
    wrong : str
        Empty if the logits are those of the same loop without binding; else how they differ, and the hazards.
    """

    counted: ClassVar[tuple[str, str]] = ("present", "lie where predicted")

    rows: tuple[VerifiedCache, ...]
    binding: str = ""
    tokens: tuple[int, ...] = ()
    wrong: str = ""

    def facts(self) -> list[str]:
        """How the loop passes its caches on, and whether its result is wrong."""
        return [f"binding {self.binding!r}", *([f"WRONG RESULT: {self.wrong}"] if self.wrong else [])]

    def table(self) -> Table:
        """The presents of each run that lie in the same place, and sums of their bytes."""
        groups: dict[tuple[int, str], list[VerifiedCache]] = {}
        for one in sorted(self.rows, key=lambda one: one.run):
            groups.setdefault((one.run, one.observed), []).append(one)
        rows = [
            {"run": run, "steps": len(group), "in": lies}
            | {name: size(sum(getattr(one, name) for one in group)) for name in ("moved", "by_python", "copied")}
            for (run, lies), group in groups.items()
        ]
        return Table(rows, _COLUMNS, "rows of the past found at another address, beside what the run copies for them")

    def sections(self) -> list[tuple[str, list[str]]]:
        """An example of each op that makes a present."""
        return [("why", list({one.why.split()[0]: f"{one.cache}: {one.why}" for one in self.rows}.values()))]


@with_other_names
def verify_decode(
    model: Graph | str | os.PathLike[str],
    prompt: Any,
    max_new_tokens: int = 4,
    inputs: Mapping[str, Any] | None = None,
    options: Any = None,
    *,
    binding: str | None = None,
    kv_capacity: int | None = None,
) -> VerifiedDecode:
    """Decode in the installed onnxruntime, and compare where its caches lie with the policy's prediction.

    Parameters
    ----------
    model : path or Graph
        A decoder that onnxruntime can run here.
    prompt, max_new_tokens, inputs, kv_capacity
        As in `kvviz.decode`.
    options : onnxruntime.SessionOptions, optional
        As in `kvviz.verify`.
    binding : str, optional
        How the loop passes caches on. ``"none"``: ``session.run`` with NumPy arrays. ``"io"``: IO binding; presents
        that onnxruntime allocated are bound as pasts. ``"shared"``: IO binding; each cache of a fixed size, and each of
        GroupQueryAttention, is one buffer, bound as past and as present. By default what onnxruntime-genai does if its
        configuration lies beside the model (``past_present_share_buffer``), else ``"none"``.

    Returns
    -------
    VerifiedDecode

    Raises
    ------
    KvvizError
        Without onnxruntime, or if it refuses the model.
    InputError
        No cache can be bound to itself.

    Examples
    --------
    >>> found = kvviz.verify_decode("model.onnx", [5, 17, 33], binding="shared")             # doctest: +SKIP
    >>> found.agree, found.total, {one.observed for one in found.rows}                      # doctest: +SKIP
    (24, 24, {'past'})
    """
    graph, given = as_graph(model, "kvviz.verify_decode"), as_inputs(inputs)
    binding = _usual(graph) if binding is None else binding
    cache, bound = _bindings(graph, binding)
    tokens, mask = as_batch(prompt, tokenizer_for(graph, prompt, None, None)[0])
    if max_new_tokens < 1:
        raise InputError(f"max_new_tokens={max_new_tokens}: a decode that is compared has at least one token")
    rows = [row[keep].tolist() for row, keep in zip(tokens, mask.astype(bool))]
    feeds = generated(graph, {}, given, decoding=len(rows))
    chosen = replace(DECODE, max_new_tokens=max_new_tokens, kv_capacity=kv_capacity, cache=cache)

    def fed() -> dict[str, Any]:
        # The caller's initial caches are overwritten.
        return {name: np.array(value) for name, value in feeds.items()}

    loop = BoundLoop(graph, rows, chosen, fed(), bound)
    plain = None if bound is None else BoundLoop(graph, rows, replace(chosen, cache="growing"), fed(), None)

    def decode(session: Any) -> None:
        for one in filter(None, (loop, plain)):
            one.decode_in(session)

    record = observe(graph, decode, options)
    runs, _, policy, answers = replay(record)
    dry = _DryLoop(record.graph, rows, chosen, fed(), bind(policy, bound) if bound else policy, dry=answers)
    dry.bound = tuple((bound or {}).values())
    trace = dry.run_to_end()
    trace.title, trace.recipe = f"{graph.name}, as onnxruntime decodes", None
    timed_steps(trace, runs)
    wrong = "" if plain is None else _wrong(loop.trace, plain.trace, trace)
    caches = tuple(sorted(_compared(trace, loop.seen), key=lambda one: (one.agrees, one.run)))
    said = record.version, notes_of(record), binding, tuple(loop.trace.tokens), wrong
    return VerifiedDecode(caches, trace, "onnxruntime", *said)


def _bindings(graph: Graph, binding: str) -> tuple[str, dict[str, str] | None]:
    """How the caches of a loop are kept, and which outputs are bound to which inputs; None without IO binding."""
    if binding not in BINDINGS:
        raise InputError(f"binding must be one of {', '.join(BINDINGS)}, not {binding!r}")
    pairs = cache_pairs(graph)
    if all(pair.protocol == "cross" for pair in pairs):
        raise InputError(f"{graph.name} has no cache to follow; kvviz.verify compares a single run of it")
    if binding != "shared":
        return "growing", None if binding == "none" else {}
    cache = "shared" if any(map(may_share, pairs)) else "growing"
    shapes = {value.name: value.shape or () for value in (*graph.inputs, *graph.outputs)}

    def is_as_long(pair: CachePair) -> bool:
        past, present = (shapes[name][pair.axis :][:1] for name in (pair.input, pair.output))
        return pair.axis is not None and past == present and isinstance(next(iter(past), None), int)

    kept = [pair for pair in kept_as(pairs, cache) if pair.protocol == "state" or is_fixed(pair) or is_as_long(pair)]
    if not kept:
        kinds = ", ".join(sorted({op for pair in pairs for op in writers(pair)}))
        raise InputError(
            f"no cache of this graph can be bound to itself ({kinds}): a present is longer than its past, and "
            "onnxruntime refuses a buffer of another shape; use binding='io'"
        )
    return cache, {pair.output: pair.input for pair in kept}


class _DryLoop(DecodeSession):
    """A decode whose caller donates only the inputs in ``bound``."""

    bound: tuple[str, ...]

    def begin(self, feeds: Mapping[str, Any], donate: Sequence[str], carried: Any = None) -> None:
        super().begin(feeds, self.bound, carried)


def _compared(trace: Trace, seen: Sequence[VerifiedCache]) -> list[VerifiedCache]:
    caches = {cache.input: cache for cache in trace.caches}
    pasts = {frame.run: {one.storage: one.name for one in frame.bindings} for frame in trace.frames if not frame.path}
    steps = {(step.run, name): step for step in trace.steps if not step.frame for name in step.outputs}
    found = []
    for one in seen:
        if one.cache in caches:
            after = caches[one.cache].runs[one.run]
            lies, copied = pasts[one.run].get(after.storage, NEW), after.bytes_copied
            lies = PAST if lies == one.cache else lies
            why = sentence(steps[one.run, caches[one.cache].output], trace)
            if lies == PAST and copied:
                why += " That is the caller's buffer, but binding it saves no copy."
            agrees = one.observed == lies and one.moved <= copied
            one = replace(one, predicted=lies, copied=copied, why=why, agrees=agrees)
        found.append(one)
    return found


def _wrong(bound: Trace, plain: Trace, predicted: Trace) -> str:
    """How the logits of a bound loop differ from those of one without binding; empty if they do not."""
    off = max(float(np.abs(one - other).max()) for one, other in zip(bound.logits, plain.logits))
    if bound.tokens == plain.tokens and off <= _ROUNDING * max(float(np.abs(one).max()) for one in plain.logits):
        return ""
    why = dict.fromkeys(hazard.sentence for hazard in hazards(predicted) if hazard.broken)
    tokens = f"tokens {bound.tokens}, without binding {plain.tokens}"
    return "; ".join((tokens, f"logits differ by up to {off:.3g}", *list(why)[:_HAZARDS]))


def _usual(graph: Graph) -> str:
    """How onnxruntime-genai (0.16) passes on the caches of a model that its configuration lies beside."""
    said: Any = json_file((graph.folder or os.curdir,), "genai_config.json")
    search, kind = said.get("search") or {}, (said.get("model") or {}).get("type")
    shares = search.get("past_present_share_buffer") and (search.get("num_beams", 1) == 1 or kind == "whisper")
    return "none" if not said else "shared" if shares else "io"
