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


def texts(ax: Any) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in ax.texts]


def rows(ax: Any) -> list[str]:
    return [tick.get_text() for tick in ax.get_yticklabels()]


def story() -> KVCache:
    cache = KVCache(8, n_seq_max=2)
    cache.append(4, seq=0)
    cache.append(2, seq=1)
    cache.seq_rm(0, 1, 3)
    cache.append(3, seq=1)
    cache.seq_add(0, 3, -1, -2)
    return cache


def test_rows_are_the_calls_with_what_they_did_and_every_state_has_a_hatch_of_its_own() -> None:
    cache = story()
    ax = kvviz.plot.cells(cache)
    assert rows(ax) == ["new", *[change.call for change in cache.history[1:]]]
    assert "find_slot 3 tokens → cells 1, 2, 6; head 7" in texts(ax)
    assert not any("find_slot" in text for text in texts(kvviz.plot.cells(cache, words=False)))
    last = kvviz.plot.cells(cache, last=2)
    assert rows(last) == ["decode 3 tokens", "seq_add(0, 3, -1, -2)"] and "last 2 calls" in last.get_title(loc="left")
    cache.seq_cp(0, 1, 0, 1)
    names = [text.get_text() for text in kvviz.plot.cells(cache).get_legend().get_texts()]
    assert names[:4] == ["sequence 0", "sequence 1", "freed, dirty", "shift pending"]
    marked = [hatch for hatch in HATCHES.values() if hatch]
    assert len(set(marked)) == len(marked) == 2
    with pytest.raises(KvvizError, match="last 0 calls"):
        kvviz.plot.cells(cache, last=0)


def test_a_wide_cache_is_cut_to_its_last_used_cells_or_to_those_that_are_asked_for() -> None:
    cache = KVCache(256, n_seq_max=2)
    cache.append(60, seq=0)
    cache.append(30, seq=1)
    ax = kvviz.plot.cells(cache)
    assert "the first 91 of 256" in ax.get_title(loc="left") and {"s0", "s1"} <= set(texts(ax))
    cache = KVCache(1024)
    cache.append(500)
    assert "181 to 500 of 1,024" in kvviz.plot.cells(cache, words=False).get_title(loc="left")
    ax = kvviz.plot.cells(cache, first=480, words=False)
    assert "480 to 500 of 1,024" in ax.get_title(loc="left")
    assert "499" in texts(ax) and "479" not in texts(ax)
    with pytest.raises(KvvizError, match="cells 0 to 1023"):
        kvviz.plot.cells(cache, first=1024)


def test_a_notebook_shows_the_chart_with_what_the_last_call_did_as_its_text() -> None:
    cache = story()
    page = cache._repr_html_()
    assert escape(cache.history[-1].text) in page
    picture = base64.b64decode(page.partition("base64,")[2].rstrip('">'))
    assert picture.startswith(b"\x89PNG") and len(picture) < 200_000
    assert plt.get_fignums() == [], "no figure stays open"
    assert "</script>" not in KVCache(8, name='</script><b>"k"')._repr_html_()
