"""What a move in the page costs, against a drawing of known size in the same page, on the same machine, just before.

Judged by the processor time of the page's main thread. A slow or busy machine takes longer over both.
"""

from __future__ import annotations

import statistics

from playwright.sync_api import CDPSession

from tests.ui.debugger import DebuggerPage

# Most drawings that a move may cost: one of a step, and one of a drag, which must not get ahead of the page.
STEP, DRAG = 2.0, 3.0
PARTS = ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
FRAMES = 30
# A graph of 300 boxes with a name each, drawn anew in every frame: about a screen full.
DRAWING = """async (root, frames) => {
  const space = "http://www.w3.org/2000/svg", host = document.createElement("div");
  host.style.cssText = "position:fixed;inset:0;z-index:9999";
  document.body.append(host);
  for (let frame = 0; frame < frames; frame++) {
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("viewBox", "0 0 1000 600");
    for (let i = 0; i < 300; i++) {
      const box = document.createElementNS(space, "rect"), text = document.createElementNS(space, "text");
      const x = 60 * (i % 16) + frame, y = 30 * Math.floor(i / 16);
      for (const [name, value] of Object.entries({ x, y, width: 50, height: 20 })) box.setAttribute(name, value);
      for (const [name, value] of Object.entries({ x, y: y + 12, "font-size": 8 })) text.setAttribute(name, value);
      text.textContent = `node ${frame * 300 + i}`;
      svg.append(box, text);
    }
    host.replaceChildren(svg);
    await new Promise((next) => requestAnimationFrame(next));
  }
  host.remove();
}"""


def cost_of(debugger: DebuggerPage, script: str, moves: int) -> float:
    """Drawings that each of so many moves costs."""
    page = debugger.notebook.page
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    start = _main_thread(session)
    debugger.root.evaluate(DRAWING, FRAMES)
    middle = _main_thread(session)
    waited = debugger.root.evaluate(script, moves)
    spent = [(now - then) / moves for now, then in zip(_main_thread(session), middle, strict=True)]
    unit = (middle[0] - start[0]) / FRAMES
    told = ", ".join(f"{part.removesuffix('Duration')} {ms:.1f}" for part, ms in zip(PARTS, spent, strict=True))
    print(f"ms a move: {told}; a drawing {unit:.1f}; waited {statistics.median(waited):.1f} (median)")
    return spent[0] / unit


def _main_thread(session: CDPSession) -> list[float]:
    """Processor time in ms that the page's main thread has spent so far: in all, and on scripts, layout and style."""
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return [1000 * float(metrics[part]) for part in PARTS]
