"""Files that leave the notebook: one HTML page that needs nothing, and a trace for Perfetto."""

import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace
from kvviz.view import page_modules
from kvviz.view.export import to_html
from kvviz.view.page_data.payload import payload
from kvviz.view.perfetto import export_perfetto, perfetto_events
from tests.ui.browser import chromium, find_browser
from tests.ui.filepage import FilePage
from tests.ui.test_device_lanes import recorded
from tests.view.conftest import HOSTILE, Html

OUTSIDE = re.compile(r"""(?:src|href|action)\s*=\s*["'](?!data:|#)|@import|url\((?!["']?(?:data:|#))""")


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bytes]:
    """A bundle that tries to end the elements that it is put into."""
    module = b"export default { render() { return '</script></body><!--<script>'; } }"
    (tmp_path / "kvviz.js").write_bytes(module)
    (tmp_path / "cache.js").write_bytes(b"export default () => '</script>';")
    (tmp_path / "start.js").write_bytes(page_modules.bundled("start.js"))
    (tmp_path / "kvviz.css").write_bytes(b".kvviz::after { content: '</style>' }")
    monkeypatch.setattr(page_modules, "STATIC", tmp_path)
    page_modules.file_modules.cache_clear()
    yield module
    page_modules.file_modules.cache_clear()


def unpacked(text: str) -> bytes:
    """A block of the page: base 91, two digits are 13 bits, the lowest first."""
    digits = "".join(chr(code) for code in range(32, 127) if chr(code) not in '"&<\\')
    found, word, bits = bytearray(), 0, 0
    for i in range(0, len(text), 2):
        word |= sum(digits.index(digit) * 91**place for place, digit in enumerate(text[i : i + 2])) << bits
        bits += 13
        while bits > 7:
            found.append(word & 255)
            word, bits = word >> 8, bits - 8
    return bytes(found[: len(text) * 13 // 16])


def test_the_page_holds_the_whole_trace(trace: Trace, bundle: bytes) -> None:
    page = Html(to_html(trace))
    assert unpacked(page.by_id("kvviz-payload")) == payload(trace)
    packed = unpacked(page.by_id("kvviz-modules"))
    form = [{"id": lzma.FILTER_LZMA1, "lc": 2, "lp": 0, "pb": 0}]
    raw = lzma.decompress(packed[4:], lzma.FORMAT_RAW, filters=form)
    assert len(raw) == int.from_bytes(packed[:4], "big")
    assert dict(text.split("\n", 1) for text in raw.decode().split("\0"))["kvviz"].encode() == bundle


@pytest.mark.usefixtures("bundle")
def test_what_the_bundle_says_cannot_break_the_page(decoded: Trace) -> None:
    text = to_html(decoded)
    assert text.count("</style>") == 2
    # the payload, the caches, the parts of the page, where it opens, and what starts the page
    assert text.count("</script>") == text.count("<script") == 5


def test_a_hostile_title_stays_a_title(hostile: Trace) -> None:
    page = Html(to_html(hostile))
    assert page.of("title") == [HOSTILE[0]]
    assert page.of("h1") == [HOSTILE[0]]
    assert len([text for text in page.of("script") if "alert" in text]) == 0


def test_the_page_names_nothing_outside_and_without_scripts_has_a_picture_and_a_table(decoded: Trace) -> None:
    page = to_html(decoded)
    assert not OUTSIDE.search(page) and "default-src 'none'" in page
    still = page[page.index('id="kvviz-still"') : page.index("<script")]
    assert "src='data:image/svg+xml,<svg " in still
    assert still.count("<tr>") == 401, "a heading, and the first and last 200 steps"
    assert 'style="' not in still and re.search(r"\.k\d \{ text-align:right;", page)


def test_the_page_of_a_short_device_trace_weighs_less_than_150_kb() -> None:
    trace = recorded(1)
    assert len(trace.steps) == 16 and len(to_html(trace).encode()) < 150_000


def test_a_missing_bundle_is_said_in_one_sentence(
    decoded: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_modules, "STATIC", tmp_path)
    page_modules.file_modules.cache_clear()
    with pytest.raises(KvvizError, match=r"bundle is missing .*make widget"):
        to_html(decoded)


@pytest.mark.ui
def test_the_page_opens_from_a_file_with_no_network(
    decoded: Trace, hostile: Trace, branching: Trace, tmp_path: Path
) -> None:
    found = find_browser()
    assert found
    with chromium(found) as browser:
        for trace in (decoded, hostile, branching):
            to_html(trace, tmp_path / "trace.html")
            shown = FilePage(browser, tmp_path / "trace.html")
            shown.page.wait_for_selector("#kvviz-still", state="detached")
            assert f"{len(trace.steps):,}" in shown.page.inner_text("#kvviz")
            # the policy of the page makes an error of whatever it asks of the network
            assert shown.complaints == []


def test_perfetto_reads_one_slice_for_every_op_in_order(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    export_perfetto(trace, path)
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    assert events == json.loads(json.dumps(perfetto_events(trace)))
    ops = [e for e in events if e["ph"] == "X" and e["tid"] > 0]
    assert [e["name"] for e in ops] == [step.op_type for step in trace.steps]
    assert [e["ts"] + e["dur"] - 1 for e in ops] == list(range(len(trace.steps)))
    live = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["name"] == "live bytes"]
    assert live == [step.live_bytes for step in trace.steps]
    tracks: dict[int, int] = {}
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        assert event["dur"] >= 1
        assert event["ts"] >= tracks.get(event["tid"], 0)
        tracks[event["tid"]] = event["ts"] + event["dur"]


def test_a_body_lies_under_its_control_node(looping: Trace, branching: Trace) -> None:
    for trace, op in ((looping, "Loop"), (branching, "If")):
        events = [e for e in perfetto_events(trace) if e["ph"] == "X" and e["tid"] > 0]
        inner = [e for e in events if e["tid"] == 2]
        outer = [e for e in events if e["name"] == op and e["dur"] > 1]
        assert inner and outer
        for e in inner:
            assert any(o["ts"] <= e["ts"] and e["ts"] + e["dur"] <= o["ts"] + o["dur"] for o in outer)


def test_perfetto_counts_the_rows_of_every_cache(decoded: Trace) -> None:
    counters = [e for e in perfetto_events(decoded) if e["ph"] == "C" and e["name"].startswith("cache ")]
    names = {e["name"] for e in counters}
    assert len(names) == len(decoded.caches)
    assert [e["args"] for e in counters if e["name"] == counters[0]["name"]] == [
        {"reserved": 16, "valid": n} for n in (6, 7, 8, 9)
    ]
