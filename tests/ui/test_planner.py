"""The planner in a real JupyterLab and in a file: what it shows of an event is what the planning events say."""

from pathlib import Path

from playwright.sync_api import expect

import kvviz
from kvviz.widget import Planner
from tests.test_models import graph_of
from tests.ui.conftest import OpenNotebook, Show
from tests.ui.filepage import Shown

CELL = """
import kvviz
from kvviz.widget import plan
planner = plan(kvviz.load("assets/models/o01_optimum_llama/model.onnx"), policy="rten")
planner
"""


def test_an_event_is_told_with_its_reason_and_its_frontier_and_keys_and_python_move_on(
    open_notebook: OpenNotebook,
) -> None:
    notebook = open_notebook([CELL], width=1500)
    planner = Shown(notebook.page)
    picks = notebook.python("[i for i, e in enumerate(planner.events) if e.action == 'pick']")
    for event in (0, picks[0], picks[30]):
        planner.goto(event)
        reason, frontier, node = notebook.python(
            f"(lambda e: [e.reason, [n.name for n in e.frontier], e.node.name])(planner.events[{event}])"
        )
        expect(planner.kv("event").locator(".kv-sentence")).to_have_text(f"{reason}.")
        rows = planner.kv("frontier-row")
        expect(rows).to_have_count(min(len(frontier), 60))
        assert [(row.get_attribute("title") or "").split(": ran as")[0] for row in rows.all()] == frontier[:60]
        if frontier:
            chosen = planner.root.locator('[data-kv="frontier-row"][data-next]')
            assert (chosen.get_attribute("title") or "").startswith(node)
    press = notebook.page.keyboard.press
    planner.root.focus()
    for key in ("Home", "ArrowRight", "n", "p"):
        press(key)
    planner.expect_step(0)
    for key in (".", ".", ","):
        press(key)
    planner.expect_step(picks[0])
    notebook.page.wait_for_timeout(500)
    assert notebook.python("planner.cursor") == picks[0]
    notebook.execute(f"planner.goto({picks[20]})")
    planner.expect_step(picks[20])
    planner.root.locator(f'.kv-order [data-kv="event-row"][data-step="{picks[14]}"]').click()
    planner.expect_step(picks[14])
    expect(planner.root.locator(".kv-events tr[aria-current]")).to_contain_text("pick")
    planner.root.evaluate("(root) => { root.style.width = '600px'; }")
    assert planner.root.evaluate("(root) => root.scrollWidth - root.clientWidth") <= 0


def test_files_step_through_the_events_and_show_what_the_policys_planner_says_of_a_step(
    show: Show, tmp_path: Path
) -> None:
    graph = graph_of("o01_optimum_llama")
    made = Planner(graph, policy="least_live")
    made.goto(5)
    made.to_html(tmp_path / "plan.html")
    planner = show(tmp_path / "plan.html")
    planner.expect_step(5)
    planner.kv("next").click()
    planner.expect_step(6)
    expect(planner.kv("event").locator(".kv-sentence")).to_have_text(f"{made.events[6].reason}.")
    trace = kvviz.decode(graph, [5, 17, 33], 1, policy="onnxruntime")
    page = show(trace)
    for step in (3, 8, 64):
        page.goto(step)
        told = trace.log[step].op.note
        assert told.startswith("k")
        expect(page.kv("plan-note")).to_have_text(f"Plan {told}")
