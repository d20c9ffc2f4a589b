"""SmolLM2 in a real JupyterLab: 160 runs of a model with 30 layers and 60 caches open and scrub."""

import pytest
from playwright.sync_api import expect

from tests.smollm2.real import BUILD, real_folder
from tests.ui import pace
from tests.ui.caches import CachePage
from tests.ui.conftest import OpenNotebook
from tests.ui.debugger import DebuggerPage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.slow

RUNS, ROOM = 160, 210
TOLD = (1, 2, 32, 64, 96, 128, 150, 159)
OPS = 1705
GUIDE = f"""
import kvviz
graph = kvviz.load("build/smollm2/model.onnx")
words = kvviz.smollm2.tokenizer("build/smollm2")
prompt = words.chat("Write a travel guide to Paris: what to see, what to eat, and how to get around.")
trace = kvviz.decode(graph, prompt, {RUNS}, tokenizer=words, kv_capacity={ROOM}, detail={TOLD}, progress=False)
debugger = kvviz.debug(trace)
debugger
"""


def test_the_page_gets_all_runs_in_less_than_250_kb_and_moving_the_cursor_is_fast(
    open_notebook: OpenNotebook, jupyter: Jupyter
) -> None:
    real_folder()
    (jupyter.root / "build").symlink_to(BUILD)
    debugger = DebuggerPage(open_notebook([GUIDE], width=1700))
    runs, steps, size = debugger.python("[len(t.runs), len(t.steps), len(d.payload)]")
    assert [runs, steps] == [RUNS, (len(TOLD) + 1) * OPS]
    assert size < 250_000
    assert debugger.steps == steps
    expect(debugger.root).to_contain_text("Paris")
    for blocks in ("fold", "unfold"):
        debugger.kv(blocks).click()
        for script, limit in ((pace.PRESS_KEYS, pace.STEP), (pace.DRAG_STEPS, pace.DRAG)):
            debugger.goto(debugger.python("t.runs[96].first"))
            assert pace.cost_of(debugger.root, script, 120) < limit, (blocks, limit)
    caches = CachePage(debugger.page)
    caches.open()
    caches.to_run(0)
    assert pace.cost_of(caches.root, pace.DRAG_RUNS, 128) < pace.DRAG
