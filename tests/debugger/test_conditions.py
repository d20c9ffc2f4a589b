"""Conditions as text: what they can say, and that nothing else is ever run."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.debugger import Breakpoint
from kvviz.debugger.conditions import FIELDS, read_condition
from kvviz.errors import KvvizError
from kvviz.trace.records import Step
from tests.debugger.cursors import recording

SAID: list[tuple[str, Callable[[Step], Any]]] = [
    ("copied > 0", lambda s: s.copied > 0),
    ("step.copied >= 1e3 or step.written < 16", lambda s: s.copied >= 1000 or s.written < 16),
    ("0 < step.copied <= 4096", lambda s: 0 < s.copied <= 4096),
    ("op_type == 'Concat' and not foreign", lambda s: s.op_type == "Concat" and not s.foreign),
    ("op_type in ('Concat', 'Softmax',)", lambda s: s.op_type in ("Concat", "Softmax")),
    ("op_type not in ['MatMul'] and run == 1", lambda s: s.op_type != "MatMul" and s.run == 1),
    ("'attn' in node or index < 3", lambda s: "attn" in s.node or s.index < 3),
    ("len(inputs) > 2 and len(step.freed) == 0", lambda s: len(s.inputs) > 2 and not s.freed),
    ("not (run == 0 or copied == 0)", lambda s: not (s.run == 0 or s.copied == 0)),
    ("run == 0 or copied > 0 and index > 20", lambda s: s.run == 0 or (s.copied > 0 and s.index > 20)),
    ("not run == 0 and True", lambda s: s.run != 0),
    ("frame == () and foreign == False", lambda s: s.frame == () and not s.foreign),
    ("decision.dispatch == \"in_place\"", lambda s: s.decision.dispatch == "in_place"),
    ("'NO_CAPACITY' in decision.blockers", lambda s: any(str(b.code) == "NO_CAPACITY" for b in s.decision.blockers)),
    ("inputs == decision.taken", lambda s: s.inputs == s.decision.taken),
    ("'view' in outs.how and sum(outs.nbytes) > 100", lambda s: any(o.how == "view" for o in s.outs)
     and sum(o.nbytes for o in s.outs) > 100),
    ("min(outs.nbytes) != max(outs.nbytes)", lambda s: len({o.nbytes for o in s.outs}) > 1),
    ("-1 < node_index", lambda s: True),
    ("live_bytes", lambda s: s.live_bytes),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meant"), SAID, ids=[text for text, _ in SAID])
def test_a_condition_says_what_the_same_words_say_in_python(text: str, meant: Callable[[Step], Any]) -> None:
    steps = recording("concat").steps[:400]
    condition = read_condition(text)
    assert [condition(step) for step in steps] == [bool(meant(step)) for step in steps]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a field, number or text is missing at the start"),
        ("step =", "'=' is not understood"),
        ("copied > ", "missing after '>'"),
        ("copied > 5 5", "'5' was not expected after '5'"),
        ("colour == 1", "a step has no field 'colour'; it has index, run, frame"),
        ("step == 1", "a step has no field 'step'"),
        ("trace.steps", "a step has no field 'trace.steps'"),
        ("step.graph_node == 1", "a step has no field 'graph_node'"),
        ("1 / 0", "'/ 0' is not understood"),
        ("node > 5", "'>' does not go between a text and a number"),
        ("copied == 'much'", "'==' does not go between a number and a text"),
        ("5 in inputs", "'in' does not go between a number and texts"),
        ("copied in node", "'in' does not go between a number and a text"),
        ("len(copied) > 1", r"len(…) takes text or texts or numbers, not a number"),
        ("max(inputs) == 'x'", r"max(…) takes numbers, not a texts"),
        ("copied in (1, 'a')", "a list holds either numbers or texts"),
        ("(copied > 1", "')' or ',' is missing"),
        ("not", "missing after 'not'"),
        ("copied > 1 and", "missing after 'and'"),
        ("and", "missing at the start, not 'and'"),
        ("__import__('os')", "there is no function '__import__' here, only len, max, min, sum"),
        ("open('x')", "there is no function 'open'"),
        ("().__class__", "'.__class__' is not understood"),
        ("step.__class__", "a step has no field '__class__'"),
        ("step.node.format", "a step has no field 'node.format'"),
        ("'{0.__class__}'.format(step)", "is not understood"),
        ("[s for s in (1,)]", "a step has no field 's'"),
        ("lambda step", "a step has no field 'lambda'"),
        ("10 ** 10 ** 10", "'** 10 ** 10' is not understood"),
        ("'a' * 1000", "is not understood"),
        ("a\0b", "is not understood"),
        ("(" * 100 + "1" + ")" * 100, "nests more than 20 deep"),
        ("not " * 100 + "True", "nests more than 20 deep"),
        ("copied > 0 or " * 50 + "True", "more than 500"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(KvvizError) as caught:
        Breakpoint("condition", text)
    assert str(caught.value).startswith("the condition '") and "cannot be read: " in str(caught.value)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 600


def test_no_text_reaches_pythons_own_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    step = recording("flat").steps[0]
    with monkeypatch.context() as patch:
        for name in ("eval", "exec", "compile"):
            patch.setattr(f"builtins.{name}", lambda *_, name=name: asked.append(name))
        for text in ("copied >= 0 and len(inputs) > 0", "__import__('os')"):
            with contextlib.suppress(KvvizError):
                read_condition(text)(step)
    assert asked == []


WORDS = [
    *FIELDS, *(f"step.{name}" for name in FIELDS), "step", "trace", "and", "or", "not", "in", "True", "False", "None",
    "==", "!=", "<", "<=", ">", ">=", "(", ")", "[", "]", ",", "0", "-1", "1e999", "12345678901234567890123", ".5",
    "'Concat'", '"x"', "len(", "max(", "sum(", "min(", "lambda", "__class__", "eval(", "{", "}", ":=", "f'{1}'", "\\",
]  # fmt: skip


def test_text_made_of_the_languages_words_is_read_or_refused_and_never_fails_at_a_step() -> None:
    steps, random_, read = recording("concat").steps[:60:7], random.Random(1), 0
    for _ in range(6000):
        text = " ".join(random_.choices(WORDS, k=random_.randint(1, 9)))
        try:
            condition = read_condition(text)
        except KvvizError:
            continue
        read += 1
        assert {condition(step) for step in steps} <= {True, False}
    # then some of them did say something
    assert read > 100


@given(st.text(max_size=600))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert read_condition(text)(recording("flat").steps[0]) in (True, False)
    except KvvizError as error:
        assert "cannot be read" in str(error)
