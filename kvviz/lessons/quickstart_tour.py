"""Eight stops through a decode: what a KV cache holds, how it grows, who may overwrite what, and what else copies."""

from __future__ import annotations

from kvviz.errors import KvvizError
from kvviz.lessons.run_meters import step_that_makes
from kvviz.trace.guided_tour import Tour
from kvviz.trace.recording import Trace
from kvviz.trace.units import size


def quickstart_tour(trace: Trace, run: int = 6) -> Tour:
    """A tour of a decode with growing caches. All figures in its captions are those of the trace.

    ``run``: the decode step to show, from 1 on; the last one if there are fewer.

    Raises `KvvizError`: if the trace has no caches that grow, or has no decode step.
    """
    growing = [cache for cache in trace.caches if cache.protocol == "growing"]
    finished = min((len(cache.runs) for cache in growing), default=0)
    if not growing or finished < 2 or not trace.prompt:
        raise KvvizError("the quickstart's tour leads through a decode with growing caches and at least one step")
    run = max(1, min(run, finished - 1))
    cache = growing[min(2, len(growing) - 1)]
    prompt, first = len(trace.prompt), trace.runs[0]
    appends, writes = (step_that_makes(trace, cache.output, k).index for k in (run, 0))
    here, before = cache.runs[run], cache.runs[0]
    past = sum(one.runs[run].bytes_copied for one in growing)
    row = sum(one.runs[run].bytes_written for one in growing) - past
    peak = max(range(len(trace.log)), key=lambda i: trace.log[i].live)
    most = size(trace.log[peak].live)
    needs = (
        f"The prefill needs most, {most}: it computes all {prompt} tokens at once. A decode step computes one."
        if peak < first.last
        else f"Each word adds {size(row)} to the caches. The peak, {most}, is in decode step {trace.steps[peak].run}."
    )
    worst = max(range(trace.runs[run].first, trace.runs[run].last), key=lambda i: trace.log[i].copied)
    room = f"room is reserved for {here.capacity} rows" if here.capacity > here.valid else "no room is reserved"
    step, missed = trace.steps[appends], trace.steps[worst]
    in_place = "in place: it wrote its row after the old ones"
    decided = in_place if step.outcome == "in_place" else "into a new buffer: it copied the old rows there"
    prefill = (
        f"Every word is one run of the graph. The prompt, {prompt} tokens, is read in one run: the *prefill*. Every "
        "word after it took a run of its own: a *decode step*."
    )
    held = (
        f"The prefill leaves a *key* and a *value* of each token in {len(growing)} caches, two for each layer: one "
        f"*row* for each token. Here `{cache.name}` has {before.valid} rows; {room}."
    )
    grown = (
        f"A decode step reads only the word that was chosen last, and adds one row to each cache: {size(row)} in all. "
        f"The words before it are not computed again, their keys and values are still there: {here.valid} rows now."
    )
    copies = (
        f"Not all copies are the caches'. No op of this run copies more than this one, {size(missed.copied)}: the pane "
        "says why it could not run in place."
    )
    frontier = (
        "The *frontier* is all ops whose inputs exist and that have not run. Any of them could run next; the policy "
        f"`{trace.policy.name}` chooses one, and the list says what each would allocate and free."
    )
    owner = (
        "Every buffer has an *owner*. The model owns the weights, the caller owns what it lent, and the run owns what "
        "its ops made or what was donated to it: only that may be overwritten."
    )
    added = (
        "An op runs *in place* if it writes over an input that nothing reads again. "
        f"This `{step.op_type}` adds the row. It ran {decided}. In this run all caches together copied {size(past)} "
    )
    return (
        Tour("What a KV cache is")
        .stop(prefill, step=first.first, pane="words")
        .stop(held, step=writes, pane="caches")
        .stop(grown, step=appends, pane="caches")
        .stop(frontier, step=appends, pane="frontier")
        .stop(owner, step=appends, pane="inspector")
        .stop(f"{added}of the past.", step=appends, pane="inspector")
        .stop(copies, step=worst, pane="inspector")
        .stop(f"Bytes that are alive, step by step. {needs}", step=peak, pane="timeline")
    )
