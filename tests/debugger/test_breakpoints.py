"""Where to stop: every kind of breakpoint, counts, conditions and their errors, forwards and backwards."""

from __future__ import annotations

from typing import Any

import pytest

from kvviz.debugger.breakpoints import DECISIONS, KINDS, Breakpoint
from kvviz.errors import KvvizError
from kvviz.trace.records import Step
from tests.debugger.cursors import live, recorded, recording


def stops(name: str, *breakpoints: Breakpoint) -> list[int]:
    """Where a continue stops, again and again, over a recording and (which must be the same) live."""
    found: list[list[int]] = []
    for cursor in (recorded(name), live(name)):
        for point in breakpoints:
            point.hits = 0
        cursor.breakpoints = list(breakpoints)
        found.append([])
        while (stop := cursor.resume()).reason == "breakpoint":
            assert stop.breakpoint in breakpoints and stop.position == cursor.position
            found[-1].append(stop.position)
        assert stop.reason == "end"
    assert found[0] == found[1]
    return found[0]


def where(name: str, condition: Any) -> list[int]:
    return [step.index for step in recording(name).steps if condition(step)]


@pytest.mark.parametrize("name", ["bodies", "merged_if"])
def test_a_node_or_an_op_type_stops_wherever_it_runs(name: str) -> None:
    node = recording(name).steps[6].node
    assert stops(name, Breakpoint("node", node)) == where(name, lambda s: s.node == node)
    for op in {step.op_type for step in recording(name).steps[:20]}:
        assert stops(name, Breakpoint("op", op)) == where(name, lambda s, op=op: s.op_type == op)


def test_an_op_of_another_domain_is_named_with_it_or_without() -> None:
    qualified, plain = Breakpoint("op", "com.microsoft.GroupQueryAttention"), Breakpoint("op", "GroupQueryAttention")
    assert stops("gqa", qualified) == stops("gqa", plain) == where("gqa", lambda s: s.op_type == "GroupQueryAttention")


def test_a_buffer_stops_where_it_is_written_shared_or_freed() -> None:
    trace = recording("bodies")
    storage = next(s.id for s in trace.storages if s.name == "a")
    expected = where("bodies", lambda s: storage in s.freed or storage in [out.storage for out in s.outs])
    for value in (storage, f"B{storage}", f"B{storage}.2", str(storage)):
        assert stops("bodies", Breakpoint("buffer", value)) == expected
    assert len(expected) >= 2


@pytest.mark.parametrize("name", ["bodies", "concat"])
def test_a_decision_or_a_query_stops_where_it_finds_a_step(name: str) -> None:
    for text in DECISIONS:
        assert stops(name, Breakpoint("decision", text)) == list(recording(name).find(f"is:{text}").numbers)
    for text in ("is:run written>0", "missed or is:view", "depth>0 -op:Add", "-live>200"):
        found = recording(name).find(text).numbers
        assert stops(name, Breakpoint("query", f"{text} sort:-live limit:2")) == list(found)


def deep(step: Step) -> bool:
    return step.live_bytes > 50 and step.copied == 0


def test_a_condition_is_a_function_of_the_step_or_a_text_that_says_the_same() -> None:
    cases: list[tuple[Any, Any]] = [
        (deep, deep),
        ("copied > 0", lambda s: s.copied > 0),
        ("op_type == 'Concat' and not foreign", lambda s: s.op_type == "Concat" and not s.foreign),
        ("'Con' in op_type", lambda s: "Con" in s.op_type),
        ("'attn' in node or step.index<3", lambda s: "attn" in s.node or s.index < 3),
        ("not (run == 0 or copied == 0)", lambda s: not (s.run == 0 or s.copied == 0)),
        ("run == 0 or copied > 0 and index > 20", lambda s: s.run == 0 or (s.copied > 0 and s.index > 20)),
        ('decision.dispatch == "in_place"', lambda s: s.decision.dispatch == "in_place"),
        ("'NO_CAPACITY' in decision.blockers", lambda s: any(b.code == "NO_CAPACITY" for b in s.decision.blockers)),
        (
            "'view' in outs.how and live_bytes >= 100",
            lambda s: any(o.how == "view" for o in s.outs) and s.live_bytes >= 100,
        ),
    ]
    for condition, meant in cases:
        expected = where("concat", meant)
        assert 0 < len(expected) < len(recording("concat").steps)
        assert stops("concat", Breakpoint("condition", condition)) == expected


@pytest.mark.parametrize("text", ["", "step =", "copied > 5 5", "colour == 1", "__import__('os')", "step.__class__",
                                  "copied + 1 > 2", "copied > 1 and 'x'.join(node)", "'x' in inputs",
                                  "(copied > 1"])  # fmt: skip
def test_any_other_text_of_a_condition_is_refused(text: str) -> None:
    with pytest.raises(KvvizError, match="cannot be read"):
        Breakpoint("condition", text)


def test_a_function_that_fails_is_told_as_a_condition_that_fails() -> None:
    cursor = recorded("flat")
    cursor.breakpoints = [Breakpoint("condition", lambda step: step.outs[9].nbytes)]
    with pytest.raises(KvvizError, match=r"the condition .* failed at step 0: IndexError"):
        cursor.resume()


def test_hits_are_counted_and_the_first_ones_may_be_ignored_or_all() -> None:
    every = where("concat", lambda s: s.op_type == "Softmax")
    point = Breakpoint("op", "Softmax", ignore=4)
    assert stops("concat", point) == every[4:]
    assert point.hits == len(every)
    point = Breakpoint("op", "Softmax", enabled=False)
    assert stops("concat", point) == [] and point.hits == 0
    # of several each counts, and the first is named
    node, op = Breakpoint("node", "spin"), Breakpoint("op", "Sin")
    cursor = recorded("bodies")
    cursor.breakpoints = [node, op]
    assert cursor.resume().breakpoint is node
    assert (node.hits, op.hits) == (1, 1)


def test_reverse_continue_goes_back_to_the_hit_before() -> None:
    cursor = recorded("bodies")
    cursor.breakpoints = [Breakpoint("node", "spin"), Breakpoint("node", "a")]
    spins = where("bodies", lambda s: s.node == "spin")
    cursor.goto(len(cursor.trace.steps) - 1)
    found = []
    while (stop := cursor.reverse()).reason == "breakpoint":
        found.append(stop.position)
    assert found == [*reversed(spins), 0]
    assert (stop.reason, cursor.position) == ("start", -1)
    assert cursor.reverse().reason == "start"


def test_a_breakpoint_that_makes_no_sense_is_refused() -> None:
    cases: list[tuple[str, Any, str]] = [
        ("line", 3, f"there is no breakpoint of kind 'line'; choose one of {', '.join(KINDS)}"),
        ("decision", "maybe", f"there is no decision 'maybe'; choose one of {', '.join(DECISIONS)}"),
        ("buffer", "Bx", "'Bx' is not a buffer; give its number, like B12"),
        ("buffer", None, "None is not a buffer"),
        ("node", 5, "a breakpoint of kind 'node' takes text, not 5"),
        ("op", None, "a breakpoint of kind 'op' takes text, not None"),
        ("condition", 7, "a breakpoint of kind 'condition' takes text, not 7"),
        ("query", 7, "a breakpoint of kind 'query' takes text, not 7"),
        ("query", "op:Concat coppied>0", 'there is no field "coppied"; did you mean "copied"'),
    ]
    for kind, value, message in cases:
        with pytest.raises(KvvizError) as caught:
            Breakpoint(kind, value)
        assert message in str(caught.value)
