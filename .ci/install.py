"""Install kvviz (editable) with extras and a dependency group into the environment that runs this file.

``python .ci/install.py EXTRA[,EXTRA...] [GROUP]``

Standard library only. uv does it in seconds; pip does it wherever uv cannot be had or cannot reach its index (uv does
not read pip's configuration). Groups are spelled out here because pip knows ``--group`` only since 25.1.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def read_pyproject() -> dict[str, Any]:
    """Parse pyproject.toml; Python 3.10 has no tomllib, but its pip carries the same parser."""
    try:
        toml = importlib.import_module("tomllib")
    except ModuleNotFoundError:
        toml = importlib.import_module("pip._vendor.tomli")
    return toml.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def requirements(extras: str, group: str | None) -> list[str]:
    """Arguments that both ``pip install`` and ``uv pip install`` take."""
    return ["--editable", f".[{extras}]", *(read_pyproject()["dependency-groups"][group] if group else [])]


def run(*command: str) -> bool:
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode == 0


def main(extras: str, group: str | None = None) -> int:
    if sys.prefix == sys.base_prefix:
        print("refusing to install outside a virtual environment", file=sys.stderr)
        return 2
    wanted = requirements(extras, group)
    print(
        f"installing kvviz with {extras.replace(',', ', ')} into {sys.prefix}: minutes at first, then seconds",
        flush=True,
    )
    quiet = () if sys.stderr.isatty() else ("--quiet",)
    pip = ("pip", "install", "--disable-pip-version-check", *quiet)
    if run(*pip, "--quiet", "uv") and run("uv", "pip", "install", *quiet, "--python", sys.executable, *wanted):
        return 0
    print("uv could not do it, trying pip, which takes longer", file=sys.stderr)
    return 0 if run(*pip, *wanted) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
