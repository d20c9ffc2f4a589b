"""What a query finds is what a plain loop over the records of the steps finds, whatever it asks for."""

import operator
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.order.what_if import reorder
from kvviz.graph.blocks import blocks
from kvviz.query.found_steps import test_for as asked_of_each
from kvviz.query.query_reader import read_query
from kvviz.trace.records import Step
from tests.ggml.seed_graphs import kv
from tests.test_models import graph_of
from tests.view.golden import TRACES
from tests.view.query_cases import FOR_ALL

SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ":": operator.eq,
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "!=": operator.ne,
}
NAMES = ("growing", "appended", "bodies", "voice", "quantized", "device")


@pytest.fixture(scope="module")
def traces() -> dict[str, kvviz.Trace]:
    return {name: TRACES[name]() for name in NAMES}


def iteration(step: Step, trace: kvviz.Trace) -> int | None:
    frame = trace.frames[step.frame_id]
    while frame.iteration is None and frame.parent is not None:
        frame = trace.frames[frame.parent]
    return frame.iteration


def freed(step: Step, trace: kvviz.Trace) -> int:
    total = 0
    for storage in step.freed:
        record = trace.storages[storage]
        later = sum(more for at, more in record.grew if at > step.index)
        total += 0 if storage in trace.log.later else record.capacity - later
    return total


NUMBERS: dict[str, Callable[[Step, kvviz.Trace], int | None]] = {
    "step": lambda step, trace: step.index,
    "run": lambda step, trace: step.run,
    "allocated": lambda step, trace: step.allocated,
    "copied": lambda step, trace: step.copied,
    "written": lambda step, trace: step.written,
    "live": lambda step, trace: step.live_bytes,
    "bytes": lambda step, trace: sum(out.nbytes for out in step.outs),
    "freed": freed,
    "depth": lambda step, trace: len(step.frame),
    "iteration": iteration,
}
TEXTS: dict[str, Callable[[Step, kvviz.Trace], list[str]]] = {
    "op": lambda step, trace: [step.op_type, step.graph_node.qualified_op],
    "dtype": lambda step, trace: [out.dtype for out in step.outs],
    "how": lambda step, trace: [out.how for out in step.outs],
    "blocker": lambda step, trace: [blocker.code.value for blocker in step.decision.blockers],
    "shape": lambda step, trace: [
        "" if out.shape is None else f"[{','.join(map(str, out.shape))}]" for out in step.outs
    ],
}
PARTS: dict[str, Callable[[Step, kvviz.Trace], list[str]]] = {
    "name": lambda step, trace: [step.node],
    "scope": lambda step, trace: ["/".join(step.graph_node.scope)],
    "value": lambda step, trace: [name for name in (*step.inputs, *step.outputs) if name],
    "frame": lambda step, trace: [" › ".join(step.frame) or "main"],
}


def lies_in_an_input(step: Step) -> bool:
    """Whether an output was written into memory of an input, or took it over."""
    written = any(out.how in ("in place", "append") for out in step.outs)
    return written or (step.decision.dispatch == "in_place" and bool(step.decision.shares))


DECISIONS: dict[str, Callable[[Step], bool]] = {
    "in_place": lies_in_an_input,
    "elsewhere": lambda step: step.decision.dispatch == "in_place" and not lies_in_an_input(step),
    "run": lambda step: step.decision.dispatch == "run",
    "copied": lambda step: step.copied > 0,
    "view": lambda step: any(out.how == "view" for out in step.outs),
    "foreign": lambda step: step.foreign,
}


def naive(trace: kvviz.Trace, test: Callable[[Step], bool]) -> list[int]:
    return [step.index for step in trace.steps if test(step)]


def quoted(text: str) -> str:
    return f'"{text}"'


@given(data=st.data())
def test_numbers_find_what_a_loop_finds_in_its_order(traces: dict[str, kvviz.Trace], data: st.DataObject) -> None:
    trace = traces[data.draw(st.sampled_from(NAMES))]
    field = data.draw(st.sampled_from(sorted(NUMBERS)))
    sign = data.draw(st.sampled_from(sorted(SIGNS)))
    # Numbers that steps have, and their neighbours.
    some = NUMBERS[field](trace.steps[data.draw(st.integers(0, len(trace.steps) - 1))], trace)
    number = max(0, (some or 0) + data.draw(st.integers(-1, 1)))
    high = data.draw(st.integers(0, 200_000))
    keys = [NUMBERS[field](step, trace) for step in trace.steps]
    held = [i for i, own in enumerate(keys) if (SIGNS[sign](own, number) if own is not None else sign == "!=")]
    between = [i for i, own in enumerate(keys) if own is not None and number <= own <= high]
    assert list(trace.find(f"{field}{sign}{number}").numbers) == held
    assert list(trace.find(f"{field}:{number}..{high}").numbers) == between
    # what has no number comes last, whichever way
    down, limit = data.draw(st.booleans()), data.draw(st.integers(1, 50))
    known = sorted((-key if down else key, i) for i, key in enumerate(keys) if key is not None)
    wanted = [i for _, i in known] + [i for i, key in enumerate(keys) if key is None]
    assert list(trace.find(f"sort:{'-' if down else ''}{field} limit:{limit}").numbers) == wanted[:limit]


