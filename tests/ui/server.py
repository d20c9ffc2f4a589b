"""A real JupyterLab on loopback, with configuration, settings and workspaces of its own."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 120.0


@dataclass(frozen=True)
class Jupyter:
    """Where a running server is, and which folder it shows."""

    url: str
    token: str
    root: Path

    def document(self, path: str) -> str:
        """Address of a notebook alone in the page, without side bars."""
        return f"{self.url}/doc/tree/{path}?token={self.token}"

    def get(self, path: str) -> object:
        with urllib.request.urlopen(f"{self.url}/{path}?token={self.token}", timeout=10) as answer:
            return json.load(answer)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def isolated(home: Path) -> dict[str, str]:
    """Environment in which Jupyter reads and writes nothing of the user's.

    The news question is answered beforehand: its toast would cover a corner of the page.
    """
    folders = {
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "IPYTHONDIR": home / "ipython",
    }
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    news = home / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    news.parent.mkdir(parents=True, exist_ok=True)
    news.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}))
    return {**os.environ, **{name: str(folder) for name, folder in folders.items()}}


def wait_until_up(server: Jupyter, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the server answers; raise with the end of its log when it stops or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server.get("api/status")
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
    raise RuntimeError(f"JupyterLab did not start (exit code {process.poll()}):\n{tail}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM ends the server and its kernels at once; SIGINT would ask a question first, and leave kernels behind."""
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def jupyterlab(root: Path, home: Path) -> Iterator[Jupyter]:
    """Serve the folder ``root``; keep the server's own files in ``home``."""
    port, token = free_port(), secrets.token_hex(16)
    server = Jupyter(f"http://127.0.0.1:{port}", token, root)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"]
    command += ["--LabApp.expose_app_in_browser=True"]
    if os.getuid() == 0:
        command.append("--allow-root")
    log = home / "jupyterlab.log"
    environment = isolated(home)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=environment, cwd=root, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            wait_until_up(server, process, log)
            yield server
        finally:
            stop(process)
