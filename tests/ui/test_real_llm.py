"""SmolLM2 in a real JupyterLab: 160 runs of a model with 30 layers and 60 caches open, scrub, and can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.smollm2.real import BUILD, real_folder
from tests.ui import pace
from tests.ui.caches import CachePage
from tests.ui.conftest import from_cells, opened
from tests.ui.debugger import DebuggerPage
from tests.ui.server import Jupyter
from tests.ui.test_long_decode import to_run

pytestmark = [pytest.mark.ui, pytest.mark.slow]

RUNS, ROOM, PROMPT = 160, 210, 51
TOLD = (1, 2, 32, 64, 96, 128, 150, 159)
OPS = 1705
GUIDE = f"""
import kvviz
from kvviz.caches.cache_heat import attention
graph = kvviz.load("build/smollm2/model.onnx")
words = kvviz.smollm2.tokenizer("build/smollm2")
prompt = words.chat("Write a travel guide to Paris: what to see, what to eat, and how to get around.")
trace = kvviz.decode(graph, prompt, {RUNS}, tokenizer=words, kv_capacity={ROOM}, detail={TOLD}, progress=False)
debugger = kvviz.debug(trace)
debugger
"""
BARE = 100  # a run whose steps were not kept
STEPWISE = 150


@pytest.fixture(scope="module")
def debugger(browser: Browser, jupyter: Jupyter) -> Iterator[DebuggerPage]:
    real_folder()
    (jupyter.root / "build").symlink_to(BUILD)
    nbformat.write(from_cells([GUIDE]), jupyter.root / "guide.ipynb")
    with opened(browser, jupyter, "guide.ipynb", width=1700) as notebook:
        notebook.run_all()
        yield DebuggerPage(notebook)


@pytest.fixture
def caches(debugger: DebuggerPage) -> Iterator[CachePage]:
    view = CachePage(debugger.notebook.page)
    view.open()
    yield view
    debugger.notebook.page.mouse.move(0, 0)
    debugger.notebook.check()


def test_the_page_gets_all_runs_in_less_than_250_kb(debugger: DebuggerPage) -> None:
    runs, steps, size = debugger.python("[len(t.runs), len(t.steps), len(d.payload)]")
    assert [runs, steps] == [RUNS, (len(TOLD) + 1) * OPS]
    assert size < 250_000
    assert debugger.steps == steps
    expect(debugger.root).to_contain_text("Paris")


MOVES = {"step": (pace.PRESS_KEYS, pace.STEP), "drag": (pace.DRAG_STEPS, pace.DRAG)}


@pytest.mark.parametrize("open_blocks", [False, True], ids=["folded", "unfolded"])
@pytest.mark.parametrize(("script", "limit"), MOVES.values(), ids=MOVES)
def test_moving_the_cursor_is_fast(debugger: DebuggerPage, script: str, limit: float, open_blocks: bool) -> None:
    debugger.kv("unfold" if open_blocks else "fold").click()
    debugger.goto(debugger.python("t.runs[96].first"))
    assert pace.cost_of(debugger.root, script, 120) < limit


def test_dragging_over_all_runs_is_fast_with_the_caches_in_view(debugger: DebuggerPage, caches: CachePage) -> None:
    caches.to_run(0)
    assert pace.cost_of(debugger.root, pace.DRAG_RUNS, 128) < pace.DRAG


def readable(box: Locator) -> bool:
    """Nothing of a part lies outside of it sideways."""
    return bool(box.evaluate("(root) => root.scrollWidth - root.clientWidth") <= 0)


@pytest.mark.parametrize(("width", "theme"), [(700, "dark"), (1400, "light")])
@pytest.mark.parametrize("pane", ["steps", "totals", "caches"])
def test_it_fits_its_width_in_both_themes(
    debugger: DebuggerPage, theme: Literal["light", "dark"], width: int, pane: str
) -> None:
    notebook = debugger.notebook
    notebook.theme(theme)
    tab = debugger.root.locator(f'[data-kv="tab"][data-id="{"caches" if pane == "caches" else "steps"}"]')
    if tab.get_attribute("aria-selected") != "true":
        tab.click()
    to_run(debugger, BARE if pane == "totals" else STEPWISE)
    debugger.root.evaluate("(root, width) => { root.style.width = `${width}px`; }", width)
    fits = readable(debugger.root)
    notebook.screenshot(f"llm-{pane}-{theme}-{width}", debugger.root)
    debugger.root.evaluate("(root) => { root.style.width = ''; }")
    notebook.theme("light")
    assert fits
