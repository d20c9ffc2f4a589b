"""How long a person waits for a model to be there to look at: its file to a page in a browser, beside Netron's.

Netron reads the model and draws its graph; kvviz runs it, and its page has the trace as well. Netron is taken from
PATH, where ``pip install netron`` puts it.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, Error

import kvviz
from kvviz.view.drawing.block_layout import forget
from tests.bench.tell import hold, row
from tests.ui.browser import chromium, find_browser

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
SMALL = ("o01_optimum_llama", "storyteller/concat")
_TRIES, _PATIENCE = 3, 60.0


def opening_table() -> None:
    """Measure by the clock and print; says what is not there to be measured."""
    print(f"\nopening a model, seconds by the clock from the file to the page, median of {_TRIES}")
    browser, netron = find_browser(), shutil.which("netron")
    if browser is None or netron is None:
        print("Netron: not installed" if browser else "no browser")
    if browser is None:
        return
    row("model", ["kvviz", "Netron"])
    with chromium(browser) as window:
        for name in SMALL:
            path = MODELS / name / "model.onnx"
            ours = _seconds(partial(_by_kvviz, window, path))
            theirs = _seconds(partial(_by_netron, window, path, netron)) if netron else None
            row(name, [f"{ours:.2f}", f"{theirs:.2f}" if theirs else ""])
            if theirs:
                hold(f"{name}: opened / Netron", ours / theirs)


def _seconds(call: Callable[[], None]) -> float:
    times = []
    for _ in range(_TRIES):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def _by_kvviz(browser: Browser, path: Path) -> None:
    forget()
    graph = kvviz.load(path)
    trace = kvviz.run(graph, kvviz.inputs(graph))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        trace.to_html(page)
        _drawn(browser, page.as_uri(), ".kvviz [data-kv=sentence]")


def _by_netron(browser: Browser, path: Path, netron: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [netron, "--host", "127.0.0.1", "--port", str(port), str(path)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        begin = time.perf_counter()
        while True:
            try:
                _drawn(browser, f"http://127.0.0.1:{port}", "#target .node")
                return
            except Error:
                if server.poll() is not None or time.perf_counter() - begin > _PATIENCE:
                    raise
                time.sleep(0.02)
    finally:
        server.terminate()
        server.wait()


def _drawn(browser: Browser, address: str, what: str) -> None:
    context = browser.new_context()
    try:
        # Netron asks once whether it may keep cookies; whoever opens a model has said so.
        context.add_cookies([{"name": "consent", "value": "1", "domain": "127.0.0.1", "path": "/"}])
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector(what, timeout=_PATIENCE * 1e3)
    finally:
        context.close()
