"""Charts: they show the trace's numbers, cover nothing, and leave no state behind."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import kvviz
from kvviz.report.palette import LIGHT, luminance
from kvviz.trace.recording import Trace
from kvviz.view.charts import heat_cells, plots
from kvviz.view.charts.chart_axes import MOST_POINTS, thinned, unit_of
from kvviz.view.charts.heat_cells import STATES, cells
from tests.decode import small
from tests.engine.graphs import graph_of
from tests.test_models import graph_of as model_of
from tests.view.conftest import STORYTELLER

CHARTS = [plots.memory, plots.cache, plots.copies, plots.lifetimes]


pytestmark = pytest.mark.usefixtures("no_figures")


def texts_of(figure: Any) -> Iterator[tuple[str, Any]]:
    """Words and places of all texts of a figure, in pixels, without ticks beyond the ends of their axis."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    for ax in figure.axes:
        texts = [*ax.texts, ax._left_title, ax.xaxis.label, ax.yaxis.label]
        for axis, ends in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            ticks = zip(axis.get_ticklabels(), axis.get_ticklocs())
            texts += [tick for tick, at in ticks if min(ends) <= at <= max(ends)]
        if ax.get_legend() is not None:
            texts += ax.get_legend().get_texts()
        for text in texts:
            box = text.get_window_extent(renderer)
            if text.get_text() and box.width and box.height:
                yield text.get_text(), box


def check_texts(figure: Any) -> None:
    boxes = list(texts_of(figure))
    wide, high = figure.get_size_inches() * figure.dpi
    hits = [(a, b) for (a, x), (b, y) in combinations(boxes, 2) if x.padded(-1).overlaps(y.padded(-1))]
    assert hits == []
    assert [a for a, x in boxes if x.x0 < -1 or x.y0 < -1 or x.x1 > wide + 1 or x.y1 > high + 1] == []


@pytest.mark.parametrize("chart", CHARTS)
def test_a_chart_draws_on_the_axes_that_it_is_given_or_on_its_own_and_no_text_covers_another(
    chart: Callable, trace: Trace
) -> None:
    ax = Figure().subplots()
    assert chart(trace, ax=ax) is ax
    assert ax.has_data() or ax.texts
    assert plt.get_fignums() == []
    ax = chart(trace)
    assert plt.get_fignums() == [ax.figure.number]
    check_texts(ax.figure)


@pytest.mark.parametrize("chart", CHARTS)
@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_every_text_can_be_read_on_its_ground(chart: Callable, style: str, decoded: Trace) -> None:
    with plt.style.context(style):
        ax = chart(decoded)
        ground = luminance(to_rgb(ax.get_facecolor()))
        texts = [*ax.texts, ax._left_title, ax.xaxis.label, *ax.get_xticklabels()]
        for text in texts:
            assert abs(luminance(to_rgb(text.get_color())) - ground) > 0.3, text.get_text()


def test_the_memory_curve_is_the_live_bytes_of_every_step_and_its_peak_is_named(decoded: Trace) -> None:
    ax = plots.memory(decoded)
    curve = ax.get_lines()[0]
    live = np.array([step.live_bytes for step in decoded.steps])
    assert np.allclose(np.asarray(curve.get_ydata()) * unit_of_axis(ax), live)
    at = int(live.argmax())
    (note,) = [t.get_text() for t in ax.texts if t.get_text().startswith("peak")]
    assert f"step {at:,}" in note and decoded.steps[at].op_type in note


def test_where_weights_are_most_of_it_the_axis_starts_at_them_and_else_at_nothing(
    decoded: Trace, looping: Trace
) -> None:
    weights = sum(s.capacity for s in decoded.storages if s.origin == "weights")
    assert weights * 2 > max(step.live_bytes for step in decoded.steps)
    ax = plots.memory(decoded)
    assert "axis starts at the weights" in ax.get_title(loc="left")
    assert ax.get_ylim()[0] == pytest.approx(weights / 1e3)
    assert [line.get_transform() for line in ax.get_lines()].count(ax.transAxes) == 1  # the mark of the break
    ax = plots.memory(looping)
    assert ax.get_ylim()[0] == 0
    assert ax.transAxes not in [line.get_transform() for line in ax.get_lines()]
    assert ax.get_title(loc="left") == f"Memory of {looping.title}"


def test_the_cache_chart_shows_rows_reserved_and_valid(decoded: Trace) -> None:
    ax = plots.cache(decoded)
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.get_lines()}
    reserved, valid = (next(y for label, y in lines.items() if label.endswith(word)) for word in ("reserved", "valid"))
    assert reserved == [16] * 4
    assert valid == [6, 7, 8, 9]
    assert len(lines) == 2, "equal caches are drawn once"


