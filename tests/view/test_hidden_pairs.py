"""Hidden pairs as the page is told them, and the picture of one of them."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.graph.context import Context
from kvviz.report.declared_findings import NONE_HIDDEN
from kvviz.view.drawing.hazard_picture import PAIR_TEXTS, WIDTH, headline, hidden_pair_svg
from kvviz.view.page_data import payload_report
from kvviz.view.page_data.payload import Payloads, decode, payload
from tests.ggml.attention_layer import AttentionLayer, LayerForm
from tests.ggml.seed_graphs import kv
from tests.test_models import graph_of

HOSTILE = "k\"]}</text></svg><script>alert(1)</script>|`a b`&amp;'"


def decoded(steps: int = 3, flash: bool = False) -> kvviz.Trace:
    form = LayerForm(flash=flash)
    layer = AttentionLayer(Context(), form)
    graphs = [layer.graph(np.ones((1, form.width)), [i]) for i in range(steps)]
    trace: kvviz.Trace = kvviz.ggml.run(graphs)
    return trace


def columns_of_a_transposed_cache(name: str = "v") -> Any:
    """Two writes that overlap in range and not in bytes, and two that do not overlap at all."""
    ctx = Context()
    v = ctx.new_tensor("f16", 8, 4, name=name)
    graph = ctx.new_graph()
    for n, cell in ((2, 3), (1, 6)):
        graph.expand(ctx.cpy(ctx.new_tensor("f32", n, 4, name="v_cur"), ctx.view_2d(v, n, 4, 16, 2 * cell)))
    k, row = ctx.new_tensor("f32", 4, 8, name="k"), ctx.new_tensor("f32", 4, 2, name="k_cur")
    graph.expand(ctx.cpy(row, ctx.view_2d(k, 4, 2, 16, 0)))
    return graph.expand(ctx.cont(ctx.view_2d(k, 4, 4, 16, 64)))


def told(trace: Any) -> tuple[dict[str, Any], dict[str, np.ndarray], list[dict[str, str]]]:
    """Header and columns of a payload, and the texts of each pair in it."""
    header, columns = decode(payload(trace))
    names = [*PAIR_TEXTS, *payload_report.PAIR_PATHS]
    texts = [header["strings"][i] for i in columns["pairtext.of"]]
    return header, columns, [dict(zip(names, texts[i:])) for i in range(0, len(texts), len(names))]


@pytest.mark.parametrize(
    "graph", [kv, lambda: kv(read_first=True), lambda: kv(rows=True), columns_of_a_transposed_cache]
)
def test_the_page_is_told_what_hazards_finds_at_every_precision(graph: Any) -> None:
    made = graph()
    trace = getattr(made, "graph", made).trace
    header, columns, _ = told(trace)
    for place, (level, column) in enumerate((("exact", "exact"), ("range", "range"), ("root", "whole"))):
        found = {(h.first, h.second, h.kind): h.bytes for h in kvviz.hazards(trace, level=level)}  # type: ignore[arg-type]
        pairs = zip(*(columns[f"pair.{name}"].tolist() for name in ("first", "second", "kind", column)))
        assert {(a, b, header["strings"][kind]): n for a, b, kind, n in pairs if n} == found
        assert header["hazards"]["counts"][place] == len(found)


def test_every_step_of_a_decode_has_its_pairs_and_they_fold() -> None:
    trace = decoded(3)
    header, columns, _ = told(trace)
    assert columns["pair.first"].tolist() == [h.first for h in sorted(kvviz.hazards(trace), key=lambda h: h.second)]
    titles = header["hazards"]["groups"]
    assert [re.sub(r"cache_(.)_l0", r"\1", title) for title in titles] == [
        f"RAW × 3 runs: SET_ROWS → MUL_MAT {side}: 32 B each" for side in "kv"
    ]
    assert columns["pair.group"].tolist() == [0, 1] * 3


def test_a_conflict_that_only_a_coarse_look_sees_is_told_as_none() -> None:
    header, columns, texts = told(columns_of_a_transposed_cache().trace)
    states = [header["hazards"]["picture"]["states"][state] for state in columns["pair.state"]]
    assert states == ["false", "false"]
    assert header["hazards"]["counts"] == [0, 1, 2]
    by_range, by_root = texts
    assert by_range["headline"] == "No byte is shared: only a look at ranges takes these two for a conflict"
    assert "whole roots" in by_root["headline"]
    assert by_range["says_range"] == "conflict: 46 B, which is wrong" and by_range["says_exact"] == "no conflict"
    assert by_range["path3"] == ""


def test_bars_are_to_scale_and_beside_them_stands_who_does_what() -> None:
    (texts,) = told(kv(read_first=True).graph.trace)[2]
    assert texts["headline"] == "Nothing but the order of the list keeps this write behind that read"
    assert (texts["does1"], texts["does2"]) == ("step 1 reads", "step 3 writes")
    # A root of 128 bytes over the bar: 8 rows of 16 bytes, of which row 3 and row 4 are written.
    (texts,) = told(kv().graph.trace)[2]
    scale = (WIDTH - 48) / 128
    assert texts["path1"].startswith(f"M{48 * scale:.1f} 0h{32 * scale:.1f}v")
    assert texts["path2"].startswith(f"M0.0 0h{128 * scale:.1f}v")
    assert texts["path3"] == texts["path1"]
    assert texts["view1"] == "writes k_write: offset 48 · float32 [2,4], strides [16,4] B"
    assert texts["span1"] == "bytes 48 to 80" and texts["shared"] == "shared: 32 B"


def test_too_many_pairs_are_counted_and_of_steps_that_are_not_told_there_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = decoded(4)
    header, columns = decode(Payloads(trace, [1]).encode())
    (run,) = [run for run in header["runs"] if run["last"] > run["first"]]
    assert header["hazards"]["total"] == 2
    # Places among the steps that are told, not numbers.
    number = run["from"] - run["first"]
    assert [int(step) + number for step in columns["pair.second"]] == [h.second for h in kvviz.hazards(trace, run=1)]
    monkeypatch.setattr(payload_report, "MOST_PAIRS", 4)
    header, columns, texts = told(decoded(3))
    assert len(columns["pair.first"]) == len(texts) == 4 and header["hazards"]["total"] == 6


def test_a_trace_without_hidden_pairs_says_so_and_still_tells_what_the_graph_orders() -> None:
    trace = kv(written=False).graph.trace
    header, columns = decode(payload(trace))
    assert header["hazards"]["total"] == 0 and len(columns["pair.first"]) == 0
    assert header["hazards"]["ordered"]["total"] == len(columns["ordered.first"]) == 0
    assert NONE_HIDDEN in [one.title for one in kvviz.findings(trace) if one.calm]


def test_what_the_graph_keeps_in_order_is_told_with_both_views_and_a_shortest_path_of_its_edges() -> None:
    ctx = Context()
    x = ctx.new_tensor("f32", 4, 4, name="x", data=1)
    wide = ctx.set_name(ctx.sqr(x), "wide")
    part = ctx.set_name(ctx.view_2d(wide, 2, 4, 16, 8), "part")
    turned = ctx.set_name(ctx.transpose(part), "turned")
    out = ctx.set_name(
        ctx.add(ctx.set_name(ctx.cont(turned), "packed"), ctx.set_name(ctx.cont(turned), "again")), "out"
    )
    trace = ctx.new_graph("four").expand(out).trace
    header, columns = decode(payload(trace))
    found = [hazard for hazard in kvviz.hazards(trace, ordered=True) if hazard.ordered]
    assert header["hazards"]["ordered"]["total"] == len(found) == len(columns["ordered.first"])
    edges = _edges(trace)
    ends, steps = columns["ordered.path"].tolist(), columns["path.step"].tolist()
    for k, (first, second) in enumerate(zip(columns["ordered.first"].tolist(), columns["ordered.second"].tolist())):
        path = steps[ends[k] : ends[k + 1]]
        assert (path[0], path[-1]) == (first, second)
        assert all(pair in edges for pair in pairwise(path))
        assert len(path) - 1 == _distance(edges, first, second)
    views = {header["strings"][int(number)] for number in columns["ordered.view2"]}
    assert "reads turned: offset 8 · float32 [2,4], strides [4,16] B" in views


def _edges(trace: kvviz.Trace) -> set[tuple[int, int]]:
    made = {name: step for step, row in enumerate(trace.log) for name in row.op.node.outputs}
    return {(made[name], step) for step, row in enumerate(trace.log) for name in row.op.node.inputs if name in made}


def _distance(edges: set[tuple[int, int]], first: int, second: int) -> int:
    reached, count = {first}, 0
    while second not in reached:
        reached |= {late for early, late in edges if early in reached}
        count += 1
    return count


def test_a_trace_without_declared_accesses_has_its_pairs_when_they_are_wanted() -> None:
    trace = kvviz.decode(graph_of("storyteller/concat"), [1, 77, 108], 2, progress=False)
    packing = Payloads(trace)
    assert "hazards" not in decode(packing.encode())[0]
    assert packing.look_for_hazards() and not packing.look_for_hazards()
    header, columns = decode(packing.encode())
    found = {(h.first, h.second, h.bytes) for h in kvviz.hazards(trace)}
    assert found and found == set(zip(*(columns[f"pair.{name}"].tolist() for name in ("first", "second", "exact"))))
    assert header["hazards"]["counts"][0] == len(kvviz.hazards(trace))
    # and an exported page has them if it is asked, and a debugger when its page asks
    assert len(trace.to_html(hazards=True)) > len(trace.to_html())
    debugger = kvviz.debug(trace)
    debugger._answer({"do": "hazards"})
    assert decode(debugger.payload)[0]["hazards"]["total"] >= len(found)


def test_the_picture_is_one_document_that_needs_nothing() -> None:
    trace = decoded(1)
    for hazard in kvviz.hazards(trace):
        svg = hidden_pair_svg(trace, hazard)
        root = ElementTree.fromstring(svg)
        assert (root.get("width"), root.get("viewBox")) == ("800", "0 0 800 452")
        assert "prefers-color-scheme:dark" in svg and "url(" not in svg and "href" not in svg
        texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
        assert "Nothing but the order of the list keeps this read behind that write" in texts
        assert "RAW · 32 B" in texts and "SET_ROWS" in texts and "MUL_MAT" in texts
        assert sum(".p-" not in text and hazard.root in text for text in texts) >= 2
        dashed = [node for node in root.iter() if node.get("stroke-dasharray")]
        assert len(dashed) == 1


def test_names_of_any_kind_stay_text() -> None:
    graph = columns_of_a_transposed_cache(HOSTILE)
    hazard = kvviz.hazards(graph.trace, level="range")[0]
    svg = hidden_pair_svg(graph, hazard)
    root = ElementTree.fromstring(svg)
    assert "<script" not in svg and 'k"]}</text>' in "".join(root.itertext())
    assert "<script>alert(1)" not in graph.trace.to_html()
    graph = columns_of_a_transposed_cache("blk.0." * 60)
    (hazard,) = kvviz.hazards(graph, level="range")
    root = ElementTree.fromstring(hidden_pair_svg(graph, hazard))
    assert all(len(node.text or "") <= 130 for node in root.iter("{http://www.w3.org/2000/svg}text"))


def test_a_broken_pair_is_drawn_solid_with_a_cross_and_an_ordered_one_is_told_as_that() -> None:
    trace = kv().graph.trace
    (found,) = kvviz.hazards(trace)
    broken = replace(found, kind="WAR", broken=True)
    svg = hidden_pair_svg(trace, broken)
    assert "stroke-dasharray" not in svg and "l18 18m0 -18l-18 18" in svg
    assert "This read comes after its bytes were overwritten" in svg
    with pytest.raises(KvvizError, match="steps 1 and 99"):
        hidden_pair_svg(trace, replace(found, second=99))
    ordered = next(h for h in kvviz.hazards(decoded(1), ordered=True) if h.ordered)
    assert headline(ordered) == "A path of the graph keeps these two in order"
