"""`make lab`, the first thing that a newcomer types."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.ui.server import Jupyter, free_port, isolated, wait_until_up

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = "/lab/tree/notebooks/start.ipynb"


def test_make_lab_opens_the_start_page_in_jupyterlab(tmp_path: Path) -> None:
    # given
    port, token = free_port(), secrets.token_hex(16)
    server = Jupyter(f"http://127.0.0.1:{port}", token, ROOT)
    lab_args = f"--no-browser --port={port} --ServerApp.port_retries=0 --IdentityProvider.token={token}"
    # A make that runs these tests hands its own options down; this one is to be as typed.
    environment = {name: value for name, value in isolated(tmp_path).items() if not name.startswith(("MAKE", "MFLAGS"))}
    log = tmp_path / "make.log"
    with log.open("wb") as out:
        # when
        make = subprocess.Popen(
            ["make", "lab", f"VENV={sys.prefix}", f"LAB_ARGS={lab_args}"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until_up(server, make, log)
            # then the address that is printed, and that a browser is sent to, is the notebook's
            with urllib.request.urlopen(f"{server.url}/?token={token}", timeout=30) as answer:
                assert answer.url.startswith(f"{server.url}{NOTEBOOK}")
                assert "JupyterLab" in answer.read().decode()
            assert f"{server.url}{NOTEBOOK}?token=" in log.read_text()
            assert server.get(f"api/contents{NOTEBOOK.removeprefix('/lab/tree')}")
        finally:
            os.killpg(make.pid, signal.SIGTERM)
            make.wait(timeout=30)
