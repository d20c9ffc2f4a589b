"""Pages over ggml graphs: hidden pairs with their pictures, what the graph orders, whose cells are, another order."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
from playwright.sync_api import Locator, expect

import kvviz
from kvviz.ggml import KVCache
from kvviz.ggml.graph.context import Context
from kvviz.ggml.order.what_if import reorder
from kvviz.report.palette import LIGHT
from kvviz.view.charts.cell_plot import hue
from kvviz.view.drawing.hazard_picture import hidden_pair_svg
from kvviz.widget import Pair
from tests.ggml.attention_layer import AttentionLayer, LayerForm
from tests.ggml.seed_graphs import SEEDS
from tests.graph.build import MODELS
from tests.ui.conftest import OpenNotebook, Show
from tests.ui.debugger import DebuggerPage
from tests.ui.filepage import FilePage

MAY_COPY = ["clipboard-read", "clipboard-write"]
EVIL = "k</text><script>alert(1)</script>|\"'`é"


def hazards_open(page: FilePage) -> None:
    page.root.locator('[role="tab"][data-id="hazards"]').click()
    expect(page.kv("pairs")).to_be_visible()


def seen(part: Locator) -> bool:
    """Whether all of an element is inside of what its pane shows."""
    told: list[float] = part.evaluate(
        """(node) => {
          const box = node.getBoundingClientRect(), pane = node.closest(".kv-panels").getBoundingClientRect();
          return [box.height, box.top - pane.top, pane.bottom - box.bottom];
        }"""
    )
    return told[0] > 0 and min(told) >= -1


def test_a_decode_step_of_llama_cpp_names_its_hidden_pairs_and_lists_those_that_the_graph_orders(show: Show) -> None:
    trace = kvviz.ggml.load(sorted((MODELS / "llama_cpp").glob("*.jsonl.gz"))[0]).graphs[-1].trace
    page = show(trace, width=1500, height=800)
    found = kvviz.hazards(trace)
    told = page.kv("finding").first
    expect(told.locator("b")).to_have_text(f"{len(found)} hidden pairs; nothing but the order of the list keeps them")
    expect(told.locator(".kv-at")).to_contain_text("RAW × 30 layers: SET_ROWS → MUL_MAT")
    told.click()
    expect(page.kv("pair-card")).to_contain_text("Nothing but the order of the list keeps this read behind that write")
    page.expect_step(min(hazard.second for hazard in found))
    page.root.get_by_text("show all").click()
    # One line in the layer that is open, and one for those of K in all that are folded.
    folded = len(found) // 2 - 1
    expect(page.kv("graph-stage")).to_have_attribute("data-red", f"RAW · {found[0].bytes} B; RAW ×{folded}")
    if not page.kv("pairs").is_visible():
        hazards_open(page)
    # bars and what each precision says are seen without scrolling
    for width in (800, 1100, 1500):
        page.page.set_viewport_size({"width": width, "height": 800})
        for kv in ("pair-bar", "pair-says"):
            expect(page.kv(kv)).to_have_count(3)
            assert [seen(part) for part in page.kv(kv).all()] == [True] * 3, (kv, width)
    ordered = [hazard for hazard in kvviz.hazards(trace, ordered=True) if hazard.ordered]
    expect(page.kv("ordered-group")).to_have_count(0)
    page.kv("pairs-ordered").click()
    expect(page.kv("ordered-count")).to_contain_text(f"{len(ordered):,} pairs that a path")
    # when: K is turned, looked at through a view, and stored
    page.kv("ordered-group").filter(has_text="ROPE → SET_ROWS").click()
    page.kv("ordered").first.click()
    meant = next(h for h in ordered if trace.steps[h.first].op_type == "ROPE" and "SET_ROWS" in h.sentence)
    page.expect_step(meant.second)
    steps = page.kv("pair-path").locator('[data-kv="step-link"]')
    for link, step in ((steps.first, meant.first), (steps.last, meant.second)):
        assert link.get_attribute("data-step") == str(step)
    expect(page.kv("pair-card")).to_contain_text("offset 0")


def test_a_pair_is_found_folded_told_beside_it_and_copied_as_the_picture_that_python_draws(show: Show) -> None:
    form = LayerForm()
    layer = AttentionLayer(Context(), form)
    trace = kvviz.ggml.run([layer.graph(np.ones((1, form.width)), [i]) for i in range(3)])
    page = show(trace, permissions=MAY_COPY)
    hazards_open(page)
    found = kvviz.hazards(trace)
    expect(page.root.locator('[role="tab"][data-id="hazards"]')).to_have_text(f"Hazards {len(found)}")
    expect(page.kv("pair-group")).to_have_text(
        [f"RAW × 3 runs: SET_ROWS → MUL_MAT cache_{side}_l0: 32 B each" for side in "kv"]
    )
    page.kv("pair-group").nth(1).click()
    page.kv("pair").nth(1).click()
    hazard = [h for h in found if h.root == "cache_v_l0"][1]
    page.expect_step(hazard.second)
    expect(page.kv("pair-sentence")).to_have_text(hazard.sentence)
    page.kv("pair-svg").click()
    expect(page.kv("status")).to_have_text("Picture copied")
    drawn = [
        [(node.tag, (node.text or "").strip(), node.get("d", "")) for node in ElementTree.fromstring(svg).iter()]
        for svg in (page.copied(), hidden_pair_svg(trace, hazard))
    ]
    assert drawn[0] == drawn[1]
    page.kv("pair-png").click()
    size = """async () => {
      const [item] = await navigator.clipboard.read();
      if (!item.types.includes("image/png")) return false;
      const image = await createImageBitmap(await item.getType("image/png"));
      return image.width === 1600 && image.height === 904;
    }"""
    page.page.wait_for_function(size)
    told = page.kv("hidden")
    expect(told).to_contain_text("keeps this read behind that write: after")
    told.locator('[data-kv="step-link"]').click()
    page.expect_step(hazard.first)
    expect(told).to_contain_text(f"before step {hazard.second}")
    page.goto(0)
    expect(told).to_have_count(0)


def test_names_are_shown_as_they_are(show: Show) -> None:
    ctx = Context()
    k, row = ctx.new_tensor("f32", 4, 8, name=EVIL), ctx.new_tensor("f32", 4, 2, name="row")
    graph = ctx.new_graph().expand(ctx.cpy(row, ctx.view_2d(k, 4, 2, 16, 0)))
    page = show(kvviz.ggml.run(graph.expand(ctx.cont(ctx.view_2d(k, 4, 8, 16, 0)))), permissions=MAY_COPY)
    hazards_open(page)
    expect(page.kv("pair-group")).to_contain_text(EVIL)
    page.kv("pair-group").click()
    expect(page.kv("pair-card")).to_contain_text(EVIL)
    page.kv("pair-svg").click()
    expect(page.kv("status")).to_have_text("Picture copied")
    assert EVIL in "".join(ElementTree.fromstring(page.copied()).itertext())


def test_cells_have_the_hues_of_their_sequences_and_a_legend_that_counts_them(show: Show) -> None:
    cache = KVCache(8, n_seq_max=3)
    cache.append(3, seq=0)
    cache.append(2, seq=1)
    cache.seq_cp(1, 2)
    cache.seq_rm(0, 1, 3)
    page = show(cache.trace, f"#step={len(cache.trace.steps) - 1}")
    page.root.locator('[role="tab"][data-id="caches"]').click()
    # Cell 0 is of sequence 0, cells 1 and 2 are freed and dirty, 3 and 4 are of sequences 1 and 2.
    expect(page.kv("cache-sequence")).to_have_text(["sequence 01", "sequence 12", "sequence 22"])
    expect(page.kv("cache-cell")).to_have_text(["freed, dirty2"])
    for seq, least in ((0, 20), (1, 40)):
        rgb = [int(hue(seq, LIGHT)[at : at + 2], 16) for at in (1, 3, 5)]
        counted = page.kv("heat").evaluate(
            """(canvas, [r, g, b]) => {
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              let n = 0;
              for (let i = 0; i < data.length; i += 4) if (data[i] === r && data[i + 1] === g && data[i + 2] === b) n++;
              return n;
            }""",
            rgb,
        )
        assert counted > least


def test_what_another_order_breaks_is_said_where_it_does(show: Show, tmp_path: Path) -> None:
    orders = reorder(SEEDS["seed_write_first"]().graph, [2, 3, 0, 1])  # the read comes before the write
    pair = Pair(orders.before, orders.trace)
    pair.cursor = 1
    pair.to_html(tmp_path / "orders.html")
    page = show(tmp_path / "orders.html")
    page.kv("lane-compare").click()
    expect(page.kv("lane-broken")).to_have_text("✕ 1 broken")
    expect(page.kv("order-moved")).to_have_attribute("data-broken", "1")
    expect(page.kv("order-broken")).to_contain_text("RAW, 32 B of k_cache: MUL_MAT kq reads")
    expect(page.kv("order-value")).to_contain_text("MUL_MAT kq is the first that made other numbers: largest 8 → 0")
    # not by colour alone
    broken = page.kv("orders").locator('[data-kv="order-op"][data-broken]')
    assert [row.inner_text().split()[-2:] for row in broken.all()] == [["✕", "RAW"]] * 2
    page.kv("order-broken").click()
    page.expect_step(3)
    expect(page.kv("lane").nth(1)).to_have_attribute("data-shown", "1")


GRAPH = """
import kvviz
from kvviz.ggml import Context
ctx = Context()
k = ctx.new_tensor("f32", 4, 8, name="k_cache", role="state")
k_cur = ctx.new_tensor("f32", 4, 2, name="k_cur", data=[1] * 4 + [2] * 4)
q = ctx.new_tensor("f32", 4, 1, name="q", data=1)
write = ctx.set_name(ctx.cpy(k_cur, ctx.set_name(ctx.view_2d(k, 4, 2, 16, 48), "k_write_view")), "k_write")
kq = ctx.set_name(ctx.mul_mat(ctx.set_name(ctx.view_2d(k, 4, 8, 16, 0), "k_read_view"), q), "kq")
kvviz.debug(ctx.new_graph("seed").expand(write).expand(kq))
"""


def test_a_graph_is_stepped_live_past_its_end_and_led_another_way_in_a_lane(open_notebook: OpenNotebook) -> None:
    debugger = DebuggerPage(open_notebook([GRAPH], width=1600))
    for step in range(4):
        debugger.kv("next").click()
        debugger.expect_step(step)
    debugger.kv("next").click()
    expect(debugger.kv("status")).to_contain_text("everything has run")
    assert debugger.python("t.outputs['kq'].tolist()") == [0, 0, 0, 4, 8, 0, 0, 0]
    # when: the read goes first, one pick after the other
    debugger.press("Home")
    for number, name in enumerate(("k_read_view", "kq")):
        row = debugger.kv("frontier-row").filter(has_text=name)
        row.locator('[data-kv="run-next"]').click()
        expect(debugger.kv("lane")).to_have_count(number + 2)
        debugger.expect_step(number)
    expect(debugger.kv("lane-broken")).to_have_text("✕ 1 broken")
    assert debugger.python("t.outputs['kq'].tolist()") == [0] * 8
    debugger.kv("lane-compare").last.click()
    expect(debugger.kv("order-value")).to_contain_text(
        "3 of its 32 bytes differ, between byte 14 and 19, because MUL_MAT kq reads k_read_view"
    )