@given(data=st.data())
def test_words_and_texts_find_what_a_loop_finds(traces: dict[str, kvviz.Trace], data: st.DataObject) -> None:
    trace = traces[data.draw(st.sampled_from(NAMES))]
    field = data.draw(st.sampled_from(sorted(TEXTS | PARTS)))
    told = (TEXTS | PARTS)[field]
    own = [text for text in told(trace.steps[data.draw(st.integers(0, len(trace.steps) - 1))], trace) if text]
    text = data.draw(st.sampled_from(own)) if own else "NOT_LAST_USE"
    if '"' in text or "*" in text:
        return
    part = field in PARTS and data.draw(st.booleans())
    if part:
        start = data.draw(st.integers(0, len(text) - 1))
        text = text[start : start + data.draw(st.integers(1, 8))]
        hits = naive(trace, lambda step: any(text.lower() in one.lower() for one in told(step, trace)))
        assert list(trace.find(f"{field}:{quoted(text)}").numbers) == hits
        return
    hits = naive(trace, lambda step: text.lower() in [one.lower() for one in told(step, trace)])
    assert list(trace.find(f"{field}={quoted(text.upper())}").numbers) == hits
    assert list(trace.find(f"-{field}={quoted(text)}").numbers) == sorted({*range(len(trace.steps))} - {*hits})
    assert trace.find(f"{field}!={quoted(text)}").numbers == trace.find(f"-{field}={quoted(text)}").numbers


@pytest.mark.parametrize("name", NAMES)
def test_decisions_find_what_a_loop_finds(traces: dict[str, kvviz.Trace], name: str) -> None:
    trace = traces[name]
    for decision, holds in DECISIONS.items():
        assert list(trace.find(f"is:{decision}").numbers) == naive(trace, holds), decision
    taken = set(trace.find("is:in_place|elsewhere|missed|foreign|view").numbers)
    assert list(trace.find("is:new").numbers) == sorted({*range(len(trace.steps))} - taken)


@pytest.mark.parametrize("name", ["growing", "appended", "quantized"])
def test_missed_steps_are_those_of_the_report_to_the_byte(traces: dict[str, kvviz.Trace], name: str) -> None:
    trace = traces[name]
    entries = kvviz.explain(trace).missed
    steps = sorted(step for entry in entries for step in entry.steps)
    assert list(trace.find("is:missed").numbers) == steps
    assert steps
    found = trace.find("missed>0")
    assert list(found.numbers) == steps
    assert sum(max(step.allocated, step.copied) for step in found) == sum(entry.bytes for entry in entries)


@pytest.mark.parametrize("name", NAMES)
def test_a_buffer_finds_the_steps_that_read_or_write_it(traces: dict[str, kvviz.Trace], name: str) -> None:
    trace = traces[name]
    where: dict[tuple[int, str], tuple[int, int]] = {}
    touched: dict[tuple[int, int], set[int]] = {}
    for frame in trace.frames:
        where.update({(frame.id, bound.name): (bound.storage, bound.generation) for bound in frame.bindings})
    for step in trace.steps:
        reads = [where[step.frame_id, name] for name in step.inputs if (step.frame_id, name) in where]
        for out in step.outs:
            where[step.frame_id, out.name] = (out.storage, out.generation)
        for place in (*reads, *((out.storage, out.generation) for out in step.outs)):
            touched.setdefault(place, set()).add(step.index)
    for (storage, generation), steps in list(touched.items())[:60]:
        whole = sorted(set().union(*(found for (s, _), found in touched.items() if s == storage)))
        assert list(trace.find(f"B{storage}").numbers) == whole
        assert list(trace.find(f"buffer:B{storage}.{generation}").numbers) == sorted(steps)


def test_layers_and_blocks_are_those_of_the_page(traces: dict[str, kvviz.Trace]) -> None:
    trace = traces["growing"]
    titles = {id(node): block.title for block in blocks(trace.graph, trace.frames[0].order) for node in block.nodes}
    for layer in ("layer 0", "layer 1"):
        wanted = [step.index for step in trace.steps if titles[id(step.graph_node)].startswith(layer)]
        assert wanted
        assert list(trace.find(layer).numbers) == wanted
    title = titles[id(trace.steps[100].graph_node)]
    assert list(trace.find(f'block="{title}"').numbers) == naive(trace, lambda s: titles[id(s.graph_node)] == title)
    # and texts are ordered with their numbers as numbers
    steps = list(trace.find("sort:block op:MatMul"))
    layers = [int(text) for step in steps for text in re.findall(r"layers\.(\d+)", step.node)]
    assert layers == sorted(layers) and len(set(layers)) > 1