def test_the_bars_of_copies_add_up_to_what_was_written_and_a_closed_form_lies_over_them(copying: Trace) -> None:
    ax = plots.copies(copying, closed=lambda run: 1000.0 * run)
    copied, rest = (unit_of_axis(ax) * sum(bar.get_height() for bar in bars) for bars in ax.containers)
    assert copied == pytest.approx(copying.bytes_copied)
    assert rest == pytest.approx(copying.bytes_written - copying.bytes_copied)
    (line,) = ax.get_lines()
    assert np.allclose(np.asarray(line.get_ydata()) * unit_of_axis(ax), [0, 1000, 2000, 3000])


def test_lifetimes_show_the_largest_buffers_from_birth_to_death(copying: Trace) -> None:
    limit = 12
    ax = plots.lifetimes(copying, limit=limit)
    own = [s for s in copying.storages if s.origin != "weights"]
    largest = sorted((s.capacity for s in own), reverse=True)[:limit]
    bars = sorted((bar for bars in ax.containers for bar in bars), key=lambda bar: bar.get_y() + bar.get_height() / 2)
    names = [label.get_text().partition(" ")[0] for label in ax.get_yticklabels()]
    shown = [own[[f"B{s.id}" for s in own].index(name)] for name in names]
    assert sorted((s.capacity for s in shown), reverse=True) == largest
    for bar, s in zip(bars, shown):
        end = len(copying.steps) if s.freed is None else s.freed + 1
        assert bar.get_x() == max(s.born, 0)
        assert bar.get_x() + bar.get_width() == pytest.approx(max(end, max(s.born, 0) + 0.5))


def test_a_curve_of_many_steps_keeps_its_peak() -> None:
    values = np.random.default_rng(0).normal(size=50_000).cumsum()
    places, low, high = thinned(values)
    assert len(places) <= MOST_POINTS
    assert high.max() == values.max() and low.min() == values.min()


@pytest.mark.parametrize(("nbytes", "unit"), [(0, "B"), (9_999, "B"), (10_000, "kB"), (2.5e7, "MB"), (3e12, "GB")])
def test_units_keep_numbers_short(nbytes: float, unit: str) -> None:
    assert unit_of(nbytes)[0] == unit


SEVERAL = [plots.memory, plots.cache, plots.copies]


@pytest.fixture(scope="module")
def ways() -> dict[str, Trace]:
    """A decode with caches that are copied, one with room, one whose caller moves them, and one of fixed size."""
    graph = model_of("storyteller/concat")
    fixed = model_of("storyteller/tensor_scatter")
    prompt = np.load(STORYTELLER / "concat" / "ref.npz")["prompt"][:5]
    quiet: dict[str, Any] = {"max_new_tokens": 9, "progress": False}
    return {
        "copied": kvviz.decode(graph, prompt, **quiet),
        "$reserved": kvviz.decode(graph, prompt, kv_capacity=20, **quiet),
        "moved": kvviz.decode(graph, prompt, kv_capacity=6, growth="after", **quiet),
        "fixed": kvviz.decode(fixed, prompt, **quiet),
    }


