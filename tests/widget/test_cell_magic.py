"""``%load_ext kvviz`` and ``%%kvviz``, in a real IPython shell; and what traces and graphs show of themselves."""

import base64
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import kvviz
from kvviz.errors import KvvizError
from kvviz.view.cards import graph_card, trace_card
from tests.graph.build import model, node
from tests.test_models import graph_of

TINY = model([node("Add", "x x", "y"), node("Relu", "y", "z")], ["x float 4"], ["z float 4"])


@pytest.fixture
def shell() -> Any:
    made = InteractiveShell()
    made.user_ns.update(kvviz=kvviz, tiny=kvviz.load(TINY))
    with pytest.raises(UsageError):
        made.run_cell_magic("kvviz", "", "1")
    made.run_line_magic("load_ext", "kvviz")
    return made


@pytest.mark.parametrize(
    "cell",
    [
        'kvviz.run(tiny, {"x": [1, 2, 3, 4]})',
        'import numpy as np\ntrace = kvviz.run(tiny, {"x": np.zeros(4, np.float32)})\nprint("done")',
        '%matplotlib --list\ntrace = kvviz.run(tiny, {"x": [1, 2, 3, 4]})',
    ],
)
def test_the_debugger_opens_on_what_the_cell_ran(shell: Any, cell: str) -> None:
    opened = shell.run_cell_magic("kvviz", "", cell)
    assert isinstance(opened, kvviz.Debugger)
    assert [step.op_type for step in opened.trace.steps] == ["Add", "Relu"]


def test_names_that_a_cell_gives_stay_and_traces_from_before_do_not_count(shell: Any) -> None:
    shell.run_cell_magic("kvviz", "", 'first = kvviz.run(tiny, {"x": [1, 2, 3, 4]})')
    assert isinstance(shell.user_ns["first"], kvviz.Trace)
    with pytest.raises(KvvizError, match="the cell made no trace"):
        shell.run_cell_magic("kvviz", "", "second = 2\nfirst.title")
    assert shell.user_ns["second"] == 2
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("kvviz", "", "1 / 0")


def test_a_trace_shows_its_curve_and_the_verdict_and_a_graph_what_it_is() -> None:
    graph = graph_of("o01_optimum_llama")
    llama = kvviz.decode(graph, [5, 17, 33], 3, progress=False)
    card = llama._repr_html_()
    for entry in llama.explain().verdict:
        assert entry.title.split(" ·")[0] in card
    found = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', card)
    assert found is not None
    picture = ElementTree.fromstring(base64.b64decode(found[1]))
    line = picture.find("{http://www.w3.org/2000/svg}polyline")
    assert line is not None
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    live = [step.live_bytes for step in llama.steps]
    # The highest point of the curve is where most bytes were alive.
    highest = min(points, key=lambda point: point[1])
    assert highest[0] / 560 == pytest.approx(live.index(max(live)) / len(live), abs=0.01)
    assert len(card) < 10_000
    card = llama.graph._repr_html_()
    assert "a text decoder" in card and "4 growing" in card and "input_ids" in card
    assert "past_key_values" not in card


def test_names_in_cards_are_text_not_markup() -> None:
    name = "<script>x</script>"
    graph = kvviz.load(model([node("Relu", name, "y")], [f"{name} float 2"], ["y float 2"]), name=name)
    for card in (graph_card(graph), trace_card(kvviz.run(graph, {name: [1, 2]}))):
        assert "<script>" not in card and "&lt;script&gt;" in card
    graph = kvviz.load(model([], ["x float 2"], ["x float 2"]))
    assert "<img" not in trace_card(kvviz.run(graph, {"x": [1, 2]}))
