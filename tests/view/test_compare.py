"""A comparison as table, text, HTML and figure: it shows the rows' own numbers, and nothing covers anything."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import kvviz
from kvviz.trace.units import size
from kvviz.view.charts.many_traces import weights_of
from kvviz.view.compare import Comparison, compare
from tests.test_models import graph_of
from tests.view.conftest import HOSTILE, Html
from tests.view.test_plots import check_texts

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture(scope="module")
def many() -> Comparison:
    """Six rows of a decode, whose weights are most of its memory."""
    graph = graph_of("o05_dynamo_llama_op23")
    schedules = [None, "rten", "least_live"]
    return compare(graph, None, ["ideal", "never"], schedules, prompt=[5, 17, 33], max_new_tokens=3, kv_capacity=8)


@pytest.fixture(scope="module")
def moving() -> Comparison:
    """A decode whose caches have room from the start, or are moved into larger blocks between runs."""
    graph = graph_of("storyteller/concat")
    return Comparison.of(
        {how: kvviz.decode(graph, [1, 5], 4, growth=how, kv_capacity=8, progress=False) for how in ("start", "after")}
        | {"tight": kvviz.decode(graph, [1, 5], 4, growth="after", progress=False)}
    )


@pytest.fixture(scope="module")
def hostile_rows(hostile: kvviz.Trace) -> Comparison:
    """Rows whose names, ops and steps try to break out of every format."""
    return Comparison.of({HOSTILE[0]: hostile, HOSTILE[2]: hostile, HOSTILE[3]: hostile})


def test_the_table_has_the_rows_numbers_and_shows_bytes_as_sizes(many: Comparison) -> None:
    table = many.table()
    assert len(table) == 6
    for row, shown in zip(many, table, strict=True):
        assert all(shown[key] == getattr(row, key) for key in shown if key != "results")
        line = next(line for line in table.text().splitlines() if line.startswith(f"{row.name} "))
        for key, heading, *_ in table.columns[1:]:
            value = getattr(row, key)
            assert (f"{value:,}" if key in ("in_place", "missed") else size(value)) in line, heading
        # a figure that has no column is the same in all rows, and stands in the title
        for key in ("peak", "above_weights", "allocated", "written", "copied", "missed_bytes", "cannot_bytes"):
            if key not in [column[0] for column in table.columns]:
                assert f" {size(getattr(row, key))}" in table.title and len({getattr(r, key) for r in many}) == 1


def test_the_text_says_where_each_row_parts_from_the_first_one(many: Comparison) -> None:
    lines = repr(many).splitlines()
    # the head, the rows, what they have in common, and where they part
    assert len(lines) == 1 + 6 + 1 + 5
    assert lines[7].startswith(f"{many.rows[0].steps:,} steps each, results equal")
    for row, line in zip(many.rows[1:], lines[8:], strict=True):
        found = many.first_difference(0, row.name)
        assert found is not None
        assert line.startswith(f"ideal and {row.name} part at {found.sentence[:60]}")


def test_rows_that_do_not_part_and_results_that_differ_are_said() -> None:
    graph = graph_of("storyteller/concat")
    one, same, other = (kvviz.decode(graph, prompt, 2, progress=False) for prompt in ([1, 5], [1, 5], [1, 7]))
    text = repr(Comparison.of({"one": one, "same": same, "other": other}))
    assert "one and same part nowhere: every op ran in the same order and way" in text
    assert [line.rpartition("  ")[2] for line in text.splitlines()[1:3]] == ["equal", "equal"]
    assert ": off by " in text.splitlines()[3]


def test_html_shows_any_name_as_text(hostile_rows: Comparison) -> None:
    seen = Html(hostile_rows._repr_html_())
    assert set(seen.tags) == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert "alert" in "".join(text for *_, text in seen.texts)


@pytest.mark.parametrize("which", ["many", "moving"])
def test_bars_are_as_long_as_the_numbers_behind_them(which: str, request: pytest.FixtureRequest) -> None:
    rows = request.getfixturevalue(which)
    figure = rows.plot()
    keys = ["above_weights", "allocated", "written", "copied", *(["moved_outside"] if which == "moving" else [])]
    for ax, key in zip(figure.axes[:-1], keys, strict=True):
        assert [bar.get_width() for bar in ax.patches] == [getattr(row, key) for row in rows]
        assert [text.get_text() for text in ax.texts] == [size(getattr(row, key)) for row in rows]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [row.name for row in rows]


def test_what_was_moved_between_runs_has_a_column_where_something_was(many: Comparison, moving: Comparison) -> None:
    assert "moved outside" not in repr(many)
    assert "moved outside" in repr(moving)
    moved = [sum(run.bytes_moved_outside for run in trace.runs) for trace in moving.traces.values()]
    assert [row["moved_outside"] for row in moving.table()] == moved
    assert moved[0] == 0 < moved[2]


def test_curves_are_the_live_bytes_of_every_step_each_with_a_look_of_its_own(many: Comparison) -> None:
    ax = many.plot().axes[-1]
    looks = set()
    for curve, trace in zip(ax.patches, many.traces.values(), strict=True):
        values, edges, _ = curve.get_data()
        assert np.allclose(values * 1e3, [step.live_bytes for step in trace.steps])
        assert (edges[0], edges[-1]) == (0, len(trace.steps))
        looks.add((curve.get_edgecolor(), str(curve.get_linestyle())))
    assert len(looks) == len(many)
    assert ax.get_ylim()[0] == pytest.approx(weights_of(list(many.traces.values())) / 1e3)
    assert "axis starts at the weights" in ax.get_title(loc="left")


@pytest.mark.parametrize("which", ["many", "moving", "hostile_rows"])
def test_no_text_covers_another_or_leaves_the_figure(which: str, request: pytest.FixtureRequest) -> None:
    check_texts(request.getfixturevalue(which).plot())


def test_a_given_figure_is_drawn_on_and_shows_a_name_that_looks_like_a_formula(hostile: kvviz.Trace) -> None:
    figure = Figure(figsize=(9, 5))
    assert Comparison.of({r"$\oops{$": hostile}).plot(figure) is figure
    assert len(figure.axes) == 5 and plt.get_fignums() == []
    figure.canvas.draw()
    assert figure.axes[0].get_yticklabels()[0].get_text() == r"\$\oops{\$"


def test_of_nothing_there_is_a_table_with_headings_and_a_figure_that_says_so() -> None:
    nothing = Comparison.of({})
    assert repr(nothing).split()[:2] == ["peak", "allocated"]
    assert [text.get_text() for text in nothing.plot().axes[-1].texts] == ["nothing ran"]
