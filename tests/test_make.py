"""The Makefile and the script of the whole check: what they refuse, their environment, and `make lab`."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.ui.server import Jupyter, free_port, isolated, wait_until_up

ROOT = Path(__file__).resolve().parent.parent


def _program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_the_whole_check_runs_in_a_clean_environment_with_what_an_installer_needs(tmp_path: Path) -> None:
    # given programs that do nothing, but for a make that says what its environment is
    copy = tmp_path / "checkout"
    (copy / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", copy / ".ci" / "run")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("python3", "node", "npm", "git"):
        _program(programs, name, "exit 0")
    _program(programs, "make", f"[ $1 = test ] && env > '{tmp_path}/told'; exit 0")
    needed = {"PIP_FIND_LINKS": "a b", "UV_INDEX_URL": "c", "SSL_CERT_FILE": "d", "NODE_EXTRA_CA_CERTS": "e"}
    needed |= {"npm_config_cache": "f", "https_proxy": "g", "HOME": str(tmp_path)}
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    line = ["bash", str(copy / ".ci" / "run")]
    settings = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": "x", "COLUMNS": "40", "KVVIZ_DOT": "layered"}
    subprocess.run(line, env={**path, **needed, **settings}, check=True, capture_output=True)
    told = dict(line.split("=", 1) for line in (tmp_path / "told").read_text().splitlines() if "=" in line)
    assert {name: told.get(name) for name in needed} == needed
    assert told["CI"] == "true"
    assert not settings.keys() & told.keys()


def test_make_test_refuses_an_old_python_before_it_installs_anything(tmp_path: Path) -> None:
    # given a python that is too old for the tests: it refuses the question, whatever the version asked for
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    _program(tmp_path, "old", 'touch called-"$1"; exit 1')
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    made = subprocess.run(
        ["make", "test", "PYTHON=./old"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert made.returncode != 0
    assert "the tests need Python 3.11 or newer: make test PYTHON=python3.12" in made.stdout
    assert sorted(path.name for path in tmp_path.glob("called-*")) == ["called--c"]
    assert not (tmp_path / ".venv").exists()


def test_the_first_commands_of_readme_work_from_a_checkout() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    commands = [line.split("#")[0].split() for line in re.findall(r"^    (\S.*)$", text, re.M)[:4]]
    assert commands == [["make", "lab"], ["make", "test"], ["pip", "install", "."], ["kvviz", "demo"]]
    assert {"lab", "test"} <= set(targets)
    assert text.index("make lab") < text.index("pip install .") < text.index("pip install kvviz")


def test_installing_says_so_before_it_begins(tmp_path: Path) -> None:
    # given installers that say nothing and fail at once
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "install.py", tmp_path / ".ci")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("pip", "uv"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)")
    line = [sys.executable, str(tmp_path / ".ci" / "install.py"), "lab"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "installing kvviz with lab into" in done.stdout


NOTEBOOK = "/lab/tree/lessons/start.ipynb"


def test_make_lab_opens_the_start_page_in_jupyterlab(tmp_path: Path) -> None:
    port, token = free_port(), secrets.token_hex(16)
    server = Jupyter(f"http://127.0.0.1:{port}", token, ROOT)
    lab_args = f"--no-browser --port={port} --ServerApp.port_retries=0 --IdentityProvider.token={token}"
    # A make that runs these tests hands its own options down; this one is to be as typed.
    environment = {name: value for name, value in isolated(tmp_path).items() if not name.startswith(("MAKE", "MFLAGS"))}
    log = tmp_path / "make.log"
    with log.open("wb") as out:
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
