"""A recording of a million steps: what it takes to save, load and explain it, to search it and to write its page."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import kvviz
from tests.bench.footprint import resident
from tests.bench.measure import seconds
from tests.bench.tell import row

STEPS = 1_000_000
QUERIES = ("missed", "op:Concat copied>0 sort:-copied limit:5", "layer:3 op:MatMul", "why:NO_CAPACITY")


def long_trace() -> None:
    """Measure and print seconds of processor time beside the goals, which hold for a quiet machine.

    The trace is a dry decode of a model with 32 layers, all of whose steps are recorded. The memory of a save is what
    the process grows by at most (Linux), with the meters of the caches, which are computed for it.
    """
    graph = kvviz.shapes.llama(layers=32, hidden=4096, heads=32, kv_heads=8)
    each = len(kvviz.dry(graph, prompt_tokens=8, max_new_tokens=1).steps)
    trace = kvviz.dry(graph, prompt_tokens=8, max_new_tokens=STEPS // each + 1)
    print(f"\n{len(trace.steps):,} steps in {len(trace.runs):,} runs: seconds of processor time")
    row("", ["now", "goal"])
    with tempfile.TemporaryDirectory() as folder:
        loaded = _through_a_file(trace, Path(folder) / "long.kvviz")
        row("explain, in words", [f"{seconds(lambda: repr(loaded.explain())):.2f}", "15"])
        for text in QUERIES:
            row(f"find {text[:20]}", [f"{seconds(partial(loaded.find, text)):.2f}"])
        row("page", [f"{seconds(lambda: loaded.to_html(Path(folder) / 'long.html')):.2f}"])


def _through_a_file(trace: kvviz.Trace, path: Path) -> kvviz.Trace:
    # The peak counts again from what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    row("save", [f"{seconds(lambda: trace.save(path)):.2f}", "5"])
    row("save: MB of memory", [f"{(resident('VmHWM') - before) / 1e6:.0f}", "60"])
    loaded: list[kvviz.Trace] = []
    row("load", [f"{seconds(lambda: loaded.append(kvviz.Trace.load(path))):.2f}", "3"])
    return loaded[0]


if __name__ == "__main__":
    long_trace()
