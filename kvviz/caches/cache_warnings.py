"""Errors and waste in the caches of a trace, each with its cause and a remedy.

Everything is read from the meters and the recording, so a saved trace gives the same warnings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvviz.caches.cache_facts import Scene, spans_text
from kvviz.caches.row_contents import NO_TOKEN, both, count, live, minus, stale
from kvviz.errors import quoted
from kvviz.graph.model import Node
from kvviz.trace import units
from kvviz.trace.blockers import BlockerCode, codes, rules
from kvviz.trace.index.frame_values import RunFrames
from kvviz.trace.model_or_trace import as_trace
from kvviz.trace.reasons import decision_of
from kvviz.trace.recording import Trace
from kvviz.trace.records import Rows
from kvviz.trace.schema.events import APPEND, IN_PLACE, VIEW
from kvviz.trace.trace_data import noted

Problem = tuple[str, str, str]
"""A key for the cause, what happened and why, and what to do."""


@dataclass(frozen=True, slots=True)
class CacheWarning:
    """One problem with a cache; ``str()`` gives the sentence."""

    kind: str  # one of `KINDS`
    cache: str  # name of the cache's input
    run: int  # the first run in which it happened
    runs: int  # number of runs in which it happened for the same cause
    sentence: str  # what happened, why, and what to do

    def __str__(self) -> str:
        return self.sentence


def cache_warnings(trace: Trace) -> tuple[CacheWarning, ...]:
    """All problems with the caches of a trace, by kind; kinds that make results wrong come first.

    Parameters
    ----------
    trace : Trace
        Recorded here or loaded from a file.

    Returns
    -------
    tuple of CacheWarning
        One for each cache, kind and cause. Rows whose masks depend on more than the control inputs are not checked, nor
        are runs whose steps were not kept.

    Examples
    --------
    >>> for warning in cache_warnings(trace):                               # doctest: +SKIP
    ...     print(warning)
    """
    trace = as_trace(trace, "kvviz.cache_warnings")
    frames = [RunFrames(trace, run.index) for run in trace.runs]
    found: dict[tuple[str, str, str], list[tuple[int, Problem]]] = {}
    for cache in trace.caches:
        if cache.protocol in ("state", "cross") or cache.axis is None:
            continue
        for run, entry in enumerate(cache.runs):
            if not frames[run].rows:
                continue
            scene = Scene(trace, frames[run], cache, entry)
            for kind, check in _KINDS.items():
                found_here = check(scene)
                if found_here is not None:
                    found.setdefault((kind, cache.input, found_here[0]), []).append((run, found_here))
    return tuple(
        CacheWarning(kind, cache, runs[0][0], len(runs), _sentence(runs))
        for (kind, cache, _), runs in sorted(found.items(), key=lambda one: KINDS.index(one[0][0]))
    )


def _sentence(runs: list[tuple[int, Problem]]) -> str:
    first, (_, happened, advice) = runs[0]
    more = len(runs) - 1
    again = f" (and in {units.count(more, 'more run')})" if more else ""
    return f"run {first}{again}: {happened}; {advice}"


def _stale(scene: Scene) -> Problem | None:
    for item in scene.entry.items:
        wrong = minus(item.read or (), live(item.held))
        if wrong:
            why, advice = _length_or_mask(scene, item)
            text = f"attention may read {spans_text(wrong)} of {scene.cache.name} ({_are(item, wrong)}), because {why}"
            return why.split()[0], text, advice
    return None


def _are(item: Rows, wrong: tuple) -> str:
    dead = count(both(wrong, stale(item.held)))
    if not dead:
        return "never written"
    return "no live token" if dead == count(wrong) else "no live token, or never written"


def _length_or_mask(scene: Scene, item: Rows) -> tuple[str, str]:
    """Which input lets attention see so many rows, and its correct value."""
    seen = max((stop for _, stop in item.read or ()), default=0)
    tokens = count(both(live(item.held), [(0, seen)]))
    for reader in scene.readers:
        for place, name in enumerate(reader.node.inputs):
            if (reader.node.op_type, place) in (("Attention", 6), ("GroupQueryAttention", 5)) and name:
                return (
                    f"{quoted(name, 60)} counts {units.count(seen, 'row')} and {tokens} of them hold tokens",
                    "give the number of rows that hold tokens once the run has written its own",
                )
    return "no mask hides them", "mask the rows that hold no token, or give attention the number of valid rows"


def _hidden(scene: Scene) -> Problem | None:
    """The run's last token is not attended to, usually because the valid rows were counted before the write."""
    if not scene.reads_what_it_wrote():
        return None
    for item in scene.entry.items:
        newest = _newest(item)
        if item.read is None or newest is None or both(item.read, [(newest, newest + 1)]):
            continue
        wrote = spans_text(item.wrote)
        seen = max((stop for _, stop in item.read), default=0)
        counted = next((r.node.inputs[6] for r in scene.readers if _counts(r.node)), "")
        if not counted:
            text = f"attention does not read {spans_text(((newest, newest + 1),))} of {scene.cache.name}, just written"
            advice = "let the mask end after the row of the last token, which is the place of the last query"
            return "mask", f"{text}, because the mask or causality hides it", advice
        early = seen == min(start for start, _ in item.wrote)
        text = (
            f"{scene.cache.name} got {wrote}, but {quoted(counted, 60)} counts {units.count(seen, 'row')}, so that "
            "attention does not read the newest token: the count was "
            f"{'taken before the write' if early else 'too small'}"
        )
        index = scene.index_input()
        return "count", text, f"give {quoted(counted, 60)} = {newest + 1}, which is {index} and the rows written"
    return None


