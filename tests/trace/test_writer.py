"""What a writer is told beside values: parts of them, names given out anew, and what was decided of each op."""

import random

import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.report.explain import explain
from kvviz.trace import blockers as b
from kvviz.trace.schema.regions import Region
from kvviz.trace.writer import Writer
from kvviz.view.page_data.payload import decode, payload
from tests.explain.nested_graphs import nested
from tests.outside.told import loaded


def test_an_op_may_touch_a_part_of_a_value_of_another_form_or_some_rows() -> None:
    w = Writer("a column")
    table = w.value("table", (4, 8), "float32", w.storage(128, origin="donated"))
    w.bind(table, "donated")
    for column in (0, 1, 1):
        part = Region(4 * column, (4, 1), (32, 4), "float32")
        after = w.value("table (after)", (4, 8), "float32", w.storage_of(table))
        w.op("SET", [table], [after], reads=[], writes=[after], regions={(after, True): part})
    trace = w.finish([after])
    assert [(one.kind, one.first, one.second, one.bytes) for one in kvviz.hazards(trace)] == [("WAW", 1, 2, 16)]
    assert [step.written for step in trace.steps] == [16, 16, 16]
    w = Writer("rows")
    table = w.value("table", (4, 64), "q8_0", w.storage(4 * 68, origin="donated"))
    w.bind(table, "donated")
    after = w.value("table (after)", (4, 64), "q8_0", w.storage_of(table))
    w.op("SET_ROWS", [table], [after], reads=[], writes=[after], rows={after: [1, 3]})
    assert w.finish([after]).steps[0].written == 2 * 68


def test_names_of_what_is_not_kept_are_given_out_anew_in_the_next_run() -> None:
    w = Writer("two runs")
    x = w.value("x", (4,), "float32")
    names = []
    for _ in range(2):
        w.begin_run(keep=[x])
        made = [w.value(name, (4,), "float32") for name in ("y", "y", "x")]
        for value in made:
            w.op("NEW", [x], [value])
        names.append(made)
    trace = w.finish(names[-1])
    told = [step.outputs[0] for step in trace.steps]
    assert told == ["y", "y#2", "x#2"] * 2
    assert [frame.bindings[0].name for frame in trace.frames] == ["x", "x"]
    # what was let go is not alive
    storage = w.storage_of(names[-1][0])
    assert w.is_alive(storage)
    w.free(storage)
    assert not w.is_alive(storage)


@pytest.mark.parametrize("seed", range(20))
def test_ops_and_reports_are_those_of_a_short_log(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    proto, inputs, donate = nested(seed)
    graph = kvviz.load(proto)
    short, long = (kvviz.run(graph, {n: a.copy() for n, a in inputs.items()}, donate=donate) for _ in range(2))
    ops, report = list(short.log), explain(short)
    monkeypatch.setattr("kvviz.trace.schema.log._KEPT", 0)
    assert list(long.log) == ops
    order = [*range(len(ops)), *random.Random(seed).sample(range(len(ops)), len(ops))]
    assert [long.log[step] for step in order] == [ops[step] for step in order]
    assert [long.log[-1 - step] for step in order] == [ops[-1 - step] for step in order]
    assert explain(long) == report


def decided() -> kvviz.Trace:
    w = Writer("a policy of its own", "own", "decides by a list", decides=True, rules=["{op} does not trust {input}"])
    x = w.value("x", (4,), "float32")
    a, c = (w.value(name, (4,), "float32") for name in "ac")
    w.op("SQR", [x], [a], refused={0: b.BORROWED_INPUT})
    view = w.value("a (view)", (2,), "float32", w.storage_of(a))
    w.op("VIEW", [a], [view], reads=[], writes=[])
    w.op("ADD", [a, x], [c], refused={0: b.NOT_LAST_USE | b.ALIASED, 1: b.rule(0)})
    over = w.value("over", (4,), "float32", w.storage_of(c))
    w.op("SCALE", [c], [over], writes=[over])
    last = w.value("last", (1,), "float32")
    w.op("SUM", [view, over, a], [last])
    hidden = w.value("hidden", (4,), "float32", w.storage_of(a))
    w.op("SET_ROWS", [over], [hidden], writes=[hidden])
    return w.finish([last])


def test_every_reason_has_its_culprit_and_readers_are_told_the_rule_and_what_it_cost() -> None:
    for trace in (decided(), loaded(decided())):
        steps = trace.steps
        told = [(step.decision.dispatch, step.decision.taken) for step in steps]
        assert told[2:4] == [("run", ()), ("in_place", ("c",))]
        found = [(str(one.code), one.input, one.culprit) for one in steps[2].decision.blockers]
        assert found == [("NOT_LAST_USE", "a", "last"), ("ALIASED", "a", "a (view)"), ("POLICY", "x", "own")]
        assert steps[2].decision.blockers[-1].message == "ADD does not trust x"
        # a view and a hidden write need no reason, and an op without any cannot
        assert steps[1].decision.blockers == () == steps[5].decision.blockers
        assert [str(one.code) for one in steps[4].decision.blockers] == ["OP_CANNOT"]
        assert {entry.node: entry.bytes for entry in kvviz.explain(trace).missed} == {"a": 16, "c": 16}
        page = str(decode(payload(trace))[0])
        assert "refused: still read later, another value lives there, the policy" in page
        assert "ADD does not trust x" in page


def test_a_refusal_of_what_is_no_input_or_by_a_runtime_that_does_not_decide_is_an_error() -> None:
    w = Writer("wrong", decides=True)
    with pytest.raises(KvvizError, match="has no such input"):
        w.op("ADD", [], [], refused={0: b.ALIASED})
    silent = Writer("silent")
    with pytest.raises(KvvizError, match="decides nothing"):
        silent.op("ADD", [silent.value("x", (1,), "float32")], [], refused={0: b.ALIASED})
