"""What a move in the page costs, against a drawing of known size in the same page, on the same machine, just before.

Judged by the processor time of the page's main thread. A slow or busy machine takes longer over both.
"""

from playwright.sync_api import CDPSession, Locator

# Most drawings that a move may cost: one of a step, and one of a drag, which must not get ahead of the page.
STEP, DRAG = 2.0, 3.0
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

# Press a key, wait for the frame in which the page shows the step, and so on.
PRESS_KEYS = """async (root, count) => {
  const frame = () => new Promise((next) => requestAnimationFrame(next));
  root.focus();
  for (let i = 0; i < count; i++) {
    const before = root.dataset.step, start = performance.now();
    root.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
    while (root.dataset.step === before && performance.now() - start < 5000) await frame();
  }
}"""
# Drag a slider over all that it reaches, a move in every frame.
DRAG_STEPS = """async (root, count) => {
  const slider = root.querySelector('[data-kv="step-slider"]');
  for (let i = 1; i <= count; i++) {
    slider.value = String(Math.round((i / count) * Number(slider.max)));
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise((next) => requestAnimationFrame(next));
  }
}"""
DRAG_RUNS = DRAG_STEPS.replace("step-slider", "decode-slider")


def cost_of(root: Locator, script: str, moves: int, drawing: str = DRAWING, frames: int = FRAMES) -> float:
    """Drawings that each of so many moves costs."""
    session = root.page.context.new_cdp_session(root.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    start = _main_thread(session)
    root.evaluate(drawing, frames)
    middle = _main_thread(session)
    root.evaluate(script, moves)
    move, unit = (_main_thread(session) - middle) / moves, (middle - start) / frames
    print(f"ms a move: {move:.1f}; a drawing {unit:.1f}")
    return move / unit


def _main_thread(session: CDPSession) -> float:
    """Processor time in ms that the page's main thread has spent so far."""
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return 1000 * float(metrics["TaskDuration"])


# Most drawings of plain boxes that a frame of panning may cost: the same boxes, but with states, lines and a minimap.
PAN = 4.0
# As many boxes as the port of a graph shows, with two lines of text each, drawn anew in every frame.
BOXES = """async (root, frames) => {
  const graph = root.querySelector('[data-kv="graph-canvas"]'), canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [graph.width, graph.height];
  canvas.style.cssText = "position:fixed;left:0;top:0;z-index:9999";
  document.body.append(canvas);
  const context = canvas.getContext("2d", { alpha: false });
  context.font = "12px sans-serif";
  for (let frame = 0; frame < frames; frame++) {
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < 60; i++) {
      const x = 80 * (i % 8) + frame % 20, y = 56 * Math.floor(i / 8);
      context.fillStyle = "#eef";
      context.fillRect(x, y, 72, 36);
      context.strokeRect(x, y, 72, 36);
      context.fillStyle = "#000";
      context.fillText(`node ${i}`, x + 5, y + 14);
      context.fillText("[1,4]", x + 5, y + 28);
    }
    await new Promise((next) => requestAnimationFrame(next));
  }
  canvas.remove();
}"""
# Drag the graph to and fro, a move in every frame.
SWING = """async (root, frames) => {
  const canvas = root.querySelector('[data-kv="graph-canvas"]'), box = canvas.getBoundingClientRect();
  canvas.setPointerCapture = () => {};
  const send = (type, x, y, buttons) => canvas.dispatchEvent(
    new PointerEvent(type, { bubbles: true, clientX: box.left + x, clientY: box.top + y, button: 0, buttons }));
  send("pointerdown", 300, 200, 1);
  for (let i = 1; i <= frames; i++) {
    send("pointermove", 300 - 12 * Math.abs(20 - (i % 40)), 200 - 6 * i, 1);
    await new Promise((next) => requestAnimationFrame(next));
  }
  send("pointerup", 0, 0, 0);
}"""
