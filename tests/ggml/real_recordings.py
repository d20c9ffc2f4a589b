"""Recordings of real graphs, and what is known of them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import kvviz
from kvviz.ggml.recording.recorded_graphs import Recording

DATA = Path(__file__).resolve().parents[1] / "data" / "ggml"
EXPECTED: dict[str, Any] = {
    one["file"]: one for one in json.loads((DATA / "expected.json").read_text("utf-8"))["recordings"]
}
OTHERS = sorted(path.name for path in DATA.glob("*.jsonl*") if path.name not in EXPECTED)


@cache
def recording(name: str) -> Recording:
    """A recording, read once."""
    found: Recording = kvviz.ggml.load(DATA / name)
    return found
