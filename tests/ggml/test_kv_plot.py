"""The chart of the cells: what it says of every cell without any colour."""

import base64
from collections.abc import Iterator
from html import escape
from typing import Any

import matplotlib
import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml import KVCache
from kvviz.view.charts.cell_plot import HATCHES

matplotlib.use("agg")
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def story() -> KVCache:
    cache = KVCache(8, n_seq_max=2)
    cache.append(4, seq=0)
    cache.append(2, seq=1)
    cache.seq_rm(0, 1, 3)
    cache.append(3, seq=1)
    cache.seq_add(0, 3, -1, -2)
    return cache


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def at(ax: Any, row: int, cell: int) -> list[str]:
    """What is written in a cell, from top to bottom."""
    inside = [t for t in ax.texts if row < t.get_position()[1] < row + 1 and cell < t.get_position()[0] < cell + 1]
    return [t.get_text() for t in sorted(inside, key=lambda t: t.get_position()[1])]


def test_rows_are_the_calls_and_beside_them_stands_what_they_did() -> None:
    cache = story()
    ax = kvviz.plot.cells(cache)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["new", *[c.call for c in cache.history[1:]]]
    assert "find_slot 3 tokens → cells 1, 2, 6; head 7" in [text.replace("\n", " ") for text in texts(ax)]
    assert not any("find_slot" in text for text in texts(kvviz.plot.cells(cache, words=False)))


def test_every_state_that_occurs_is_in_the_legend_with_a_hatch_of_its_own() -> None:
    cache = story()
    cache.seq_cp(0, 1, 0, 1)
    names = [text.get_text() for text in kvviz.plot.cells(cache).get_legend().get_texts()]
    assert names[:4] == ["sequence 0", "sequence 1", "freed, dirty", "shift pending"]
    marked = [hatch for hatch in HATCHES.values() if hatch]
    assert len(set(marked)) == len(marked) == 2


def test_a_wide_cache_is_cut_behind_its_last_used_cell_and_names_runs_of_cells() -> None:
    cache = KVCache(256, n_seq_max=2)
    cache.append(60, seq=0)
    cache.append(30, seq=1)
    ax = kvviz.plot.cells(cache)
    assert "the first 91 of 256" in ax.get_title(loc="left")
    assert {"s0", "s1"} <= set(texts(ax))


def test_of_a_very_wide_cache_the_last_used_cells_are_drawn_or_those_that_are_asked_for() -> None:
    cache = KVCache(1024)
    cache.append(500)
    title = kvviz.plot.cells(cache, words=False).get_title(loc="left")
    assert "181 to 500 of 1,024" in title
    ax = kvviz.plot.cells(cache, first=480, words=False)
    assert "480 to 500 of 1,024" in ax.get_title(loc="left")
    assert at(ax, 1, 19)[0] == "499"
    with pytest.raises(KvvizError, match="cells 0 to 1023"):
        kvviz.plot.cells(cache, first=1024)


def test_only_the_last_calls_are_drawn_where_that_is_asked_for() -> None:
    ax = kvviz.plot.cells(story(), last=2)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["decode 3 tokens", "seq_add(0, 3, -1, -2)"]
    assert "the last 2 calls" in ax.get_title(loc="left").replace("\n", " ")
    with pytest.raises(KvvizError, match="last 0 calls"):
        kvviz.plot.cells(story(), last=0)


def test_a_notebook_shows_the_chart_with_what_the_last_call_did_as_its_text() -> None:
    cache = story()
    page = cache._repr_html_()
    assert escape(cache.history[-1].text) in page
    picture = base64.b64decode(page.partition("base64,")[2].rstrip('">'))
    assert picture.startswith(b"\x89PNG") and len(picture) < 200_000
    assert plt.get_fignums() == [], "no figure stays open"


def test_names_of_any_kind_stay_text_in_a_notebook() -> None:
    assert "</script>" not in KVCache(8, name='</script><b>"k"')._repr_html_()
