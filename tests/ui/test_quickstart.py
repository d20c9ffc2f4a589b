"""The first notebook in a real JupyterLab: what its debugger shows is what the trace in the kernel says."""

from playwright.sync_api import expect

from tests.ui.conftest import OpenNotebook
from tests.ui.debugger import DebuggerPage

FACTS = "[[s.op_type, s.node, [[o.name, o.label] for o in s.outs]] for s in t.steps[%d:%d]]"


def test_a_picture_shows_the_step_until_the_cells_are_run_and_then_the_debugger_does(
    open_notebook: OpenNotebook,
) -> None:
    # given a notebook as committed, which nobody here has trusted yet
    notebook = open_notebook("00_quickstart.ipynb", width=1800)
    picture = notebook.page.locator('.jp-OutputArea-output img[alt^="Step "]').first
    picture.scroll_into_view_if_needed()
    expect(picture).to_be_visible()
    assert picture.evaluate("(image) => image.complete && image.naturalWidth > 100")
    expect(notebook.page.locator(".kvviz")).to_have_count(0)
    notebook.run_all()
    debugger = DebuggerPage(notebook)
    debugger.expect_step(debugger.python("d.cursor"))
    debugger.press("t")
    stops = debugger.python("[stop.step for stop in t.tour.stops]")
    assert len(stops) == 8
    for number, step in enumerate(stops, 1):
        expect(debugger.kv("tour-number")).to_have_text(f"{number} of 8")
        debugger.expect_step(step)
        expect(debugger.root.locator("[data-lit]").first).to_be_visible()
        if number == 2:
            expect(debugger.kv("heat")).to_be_visible()
            expect(debugger.kv("occupancy")).to_have_attribute("data-moves", "")  # room was reserved: nothing moves
        notebook.page.keyboard.press("ArrowRight")
    expect(debugger.kv("tour-card")).to_be_hidden()
    middle = debugger.steps // 2
    debugger.goto(middle)
    facts = debugger.python(FACTS % (middle + 1, middle + 6))
    for number, (op, node, outs) in enumerate(facts, middle + 1):
        debugger.kv("next").click()
        debugger.expect_step(number)
        expect(debugger.kv("sentence")).to_contain_text(f"Step {number}: ")
        expect(debugger.root.locator(".kv-this .kv-big")).to_have_attribute("title", node)
        expect(debugger.root.locator(".kv-this .kv-big")).to_contain_text(op)
        written = debugger.root.locator('.kv-places tr[data-side="out"]')
        for row, (name, buffer) in zip(written.all(), outs, strict=True):
            expect(row.locator('[data-kv="value"]')).to_have_attribute("title", name)
            expect(row.locator('[data-kv="buffer"]')).to_have_text(buffer)
    # Python follows keys, once a move has reached its kernel, and the page follows Python
    debugger.press("Home", "ArrowRight", "n", "ArrowRight", "ArrowLeft")
    debugger.expect_step(1)
    notebook.page.wait_for_timeout(500)
    assert debugger.python("d.cursor") == 1
    notebook.execute("_kv.cursor = 7")
    debugger.expect_step(7)
    # at the recorded end one more op runs
    debugger.press("End")
    end = debugger.python("len(t.steps)")
    debugger.expect_step(end - 1)
    debugger.kv("next").click()
    debugger.expect_step(end)
    assert debugger.python("len(t.steps)") == end + 1
    expect(debugger.kv("sentence")).to_contain_text(f"Step {end}: ")
