"""Charts: they show the trace's numbers, cover nothing, and leave no state behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import kvviz
from kvviz.engine.trace import Trace
from kvviz.view import plots
from kvviz.view.chart import MOST_POINTS, thinned, unit_of
from kvviz.view.palette import luminance

CHARTS = [plots.memory, plots.cache, plots.copies, plots.lifetimes]


@pytest.fixture(autouse=True)
def no_figures() -> Iterator[None]:
    plt.close("all")
    yield
    plt.close("all")


def extents(ax: Any) -> dict[str, Any]:
    """Where the texts of a chart lie, in pixels, by their words."""
    ax.figure.canvas.draw()
    renderer = ax.figure.canvas.get_renderer()
    texts = [*ax.texts, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
    if ax.get_legend() is not None:
        texts += ax.get_legend().get_texts()
    shown = {t.get_text() + f"@{i}": t.get_window_extent(renderer) for i, t in enumerate(texts) if t.get_text()}
    return {text: box for text, box in shown.items() if box.width and box.height}


@pytest.mark.parametrize("chart", CHARTS)
def test_a_chart_draws_on_the_axes_that_it_is_given_and_returns_them(chart: Callable, trace: Trace) -> None:
    ax = Figure().subplots()
    assert chart(trace, ax=ax) is ax
    assert ax.has_data() or ax.texts
    assert plt.get_fignums() == []


@pytest.mark.parametrize("chart", CHARTS)
def test_a_chart_of_its_own_is_one_figure(chart: Callable, decoded: Trace) -> None:
    ax = chart(decoded)
    assert plt.get_fignums() == [ax.figure.number]
    assert ax.get_ylabel() or chart is plots.lifetimes


@pytest.mark.parametrize("chart", CHARTS)
def test_no_text_covers_another(chart: Callable, trace: Trace) -> None:
    boxes = extents(chart(trace))
    hits = [(a, b) for (a, x), (b, y) in combinations(boxes.items(), 2) if x.padded(-1).overlaps(y.padded(-1))]
    assert hits == []


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
    unit = {"[kB]": 1e3, "[B]": 1, "[MB]": 1e6}[ax.get_ylabel().split()[-1]]
    assert np.allclose(np.asarray(curve.get_ydata()) * unit, live)
    at = int(live.argmax())
    (note,) = [t.get_text() for t in ax.texts if t.get_text().startswith("peak")]
    assert f"step {at:,}" in note and decoded.steps[at].op_type in note


def test_where_weights_are_most_of_it_the_axis_starts_at_them_and_says_so(decoded: Trace) -> None:
    weights = sum(s.capacity for s in decoded.storages if s.origin == "weights")
    assert weights * 2 > max(step.live_bytes for step in decoded.steps)
    ax = plots.memory(decoded)
    assert "axis starts at the weights" in ax.get_title(loc="left")
    assert ax.get_ylim()[0] == pytest.approx(weights / 1e3)


def test_where_weights_are_little_the_axis_starts_at_nothing(looping: Trace) -> None:
    ax = plots.memory(looping)
    assert ax.get_ylim()[0] == 0
    assert ax.get_title(loc="left") == f"Memory of {looping.title}"


def test_the_cache_chart_shows_rows_reserved_and_valid(decoded: Trace) -> None:
    ax = plots.cache(decoded)
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.get_lines()}
    reserved, valid = (next(y for label, y in lines.items() if label.endswith(word)) for word in ("reserved", "valid"))
    assert reserved == [16] * 4
    assert valid == [6, 7, 8, 9]
    assert len(lines) == 2, "equal caches are drawn once"


def test_the_bars_of_copies_add_up_to_what_was_written(copying: Trace) -> None:
    ax = plots.copies(copying)
    copied, rest = (sum(bar.get_height() for bar in bars) for bars in ax.containers)
    unit = {"[kB]": 1e3, "[B]": 1, "[MB]": 1e6}[ax.get_ylabel().split()[-1]]
    assert copied * unit == pytest.approx(copying.bytes_copied)
    assert rest * unit == pytest.approx(copying.bytes_written - copying.bytes_copied)


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


def test_charts_are_public() -> None:
    assert {chart.__name__ for chart in CHARTS} <= set(dir(kvviz.plot))