def closed_form(trace: Trace) -> list[float]:
    """Concat copies the rows that there are, of keys and values of every layer."""
    rows = [0, *(cache_run.valid for cache_run in trace.caches[0].runs[:-1])]
    past = [trace.outputs[cache.output] for cache in trace.caches]
    one = sum(array.nbytes // array.shape[cache.axis or 0] for array, cache in zip(past, trace.caches))
    return [float(one * (count if run else 0)) for run, count in enumerate(rows)]


def curve(ax: Any, name: str) -> np.ndarray:
    colour, marker = handles_of(ax)[name]
    (line,) = [one for one in ax.get_lines() if one.get_color() == colour and one.get_marker() == marker]
    return np.asarray(line.get_ydata()) * unit_of_axis(ax)


def unit_of_axis(ax: Any) -> float:
    return {"[kB]": 1e3, "[B]": 1.0, "[MB]": 1e6}.get(ax.get_ylabel().split()[-1], 1.0)


def test_bytes_copied_for_the_caches_are_those_of_the_trace_and_of_the_closed_form(ways: dict[str, Trace]) -> None:
    form = closed_form(ways["copied"])
    ax = plots.copies(ways, closed={"copied": form, "$reserved": lambda run: 0.0})
    told = [sum(cache.runs[run].bytes_copied for cache in ways["copied"].caches) for run in range(9)]
    assert np.allclose(curve(ax, "copied"), told) and told[5] > 0
    assert np.allclose(told, form)
    dashed = [line for line in ax.get_lines() if line.get_linewidth() < 1]
    assert [line.get_color() for line in dashed] == [dashed[0].get_color()] * 2
    assert np.allclose(np.asarray(dashed[0].get_ydata()) * unit_of_axis(ax), form)
    # crosses where the caller moved a cache to a larger block
    crosses = next(line for line in ax.get_lines() if line.get_marker() == "x")
    outside = [run.bytes_moved_outside for run in ways["moved"].runs]
    assert list(crosses.get_xdata()) == np.flatnonzero(outside).tolist() != []


def test_of_several_traces_there_are_the_peaks_of_runs_above_the_weights_and_rows_of_first_caches(
    ways: dict[str, Trace],
) -> None:
    memory, ax = plots.memory(ways), plots.cache(ways)
    for name, trace in ways.items():
        weights = sum(s.capacity for s in trace.storages if s.origin == "weights")
        shown = name.replace("$", r"\$")
        assert np.allclose(curve(memory, shown), [run.peak_bytes - weights for run in trace.runs])
        assert list(curve(ax, shown)) == [told.valid for told in trace.caches[0].runs]
    reserved = {tuple(line.get_ydata()) for line in ax.get_lines() if line.get_linewidth() == 1.0}
    assert reserved == {tuple(told.capacity for told in trace.caches[0].runs) for trace in ways.values()}


def test_equal_curves_are_drawn_once_with_all_their_names_and_a_comparison_is_several_traces(
    ways: dict[str, Trace],
) -> None:
    ax = plots.copies({"one": ways["copied"], "two": ways["copied"], "other": ways["fixed"]})
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one, two", "other"]
    graph = graph_of("g (float[4] x) => (float[4] y) { a = Relu(x) y = Neg(a) }")
    found = kvviz.compare(graph, {"x": np.ones(4, np.float32)}, ["ideal", "never"])
    assert list(handles_of(plots.memory(found))) == ["ideal", "never"]


def test_a_trace_looks_the_same_in_every_chart_of_a_figure(ways: dict[str, Trace]) -> None:
    figure = plots.protocols(ways)
    looks = [handles_of(ax)["copied"] for ax in figure.axes]
    assert looks == looks[:1] * 3


def handles_of(ax: Any) -> dict[str, Any]:
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    shown = [(h.get_color(), h.get_marker()) for h in ax.get_legend().legend_handles]
    return {name: look for text, look in zip(texts, shown) for name in text.split(", ")}


@pytest.mark.parametrize("size", [(4.0, 3.0), (8.0, 3.0), (13.0, 3.0)])
@pytest.mark.parametrize("chart", [*CHARTS, plots.rows])
def test_no_text_covers_another_or_leaves_the_figure_at_any_size(
    chart: Callable, size: tuple[float, float], ways: dict[str, Trace]
) -> None:
    for source in [ways["copied"], ways] if chart in SEVERAL else [ways["copied"]]:
        ax = plt.figure(figsize=size, layout="constrained").subplots()
        chart(source, ax=ax)
        check_texts(ax.figure)


@pytest.mark.parametrize("layout", ["constrained", "tight"])
def test_charts_side_by_side_leave_each_other_room(layout: str, ways: dict[str, Trace]) -> None:
    others: list[Any] = [plots.lifetimes, plots.rows, plots.memory]
    for source, three in [(ways["copied"], SEVERAL), (ways["copied"], others), (ways, SEVERAL)]:
        figure = plt.figure(figsize=(13.0, 3.0), layout=layout)
        for chart, ax in zip(three, figure.subplots(1, 3)):
            chart(source, ax=ax)
        check_texts(figure)


def test_of_runs_without_steps_the_memory_chart_draws_no_marks(sparse: Trace) -> None:
    ax = plots.memory(sparse)
    kept = [run for run in sparse.runs if run.last > run.first]
    lines = [line for line in ax.get_lines() if line.get_transform() is not ax.transAxes]
    marks = [line for line in lines if len(line.get_xdata()) == 2]
    assert [line.get_xdata()[0] for line in marks] == [run.first for run in kept]
    assert "in the 9 runs whose steps were kept" in ax.get_title(loc="left").replace("\n", " ")


@pytest.mark.parametrize("kind", ["concat", "scatter_nd", "circular"])
def test_every_row_of_every_run_lies_under_a_box_of_its_state(kind: str) -> None:
    made = getattr(small, kind)()
    trace = kvviz.decode(kvviz.load(made.proto), [1, 2, 3, 4], 9, progress=False, **made.options)
    ax = plots.rows(trace)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    by_state = dict(zip(names, ax.collections, strict=True))
    for run in range(9):
        for start, stop, state, _, _ in cells(trace.caches[0], run):
            for row in (start + 0.5, stop - 0.5):
                hit = [
                    name
                    for name, boxes in by_state.items()
                    if any(p.contains_point((row, run + 0.25)) for p in boxes.get_paths())
                ]
                assert hit == [STATES[state]]


def test_rows_can_be_named_and_what_is_not_there_is_refused(decoded: Trace, looping: Trace) -> None:
    assert decoded.caches[2].name in plots.rows(decoded, decoded.caches[2].name).get_title(loc="left")
    with pytest.raises(kvviz.KvvizError, match="there is no cache 'nothing'"):
        plots.rows(decoded, "nothing")
    assert [text.get_text() for text in plots.cache({"loop": looping}).texts] == ["these traces have no caches"]
    # states of rows differ in more than their fill
    kinds = {(heat_cells._HATCH[state], heat_cells._inks(state, LIGHT)[1]) for state in STATES}
    assert len(kinds) == len(STATES)
