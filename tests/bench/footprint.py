"""``python -m tests.bench.footprint MODEL TOKENS``: memory of a process that loads a model and decodes, trace on.

Prints one line of JSON, in bytes. The figures are those of ``/proc/self/status`` (Linux): pages that are resident.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import kvviz
from kvviz.decode.token_loop import DecodeSession

PROMPT = (1, 2, 3, 4)


def footprint(model: str, tokens: int) -> dict[str, int]:
    """What a decode with room for all its rows takes: bytes resident before and at the most, those of its arrays."""
    imports = resident("VmRSS")
    graph = kvviz.load(model)
    trace = DecodeSession(graph, list(PROMPT), max_new_tokens=tokens, kv_capacity=len(PROMPT) + tokens).run_to_end()
    return {
        "imports": imports,
        "peak": resident("VmHWM"),
        "weights": sum(array.nbytes for array in graph.weights.values() if isinstance(array, np.ndarray)),
        "cache": sum(np.asarray(trace.outputs[cache.output]).nbytes for cache in trace.caches),
        "logits": sum(scores.nbytes for scores in trace.logits),
        "steps": len(trace.steps),
    }


def resident(what: str) -> int:
    """Bytes under that name in this process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:")) * 1024


if __name__ == "__main__":
    print(json.dumps(footprint(sys.argv[1], int(sys.argv[2]))))
