"""A notebook open in the browser: run it, read it, look at it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route

from tests.ui.server import Jupyter

RESULTS = Path(__file__).resolve().parents[2] / "test-results"
OUTSIDE = re.compile(r"^(?!data:|blob:|about:)(?!(https?|wss?)://127\.0\.0\.1[:/])")

# The toolbar says idle before a kernel exists, and Run All then asks which kernel to use. Ask the session itself, and
# the kernel for its name: only a kernel that has started answers.
KERNEL_IDLE = """async () => {
  const session = window.jupyterapp?.shell.currentWidget?.sessionContext;
  if (!session) return false;
  await session.ready;
  const kernel = session.session?.kernel;
  await kernel?.info;
  return kernel?.connectionStatus === "connected" && kernel.status === "idle";
}"""
RUN_ALL = """(limit) => Promise.race([
  window.jupyterapp.commands.execute("notebook:run-all-cells").then(() => true),
  new Promise((_, refuse) => setTimeout(() => refuse(new Error(`cells still running after ${limit} ms`)), limit)),
])"""
OUTPUTS = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .map((cell) => cell.model.type === "code" ? cell.model.sharedModel.getOutputs() : [])"""
# As a person's code would: no history, so that cells keep their numbers.
PYTHON = """async (code) => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({ code, store_history: false });
  let out = "", error = "";
  future.onIOPub = ({ header, content }) => {
    if (header.msg_type === "stream" && content.name === "stdout") out += content.text;
    if (header.msg_type === "error") error = `${content.ename}: ${content.evalue}`;
  };
  await future.done;
  return { out, error };
}"""
# Within the page that is there: JupyterLab itself takes seconds to load.
OPEN = """async (path) => {
  const shown = await window.jupyterapp.commands.execute("docmanager:open", { path });
  await shown.context.ready;
}"""
SHOWN = """(path) => window.jupyterapp?.shell.currentWidget?.context?.path === path
  && window.jupyterapp.shell.currentWidget.sessionContext"""
THEME = """(name) => window.jupyterapp.commands.execute("apputils:change-theme", {theme: name})"""
SPLASH = "#jupyterlab-splash"
# The kernel ends and the notebook goes as it is, unsaved.
LEAVE = """async () => {
  for (const shown of [...window.jupyterapp.shell.widgets("main")]) {
    await shown.sessionContext?.shutdown();
    shown.dispose();
  }
}"""


class NotebookPage:
    """One notebook in a page of its own; when it was left, another one can be opened there.

    ``complaints`` are errors in the console and exceptions that nobody caught, ``outside`` the addresses beyond
    loopback that the page asked for. All are refused.
    """

    def __init__(self, browser: Browser, server: Jupyter) -> None:
        self.server = server
        self.complaints: list[str] = []
        self.outside: list[str] = []
        self._context = browser.new_context(service_workers="block")
        self._context.set_default_timeout(60_000)
        self._context.route(OUTSIDE, self._refuse)
        self._context.route_web_socket(OUTSIDE, lambda socket: self.outside.append(socket.url))
        self.page: Page = self._context.new_page()
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _refuse(self, route: Route, request: Request) -> None:
        self.outside.append(request.url)
        route.abort()

    def _listen(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def open(self, path: str, *, width: int = 1400, height: int = 1000) -> None:
        """Open a notebook of the server's folder, in the light theme, and wait until its kernel can take work."""
        self.page.set_viewport_size({"width": width, "height": height})
        if self.page.url.startswith(self.server.url):
            self.outside, self.complaints = [], []
            self.page.evaluate(OPEN, path)
        else:
            self.page.goto(self.server.document(path))
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Notebook .jp-Cell")
        self.page.wait_for_function(SHOWN, arg=path)
        self.page.wait_for_selector(SPLASH, state="detached")
        self.theme("light")
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        self.page.wait_for_function(KERNEL_IDLE)

    def run_all(self, seconds: float = 300) -> None:
        """Run every cell and wait for the last one; none may raise."""
        self.page.evaluate(RUN_ALL, seconds * 1000)
        shown = [output for cell in self.outputs() for output in cell if output["output_type"] == "error"]
        plain = re.compile(r"\x1b\[[0-9;]*m")
        errors = [plain.sub("", "\n".join(output["traceback"])) for output in shown]
        assert not errors, "\n".join(errors)

    def outputs(self) -> list[list[dict[str, Any]]]:
        """Outputs of each cell as the notebook file would hold them."""
        cells: list[list[dict[str, Any]]] = self.page.evaluate(OUTPUTS)
        return cells

    def python(self, expression: str) -> Any:
        """Value of a Python expression in the notebook's kernel, through JSON."""
        return self.execute(f"print(__import__('json').dumps({expression}))", json.loads)

    def execute(self, code: str, read: Callable[[str], Any] = str) -> Any:
        """Run Python code in the notebook's kernel; what it prints, as ``read`` reads it."""
        answer = self.page.evaluate(PYTHON, code)
        assert not answer["error"], f"{code}\n{answer['error']}"
        return read(answer["out"])

    def theme(self, name: Literal["light", "dark"]) -> None:
        """Switch JupyterLab's theme and wait until it is on; the server remembers it for pages opened later."""
        wanted = str(name == "light").lower()
        if self.page.locator("body").get_attribute("data-jp-theme-light") != wanted:
            self.page.evaluate(THEME, f"JupyterLab {name.capitalize()}")
            self.page.wait_for_selector(f'body[data-jp-theme-light="{wanted}"]', state="attached")
        self.page.wait_for_selector(SPLASH, state="detached")

    def screenshot(self, name: str) -> None:
        RESULTS.mkdir(exist_ok=True)
        self.page.screenshot(path=RESULTS / f"{name}.png")

    def check(self) -> None:
        """Fail if the page asked for something outside or complained since the last check."""
        outside, complaints = self.outside, self.complaints
        self.outside, self.complaints = [], []
        assert not outside, "the page asked for what lies outside:\n" + "\n".join(outside)
        assert not complaints, "the console shows errors:\n" + "\n".join(complaints)

    def leave(self) -> None:
        """End the kernel and close the notebook; what JupyterLab says of a kernel that went away is not collected."""
        self.page.evaluate(LEAVE)
        self.page.mouse.move(0, 0)

    def close(self) -> None:
        if not self.page.is_closed():
            self._context.close()
