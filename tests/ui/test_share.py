"""What can be shared from a file, without a kernel: Markdown, pictures, an address, the file itself."""

import re
import xml.etree.ElementTree as ElementTree
from io import BytesIO
from pathlib import Path

import numpy as np
from playwright.sync_api import expect

import kvviz
from tests.ui.conftest import Show
from tests.ui.filepage import FilePage

MAY_COPY = ["clipboard-read", "clipboard-write"]


def pixels(png: bytes) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(BytesIO(png)))


def saved(page: FilePage, button: str, path: Path) -> Path:
    with page.page.expect_download() as download:
        page.kv(button).click()
    download.value.save_as(path)
    return path


def test_the_page_and_python_write_the_same_markdown_to_copy_or_to_save(
    show: Show, story: kvviz.Trace, tmp_path: Path
) -> None:
    # given steps of every kind: missed with a fix, missed without, in place, a view, and the last one
    missed = kvviz.explain(story).missed
    fixed = next(m.step for m in missed if m.fix is not None)
    unfixed = next(m.step for m in missed if m.fix is None)
    in_place = next(step.index for step in story.steps if step.decision.taken)
    view = next(step.index for step in story.steps if any(out.how == "view" for out in step.outs))
    # and one whose op spent more at another step, of which the fix is
    less = next(m.steps[0] for m in missed if m.fix is not None and m.steps[0] != m.step)
    assert "For step " in story.to_markdown(less) and "For step " not in story.to_markdown(fixed)
    page = show(story, permissions=MAY_COPY)
    for step in (fixed, less, unfixed, in_place, view, len(story.steps) - 1):
        page.goto(step)
        page.kv("share").first.click()
        page.kv("share-step-copy").click()
        expect(page.kv("share-said")).to_have_text("copied")
        assert page.copied() == story.to_markdown(step)
        page.page.keyboard.press("Escape")
    page.page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.goto(100)
    page.kv("share").first.click()
    assert saved(page, "share-step-copy", tmp_path / "step.md").read_text("utf-8") == story.to_markdown(100)
    expect(page.kv("share-said")).to_contain_text("may not write to the clipboard")


def test_a_picture_shows_what_the_page_shows(show: Show, story: kvviz.Trace, tmp_path: Path) -> None:
    page = show(story, "#step=700", color_scheme="dark")
    page.expect_step(700)
    app = page.root.locator(".kv-app")
    seen = pixels(app.screenshot())
    page.kv("share").first.click()
    picture = pixels(saved(page, "share-png-save", tmp_path / "page.png").read_bytes())[::2, ::2, :3]
    # then it is drawn at twice the size, and little of it differs
    rows, columns = (min(a, b) for a, b in zip(seen.shape, picture.shape, strict=True) if min(a, b) > 4)
    assert abs(picture.shape[1] - seen.shape[1]) <= 2 and abs(picture.shape[0] - seen.shape[0]) <= 2
    far = np.abs(seen[:rows, :columns, :3] - picture[:rows, :columns]).max(2) > 0.35
    assert far.mean() < 0.06
    # as many of the pixels have ink
    ground = np.median(seen[..., :3].reshape(-1, 3), 0)
    ink = [(np.abs(p[:rows, :columns, :3] - ground).max(2) > 0.3).mean() for p in (seen, picture)]
    assert 0.8 < ink[1] / ink[0] < 1.25


def test_an_address_leads_to_a_step_and_a_thing_follows_and_can_be_copied(show: Show, story: kvviz.Trace) -> None:
    page = show(story, "#step=619&sel=B345", permissions=MAY_COPY)
    page.expect_step(619)
    expect(page.root.locator(".kv-this")).to_contain_text("B345")
    # a node by name; somebody changes the address
    name = story.steps[700].node
    page.page.evaluate("(name) => { location.hash = `step=700&sel=${encodeURIComponent(name)}` }", name)
    page.expect_step(700)
    expect(page.root.locator(".kv-this")).to_contain_text(story.steps[700].op_type)
    page.page.evaluate("() => { location.hash = 'step=5&query=Concat' }")
    page.expect_step(5)
    expect(page.kv("query")).to_have_value("Concat")
    # it follows a move, which is no page that Back would lead to
    many = page.page.evaluate("() => history.length")
    page.root.focus()
    page.page.keyboard.press("n")
    page.expect_step(6)
    expect(page.page).to_have_url(re.compile("#step=6&(.*&)?query=Concat$"))
    assert page.page.evaluate("() => history.length") == many
    page.kv("share").first.click()
    page.kv("share-link").click()
    expect(page.kv("share-said")).to_have_text("copied")
    assert page.copied() == page.page.url


def test_a_finding_and_the_drawer_are_part_of_the_address_and_of_a_saved_file(
    show: Show, story: kvviz.Trace, tmp_path: Path
) -> None:
    page = show(story)
    framed = page.kv("evidence-at")
    page.kv("evidence-next").click()
    page.root.locator('[data-kv="tab"][data-id="buffers"]').click()
    expect(framed).to_have_text(re.compile("^2 "))
    expect(page.page).to_have_url(re.compile(r"finding=\d+\.1&list=buffers$"))
    shown, step = framed.inner_text(), page.root.get_attribute("data-step")
    page.kv("share").first.click()
    file = saved(page, "share-html", tmp_path / "again.html")
    for again in (show(story, f"#{page.page.url.partition('#')[2]}"), show(file)):
        again.expect_step(int(step or -1))
        expect(again.kv("evidence-at")).to_have_text(shown)
        expect(again.root.locator('[data-kv="tab"][data-id="buffers"]')).to_have_attribute("aria-selected", "true")


def test_every_pane_offers_a_picture_of_itself_and_rows_are_saved_as_a_table(
    show: Show, story: kvviz.Trace, tmp_path: Path
) -> None:
    page = show(story, "#step=700", width=1500)
    page.kv("open-map").click()
    page.root.locator('[role="tab"][data-id="steps"]').click()
    expect(page.root.locator('[data-kv="table-row"]').first).to_be_visible()
    for name in ("inspector", "memory map", "lists", "graph"):
        page.page.keyboard.press("Escape")
        expect(page.kv("share-menu")).to_have_count(0)
        page.root.locator(f'[data-kv="copy-pane"][data-id="{name}"]').click()
        expect(page.kv("share-menu")).to_contain_text(f"Picture of the {name}")
        if name == "lists":
            text = saved(page, "share-rows-save", tmp_path / "rows.md").read_text("utf-8")
    head, rule, *rows = text.strip().split("\n")
    assert head.startswith("| step |") and set(rule) == set("| -")
    told = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert len(told) > 4 and {len(cells) for cells in told} == {head.count("|") - 1}
    for cells in told:
        assert cells[head.split(" | ").index("op")] == story.steps[int(cells[0])].op_type
    # the graph's has all that it needs, and a browser draws it
    text = saved(page, "share-svg-save", tmp_path / "graph.svg").read_text("utf-8")
    box = page.root.locator(".kv-graph").bounding_box()
    assert box is not None and abs(float(ElementTree.fromstring(text).attrib["width"]) - box["width"]) <= 1
    assert "http://" not in text.replace("http://www.w3.org/", "")
    page.page.goto((tmp_path / "graph.svg").as_uri())
    assert len(np.unique(pixels(page.page.screenshot()).reshape(-1, 4), axis=0)) > 20