def _counts(node: Node) -> bool:
    return (node.op_type, node.domain) == ("Attention", "") and bool(node.given(6))


def _newest(item: Rows) -> int | None:
    written = [
        (position + stop - 1 - start, stop - 1)
        for a, b, first in item.held
        if first != NO_TOKEN
        for start, stop, position in ((low, high, first + low - a) for low, high in both(item.wrote, [(a, b)]))
    ]
    return max(written)[1] if written else None


def _overwritten(scene: Scene) -> Problem | None:
    """Tokens were overwritten that the run's first query still attends to."""
    item = max(scene.entry.items, key=lambda one: one.lost, default=None)
    if item is None or not item.lost:
        return None
    name, lost, wrote = scene.cache.name, units.count(item.lost, "token"), spans_text(item.wrote)
    if scene.cache.protocol == "window":
        text = (
            f"{units.count(count(item.wrote), 'row')} wrapped around in the {units.count(scene.rows, 'row')} of {name} "
            f"and overwrote {lost} in the window of the run's first query"
        )
        return "wrap", text, f"feed fewer tokens at once, or make the cache {units.count(item.lost, 'row')} longer"
    text = f"{name} got {wrote}, over {lost} that attention still reads, because of {scene.index_input()}"
    return "index", text, "write after the rows that hold tokens"


def _capacity(scene: Scene) -> Problem | None:
    """A cache grew although it has free rows: its capacity was taken for its valid length."""
    had, has, items = scene.past_rows, scene.rows, scene.entry.items
    if scene.cache.protocol != "growing" or not items or had is None or has <= had:
        return None
    free = []
    for item in items:
        tokens = live(item.held)
        # Padding in front of the first token is no gap.
        free.append(count(minus([(tokens[0][0], has)], tokens)) if tokens else 0)
    if not min(free):
        return None
    text = (
        f"{scene.cache.name} grew from {had} to {units.count(has, 'row')}, although {min(free)} of them hold no token: "
        f"the capacity of the past was taken for its valid length"
    )
    if any(link.node.op_type == "GroupQueryAttention" for _, link in scene.writers):
        advice = "let total_sequence_length count tokens, so that past and present can be one buffer"
    else:
        advice = "give the past without its empty rows, in a buffer of kvviz.reserve where it should have room"
    return "grew", text, advice


def _thrown(scene: Scene) -> Problem | None:
    """The input had room for more rows, but the cache moved to another buffer."""
    block, had = scene.past_block, scene.past_rows
    # A caller who makes room after the run has followed the advice.
    if scene.cache.protocol != "growing" or block is None or had is None or scene.entry.bytes_moved_outside:
        return None
    storage, room, how = block
    if how != "donated" or room <= had or scene.entry.storage == storage or scene.entry.capacity > scene.rows:
        return None
    text = f"the buffer B{storage} with room for {units.count(room, 'row')} of {scene.cache.name} was thrown away"
    if not scene.way.reached:
        why, advice = "because the branch that ran makes the cache anew", "reserve room after that run: growth='after'"
    else:
        why, advice = _refused(scene)
    return "thrown", f"{text}, {why}", advice