@given(data=st.data())
def test_parts_are_joined_as_sets_are(traces: dict[str, kvviz.Trace], data: st.DataObject) -> None:
    trace = traces[data.draw(st.sampled_from(NAMES))]
    one = st.sampled_from(
        ["is:view", "copied>0", "op:Add", "live>1kB", "missed", "why:OP_CANNOT", "depth:0", "step<40"]
    )
    a, b, c = data.draw(one), data.draw(one), data.draw(one)

    def found(text: str) -> set[int]:
        return set(trace.find(text).numbers)

    everything = found("")
    assert everything == set(range(len(trace.steps)))
    assert found(f"{a} {b}") == found(a) & found(b)
    assert found(f"{a} or {b}") == found(a) | found(b)
    assert found(f"-{a}") == everything - found(a)
    assert found(f"{a} -({b} or {c})") == found(a) - (found(b) | found(c))
    assert found(f"{a} {b} or {c}") == (found(a) & found(b)) | found(c)


@pytest.mark.parametrize("name", NAMES)
def test_steps_that_are_asked_in_groups_answer_as_each_of_them_does(traces: dict[str, kvviz.Trace], name: str) -> None:
    trace = traces[name]
    for text in (text for text in FOR_ALL if not re.search("sort|limit", text)):
        test = asked_of_each(trace, read_query(text).part)
        assert list(trace.find(text).numbers) == [step for step in range(len(trace.log)) if test(step)], text


def test_words_of_a_story_and_labels_of_runs_are_found() -> None:
    words = [f"w{i}" for i in range(200)]
    trace = kvviz.decode(graph_of("storyteller/attention_23"), [1, 5, 9], 3, tokenizer=words, progress=False)
    run = trace.runs[1]
    wanted = list(range(run.first, run.last))
    for text in (f'word:"{run.text.strip()}"', "decode 1", "decode step 1", "run:1", 'run:"decode 1"', "token 1"):
        assert list(trace.find(text).numbers) == wanted, text
    assert set(wanted) <= set(trace.find(f'"{run.text.strip()}"').numbers)
    assert list(trace.find("prefill").numbers) == list(range(trace.runs[0].first, trace.runs[0].last))


def test_a_cache_finds_the_ops_that_touch_the_block_it_came_in_or_left_in(traces: dict[str, kvviz.Trace]) -> None:
    trace = traces["growing"]
    cache = trace.caches[0]
    for run in trace.runs:
        left = cache.runs[run.index].storage
        found = set(trace.find(f'cache="{cache.name}" run:{run.index}').numbers)
        writes = {s.index for s in trace.steps[run.first : run.last] if any(out.storage == left for out in s.outs)}
        reads = {s.index for s in trace.steps[run.first : run.last] if cache.input in s.inputs}
        assert writes and writes | reads <= found


def test_what_was_found_is_a_sequence_and_a_table(traces: dict[str, kvviz.Trace]) -> None:
    trace = traces["growing"]
    found = trace.find("op:Concat sort:-copied limit:3")
    assert [step.index for step in found] == list(found.numbers)
    assert found[0].op_type == "Concat"
    assert [step.index for step in found[1:]] == list(found.numbers[1:])
    assert found.table().rows == trace.table(found.numbers).rows
    assert repr(found).startswith(f"3 of {len(trace.steps):,} steps: op:Concat sort:-copied limit:3\n")
    assert "<table>" in found._repr_html_()
    assert repr(trace.find("op:Nothing")) == f"0 of {len(trace.steps):,} steps: op:Nothing"
    with pytest.raises(KvvizError, match=r'no field "coppied"; did you mean "copied"; there are step, run'):
        traces["growing"].find("op:Concat coppied>0")


def test_steps_of_hidden_pairs_are_found_by_kind_and_by_what_the_order_does_to_them() -> None:
    # given a read that one order has behind its write, and another one before it
    graph = kv().graph
    found = reorder(graph, [2, 3, 0, 1])
    for trace, state, other in ((found.before, "hidden", "broken"), (found.trace, "broken", "hidden")):
        (hazard,) = kvviz.hazards(trace)
        steps = (hazard.first, hazard.second)
        for query in (state, f"hazard:{state}", "RAW", "kind:raw", f"is!=missed hazard:{other}|RAW"):
            assert trace.find(query).numbers == steps, query
        assert not trace.find(f"hazard:{other}").numbers and not trace.find("hazard:WAR|WAW").numbers
        assert len(trace.find("-hidden -broken")) == len(trace.steps) - 2


def test_what_is_found_says_which_runs_could_not_be_searched_and_how_to_record_them() -> None:
    graph = graph_of("storyteller/gqa")
    some = kvviz.decode(graph, [1, 5, 9], 6, detail=[0, 5], progress=False)
    whole = kvviz.decode(graph, [1, 5, 9], 6, progress=False)
    offer = "runs 1..4 kept no steps and could not be searched; to keep them, decode again with detail=range(1, 5)"
    assert repr(some.find("run:3")).endswith(offer) and offer in repr(some.find("run:5"))
    assert "kept no steps" not in repr(whole.find("run:77"))
    assert kvviz.decode(graph, [1, 5, 9], 6, detail=range(1, 5), progress=False).find("run:3")
