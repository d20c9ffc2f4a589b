"""Graphs that lessons write as text, what they print of a run, and tables."""

import re
from pathlib import Path

import numpy as np
import pytest

import kvviz
from kvviz.lessons import print_steps, small_graph, step_that_makes, table, value_in_run

ASSETS = Path(__file__).resolve().parents[2] / "assets" / "models"
LATER = "later (float[4] x) => (float[4] y) { a = Relu(x)  b = Sigmoid(a)  y = Add(a, b) }"


def test_each_step_is_a_line_with_its_blockers_below(capsys: pytest.CaptureFixture[str]) -> None:
    # given an input that the caller keeps, and a value with two readers
    trace = kvviz.run(small_graph(LATER), {"x": np.ones(4, np.float32)})
    print_steps(trace)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["Relu", "BORROWED_INPUT:", "Sigmoid", "NOT_LAST_USE:", "Add"]
    assert [line[1] for line in lines if not line[0].endswith(":")] == ["run", "run", "in_place"]
    # what an op can never do is not told
    graph = small_graph("product (float[2,2] x) => (float[2,2] y) { y = MatMul(x, x) }")
    print_steps(kvviz.run(graph, {"x": np.eye(2, dtype=np.float32)}, donate=["x"]))
    assert "OP_CANNOT" not in capsys.readouterr().out
    # an op of a branch is told with its frame
    graph = small_graph("""f (bool c, float[4] x) => (float[4] y) { y = If (c) <
        then_branch = yes () => (float[4] o) { o = Sigmoid(x) },
        else_branch = no () => (float[4] p) { p = Neg(x) }> }""")
    print_steps(kvviz.run(graph, {"c": np.array(True), "x": np.ones(4, np.float32)}))
    assert capsys.readouterr().out.startswith("y[then_branch]/Sigmoid ")


def test_a_text_that_is_no_graph_is_refused_with_what_was_expected() -> None:
    with pytest.raises(kvviz.KvvizError, match=r"not a graph in ONNX's text form:(?s:.)*Identifier expected"):
        small_graph("later (")


def test_the_step_that_makes_a_value_of_a_branch_is_the_op_inside_it() -> None:
    # given a decoder with its graph inside an If
    trace = kvviz.decode(kvviz.load(ASSETS / "o02_optimum1_merged_gpt2" / "model.onnx"), [7, 70, 21], 3, progress=False)
    name = trace.caches[0].output
    step = step_that_makes(trace, name, run=2)
    assert (step.run, step.op_type, bool(step.frame)) == (2, "Concat", True)
    assert np.array_equal(value_in_run(trace, name, 2), trace.value(name, step.index))
    for wrong, run, said in ((name, 3, "there is no run 3"), ("z", 0, "no op of run 0 makes 'z'")):
        with pytest.raises(kvviz.KvvizError, match=said):
            step_that_makes(trace, wrong, run)


ROWS = [
    {"way": "no room", "copied": 1165824, "peak": "674,377 B", "same": True},
    {"way": "room", "copied": 0, "peak": "679,881 B", "same": False},
]


def test_numbers_of_a_table_get_separators_and_stand_to_the_right_and_html_has_its_title() -> None:
    lines = str(table(ROWS)).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["no", "room", "1,165,824", "674,377", "B", "yes"],
        ["room", "0", "679,881", "B", "no"],
    ]
    assert lines[1].index("674,377") == lines[2].index("679,881")
    assert lines[1].index("1,165,824") + len("1,165,824") == lines[2].index("0 ") + 1
    html = table(ROWS, "two <ways>")._repr_html_()
    assert "<caption>two &lt;ways&gt;</caption>" in html and "674,377\u00a0B" in html
    assert re.findall(r"<th [^>]*>(\w+)</th>", html) == ["way", "copied", "peak", "same"]
    # it may be empty, and takes any iterable
    assert len(table(())) == 0
    assert [row["n"] for row in table({"n": n} for n in (1, 2000))] == ["1", "2,000"]