def _copied(scene: Scene) -> Problem | None:
    """Past and present were alive at once, and rows were copied from one to the other."""
    if not scene.entry.bytes_copied or scene.entry.generations < 2 or not scene.way.reached or not scene.past_rows:
        return None
    why, advice = _refused(scene)
    text = (
        f"{scene.entry.generations} storages with {scene.cache.name} were alive at once and its rows were copied, {why}"
    )
    return why, text, advice


def _refused(scene: Scene) -> tuple[str, str]:
    """Why the first op that moved the cache to another storage did not stay in the old one, and what would help."""
    log = scene.trace.log
    for step, link in scene.writers:
        where = log.output(step, link.output)
        if where is None or where.how in (IN_PLACE, VIEW, APPEND) or not log.moved(step)[0]:
            continue
        node = link.node
        past = node.inputs[link.past] if link.past >= 0 else ""
        found = _reasons(scene.trace, step)
        reasons = [(code, culprit, message) for name, code, culprit, message in found if name in ("", past)]
        if reasons:
            causes = [_cause(code, message) for code, _, message in reasons]
            # The messages share a prefix: which op could not do what to which value.
            causes[1:] = [cause.partition(": ")[2] or cause for cause in causes[1:]]
            advice = dict.fromkeys(_advice(code, culprit, scene) for code, culprit, _ in reasons)
            return f"because {', and '.join(causes)}", ", and ".join(advice)
        return f"because {node.qualified_op} {quoted(node.name, 60)} always makes a copy", "use another operator there"
    return "because an op made the cache anew", "let the op that writes the cache read the past itself"


def _reasons(trace: Trace, step: int) -> list[tuple[str, BlockerCode, str, str]]:
    """Input, code, culprit and message of the blockers of a step. Reasons that name no other op are the same whenever a
    node is refused for them, but for lengths."""

    def found() -> list[tuple[str, BlockerCode, str, str]]:
        return [(b.input, b.code, b.culprit, b.message) for b in decision_of(trace, step).blockers]

    masks = trace.log.refused(step)
    if not masks or not all(_ALONE.issuperset(codes(mask)) and not rules(mask) for _, mask in masks):
        return found()
    return noted(trace.notes, ("refused", id(trace.log.called(step)[1]), masks), found)


_ALONE = {BlockerCode.NO_CAPACITY, BlockerCode.BORROWED_INPUT, BlockerCode.CONSTANT, BlockerCode.NOT_CONTIGUOUS}


def _cause(code: BlockerCode, message: str) -> str:
    # Lengths differ from run to run, and are not separate causes.
    return message.partition(": it ")[0] if code is BlockerCode.NO_CAPACITY else message


def _advice(code: BlockerCode, culprit: str, scene: Scene) -> str:
    name = quoted(scene.cache.input, 60)
    if code is BlockerCode.NO_CAPACITY and scene.cache.protocol == "window":
        return "keep the window in a buffer of its own size, where new rows take the place of the oldest"
    if code is BlockerCode.NO_CAPACITY and scene.frames.run and not scene.first_way.reached:
        return "reserve room after the first run, which makes the cache anew: growth='after'"
    if code is BlockerCode.NOT_CONTIGUOUS:
        return "a run that finds the cache in that layout does not pay again"
    if code is BlockerCode.NO_CAPACITY:
        return f"reserve room: kv_capacity= in a decode, kvviz.reserve for {name} in a run"
    if code is BlockerCode.BORROWED_INPUT:
        return f"donate {name}"
    if code in (BlockerCode.NOT_LAST_USE, BlockerCode.CAPTURED_BY_REFERENCE, BlockerCode.ALIASED):
        return f"let {culprit or 'the other reader'} read before the cache is written"
    if code is BlockerCode.POLICY:
        return "that is a rule of the policy"
    if code is BlockerCode.REQUESTED_OUTPUT:
        return "do not ask for the past as an output"
    return "no change of the inputs helps here"


_KINDS: dict[str, Callable[[Scene], Problem | None]] = {
    "stale rows attended": _stale,
    "newest row not attended": _hidden,
    "live rows overwritten": _overwritten,
    "capacity taken for length": _capacity,
    "reserve thrown away": _thrown,
    "past copied": _copied,
}
KINDS = tuple(_KINDS)
"""The kinds of warnings; those that make results wrong come first."""
