"""Make the pictures in ``assets/images`` that show traces: ``python .ci/images.py``.

``debugger.png`` needs Chromium. ``peak_over_context.svg`` is the figure of lesson 10.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from story_animation import animate

import kvviz

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "assets" / "images"
STORYTELLER = ROOT / "assets" / "models" / "storyteller"
PROMPT = "once upon a time there was a brave owl named rosa ."


def finding() -> None:
    """What the README shows of a finding, for light and dark pages."""
    trace = kvviz.decode(kvviz.load(STORYTELLER / "concat" / "model.onnx"), [1, 77, 108], 24, progress=False)
    copied = next(one for one in kvviz.findings(trace) if one.kind == "copied")
    for look in ("light", "dark"):
        kvviz.picture(trace, copied, dark=look == "dark").save(IMAGES / f"finding_{look}.svg")


def two_decodes() -> None:
    """One story decoded without reserved room and with it."""
    graph = kvviz.load(STORYTELLER / "concat" / "model.onnx")
    words = json.loads((STORYTELLER / "vocab.json").read_text())
    plain, roomy = (
        kvviz.decode(graph, PROMPT, max_new_tokens=24, kv_capacity=rows, tokenizer=words, progress=False)
        for rows in (None, 40)
    )
    (IMAGES / "two_decodes.svg").write_text(animate(plain, roomy), "utf-8")


def debugger() -> None:
    """The debugger on a small Llama, as it opens."""
    from playwright.sync_api import sync_playwright

    graph = kvviz.load(ROOT / "assets" / "models" / "o01_optimum_llama")
    trace = kvviz.decode(graph, [5, 17, 33], 8, progress=False)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tools:
        trace.to_html(Path(folder) / "page.html")
        chromium = tools.chromium.launch(executable_path=shutil.which("chromium"))
        page = chromium.new_page(viewport={"width": 1500, "height": 950})
        page.goto((Path(folder) / "page.html").as_uri())
        page.locator('[data-kv="graph-stage"]').wait_for()
        page.wait_for_timeout(1500)
        page.screenshot(path=IMAGES / "debugger.png")


if __name__ == "__main__":
    for make in (finding, two_decodes, debugger):
        make()
