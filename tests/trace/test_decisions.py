"""A runtime that is not ours tells what it decided of each op: what ran in place, and all that stood against it."""

import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.trace import blockers as b
from kvviz.trace.writer import Writer
from kvviz.view.page_data.payload import decode, payload
from tests.outside.told import loaded


def _decided() -> kvviz.Trace:
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
    for trace in (_decided(), loaded(_decided())):
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
