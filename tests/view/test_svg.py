"""The still picture: right states, harmless names, small."""

import base64
import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.image import imread

from kvviz.report.palette import LIGHT, STATES
from kvviz.trace.recording import Trace
from kvviz.view.charts import png
from kvviz.view.charts.png import still
from kvviz.view.drawing.sketch import OP_PITCH
from kvviz.view.drawing.svg import LARGEST_BLOCK, picture, wrap
from tests.view.conftest import HOSTILE, chain, plain

SVG = "{http://www.w3.org/2000/svg}"
LIMIT = 200_000


def boxes(svg: str) -> dict[str, list[ET.Element]]:
    """Boxes of the picture by what their tooltip says of the state."""
    found: dict[str, list[ET.Element]] = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None and title.text:
            found.setdefault(title.text.rpartition(": ")[2], []).append(group)
    return found


def test_every_picture_is_well_formed_small_and_shows_its_step_once_with_all_text_in_its_place(trace: Trace) -> None:
    steps = len(trace.steps)
    for index in {0, 1, steps // 3, steps // 2, steps - 2, steps - 1}:
        svg = picture(trace, index).svg
        found = boxes(svg)
        assert len(svg) < LIMIT
        assert len(found[STATES["running"].about]) == 1
        assert sum(map(len, found.values())) <= LARGEST_BLOCK
        for group in (group for groups in found.values() for group in groups):
            rect, op = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
            assert rect is not None and op is not None
            assert len(op.text or "") * OP_PITCH <= float(rect.attrib["width"]) - 9
        root = ET.fromstring(svg)
        for text in root.iterfind(f"{SVG}text"):
            pitch = float(text.attrib["font-size"]) * 0.56
            assert float(text.attrib["x"]) + len(text.text or "") * pitch <= float(root.attrib["width"])


def test_nodes_before_the_step_have_run_and_nodes_after_it_have_not() -> None:
    svg = picture(chain(plain), 2).svg
    told = {state: len(groups) for state, groups in boxes(svg).items()}
    # then: Relu may not touch the caller's array, Neg runs in place, the one after this step is the frontier
    assert told == {STATES[name].about: 1 for name in ("missed", "in_place", "running", "frontier", "waiting")}
    # a state is never told by hue alone
    letters = [look.letter for look in STATES.values() if look.letter]
    assert len(set(letters)) == len(letters)
    plain_ones = [look for look in STATES.values() if not look.letter]
    assert len({look.border for look in plain_ones}) == len(plain_ones)


def test_hostile_names_change_nothing_but_the_label() -> None:
    def shape_of(svg: str) -> list[tuple[str, dict[str, str]]]:
        return [(e.tag, dict(e.attrib)) for e in ET.fromstring(svg).iter()]

    hostile, tame = picture(chain(lambda i: HOSTILE[i]), 3).svg, picture(chain(plain), 3).svg
    assert shape_of(hostile) == shape_of(tame)
    assert len(hostile) < len(tame) + 2000


def test_a_notebook_that_is_not_trusted_can_show_it(decoded: Trace) -> None:
    shown = picture(decoded)
    html = shown._repr_html_()
    head, _, rest = html.partition("base64,")
    assert head.startswith("<img ") and "<svg" not in html
    assert base64.b64decode(rest.partition('"')[0]).decode() == str(shown)
    # on a dark page, too, because it brings its own ground
    ground = next(ET.fromstring(picture(decoded).svg).iter(f"{SVG}rect"))
    assert ground.attrib["fill"] == LIGHT.ground
    assert "opacity" not in ground.attrib


def test_a_trace_that_has_not_begun_has_a_picture(decoded: Trace) -> None:
    empty = Trace(decoded.graph, decoded.policy, type(decoded.log)())
    assert "nothing has run yet" in picture(empty).svg
    assert still(empty).startswith(b"\x89PNG")


@pytest.mark.parametrize("text", ["one two three four five six", "x" * 100, "", "a " * 40])
def test_lines_are_broken_at_blanks_and_never_too_long(text: str) -> None:
    lines = wrap(text, 12)
    assert all(len(line) <= 12 for line in lines)
    if max(map(len, text.split() or [""])) <= 12:
        assert " ".join(lines).split() == text.split()


def test_the_png_is_small_and_no_sentence_runs_out_at_its_edge(decoded: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    data = still(decoded)
    assert data.startswith(b"\x89PNG\r\n") and len(data) < LIMIT and int.from_bytes(data[16:20], "big") == 900
    monkeypatch.setattr(png, "sentence", lambda step, _: f"Concat copied {'W' * 20 * (step.index % 7 + 1)} to B1")
    pixels = imread(io.BytesIO(still(decoded)))
    words = np.abs(pixels[-180:] - pixels[-1, 0]).max(axis=(0, 2)) > 0.02
    edge = words.nonzero()[0].max()
    assert 840 < edge < 900 - 100 * png.RIGHT + 4
