"""Find or get a Chromium for the browser tests, and start it.

``python -m tests.ui.browser`` makes sure that there is one: it installs Debian's as root, playwright's own otherwise.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ADVICE = "no browser for the tests of the page: install chromium (Debian: apt install chromium) or Google Chrome"

# No GPU, no /dev/shm (small in containers), and nothing that calls home by itself.
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

# The browser that runs, if one does.
_open: list[Browser] = []


def works(path: str) -> bool:
    """Whether this browser starts; on some systems the command is only a pointer to a package of another kind."""
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find_browser() -> str | None:
    """Path of a Chromium on PATH, else of playwright's own, else None."""
    for path in filter(None, map(shutil.which, NAMES)):
        if works(path):
            return path
    if _open:
        return _open[0].browser_type.executable_path
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """A headless browser, closed at the end; inside of another such block, that one's.

    playwright's blocking interface can be started only once at a time in a thread.
    """
    if _open:
        yield _open[0]
        return
    # The sandbox refuses to start for root, and in most containers.
    flags = [*FLAGS, "--no-sandbox"] if os.getuid() == 0 or "CI" in os.environ else list(FLAGS)
    with sync_playwright() as playwright:
        _open.append(playwright.chromium.launch(executable_path=path, args=flags))
        try:
            yield _open[0]
        finally:
            _open.pop().close()


def install() -> None:
    """Get a browser with the means at hand; whether that worked is for `find_browser` to say."""
    if os.getuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        get = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        subprocess.run(["apt-get", "update", "-qq"], env=quiet)
        subprocess.run(get, env=quiet, stdout=subprocess.DEVNULL)
    if find_browser() is None:
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"])


def main() -> int:
    if find_browser() is None:
        install()
    path = find_browser()
    print(f"browser: {path}" if path else ADVICE)
    return 0 if path else 1


if __name__ == "__main__":
    sys.exit(main())
