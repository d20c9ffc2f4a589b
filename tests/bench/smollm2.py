"""SmolLM2-135M-Instruct, as large as models get here: time a token against onnxruntime's, and memory.

onnxruntime is called as its users call it: NumPy arrays in, and what comes out goes in again. Both contestants choose
tokens, and both are measured over the same number of runs after the first.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import kvviz
from kvviz.decode.token_loop import DecodeSession
from kvviz.graph.model import Graph
from tests.bench.measure import OFF, ON, ORT, ratio
from tests.bench.tell import hold, row
from tests.ort_session import session_of

ROOT = Path(__file__).resolve().parents[2]
FORMS = {"concat": ROOT / "build" / "smollm2", "attention": ROOT / "build" / "smollm2-attention"}
PROMPT = [1, 4093, 198, 57, 9520, 441, 28, 1535]
SHORT, LONG, LONG_TOKENS = 64, 2048, 17
TIME_SHORT, TIME_LONG, MEMORY = 1.3, 1.0, 1.2

Caches = Mapping[str, np.ndarray]


def smollm2(rounds: int) -> int:
    """Measure and print; the number of figures over their limit. Says how to make the model where it is missing."""
    print("\nSmolLM2-135M-Instruct")
    models = {form: folder / "model.onnx" for form, folder in FORMS.items() if (folder / "model.onnx").is_file()}
    if not models:
        print("not measured: build/smollm2 is not there; `make smollm2` writes it")
        return 0
    print(f"ms of processor time a token, one thread, median of {rounds} rounds, token by token in turns")
    row("", [ON, OFF, ORT])
    found = {form: _measured(form, model, rounds) for form, model in models.items()}
    over = 0
    for form, (short, long, same) in found.items():
        print(f"{form}: the {SHORT} tokens of both are {'the same' if same else 'NOT the same'}")
        over += not same
        over += hold(f"{form}, {SHORT} tokens: trace on / onnxruntime", short, TIME_SHORT)
        hold(f"{form}, behind {LONG:,} tokens: trace on / onnxruntime", long)
    best = min(long for _, long, _ in found.values())
    over += hold(f"behind {LONG:,} tokens, the better form", best, TIME_LONG)
    return over + sum(_memory(form, model) for form, model in models.items())


def _measured(form: str, model: Path, rounds: int) -> tuple[float, float, bool]:
    """Both ratios of one form, and whether both contestants chose the same tokens."""
    graph, session = kvviz.load(model), session_of(model, rewrite=True)
    short, tokens = _in_turns(graph, session, PROMPT, SHORT, {}, rounds)
    _times(f"{form}, {SHORT} tokens", short)
    long, _ = _in_turns(graph, session, PROMPT[:1], LONG_TOKENS, _past(graph, LONG), rounds)
    _times(f"{form}, behind {LONG:,}", long)
    return ratio(short, ON, ORT), ratio(long, ON, ORT), tokens[ON] == tokens[ORT]


def _times(name: str, found: Mapping[str, Sequence[float]]) -> None:
    row(name, [f"{statistics.median(found[who]):.2f}" for who in (ON, OFF, ORT)])


def _in_turns(
    graph: Graph, session: onnxruntime.InferenceSession, prompt: Sequence[int], tokens: int, past: Caches, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """Milliseconds of every token but the first, and the tokens, of each contestant.

    They take turns token by token: what disturbs the machine for a second then hits all of them alike, and each finds
    the processor's caches as the weights of another one left them.
    """
    times: dict[str, list[float]] = {ON: [], OFF: [], ORT: []}
    chosen: dict[str, list[int]] = {}
    for _ in range(rounds):
        gc.collect()
        chosen = {name: [] for name in times}
        decodes = {
            ON: _by_kvviz(graph, prompt, tokens, past, True),
            OFF: _by_kvviz(graph, prompt, tokens, past, False),
            ORT: _by_onnxruntime(session, prompt, tokens, past),
        }
        for number in range(tokens):
            for name, decode in decodes.items():
                begin = time.process_time()
                chosen[name].append(next(decode))
                took = time.process_time() - begin
                if number:
                    times[name].append(took * 1e3)
    return times, chosen


def _by_kvviz(graph: Graph, prompt: Sequence[int], tokens: int, past: Caches, record: bool) -> Iterator[int]:
    """Tokens by kvviz, with room for all rows."""
    rows = max((array.shape[2] for array in past.values()), default=0) + len(prompt) + tokens
    caches = {name: kvviz.reserve(array, 2, rows) for name, array in past.items()}
    donate = tuple(caches)
    session = DecodeSession(
        graph, list(prompt), max_new_tokens=tokens, inputs=caches, kv_capacity=rows, record=record, donate=donate
    )
    while session.next_run():
        session.finish_run()
        yield session.trace.tokens[-1]


def _by_onnxruntime(
    session: onnxruntime.InferenceSession, prompt: Sequence[int], tokens: int, past: Caches
) -> Iterator[int]:
    """The same by onnxruntime, in a loop as one would write it."""
    inputs = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]
    shapes = {value.name: value.shape for value in session.get_inputs()}
    caches: dict[str, Any] = {
        name: past.get(name, np.zeros((1, shapes[name][1], 0, shapes[name][3]), np.float32))
        for name in inputs
        if name.startswith("past_key_values")
    }
    rows, due = max((array.shape[2] for array in past.values()), default=0), np.array([prompt])
    for _ in range(tokens):
        new = due.shape[1]
        feeds = {"input_ids": due, "attention_mask": np.ones((1, rows + new), np.int64), **caches}
        if "position_ids" in inputs:
            feeds["position_ids"] = np.arange(rows, rows + new)[None]
        found = dict(zip(outputs, session.run(None, feeds)))
        token = int(found["logits"][0, -1].argmax())
        caches = {name: found[name.replace("past_key_values", "present")] for name in caches}
        rows, due = rows + new, np.array([[token]])
        yield token


def _past(graph: Graph, rows: int) -> dict[str, np.ndarray]:
    """Random caches of that many rows."""
    random = np.random.default_rng(0)
    pasts = [value for value in graph.inputs if value.name.startswith("past_key_values")]
    shapes = {value.name: value.shape or () for value in pasts}
    sizes = {name: (1, int(shape[1] or 0), rows, int(shape[3] or 0)) for name, shape in shapes.items()}
    return {name: random.standard_normal(size, np.float32) for name, size in sizes.items()}


def _memory(form: str, model: Path) -> int:
    """The memory of a process of its own that decodes with the trace on, against weights and cache."""
    command = [sys.executable, "-m", "tests.bench.footprint", str(model), str(SHORT)]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    needed = found["weights"] + found["cache"]
    print(
        f"{form}: a process that decodes {SHORT} tokens, trace on, has {found['peak'] / 1e6:.0f} MB resident at its "
        f"peak: weights {found['weights'] / 1e6:.0f}, cache {found['cache'] / 1e6:.0f},\nscores of all tokens "
        f"{found['logits'] / 1e6:.0f}, Python and imports {found['imports'] / 1e6:.0f}; the rest is graph, plan, and a "
        f"trace of {found['steps']:,} steps"
    )
    hold(f"{form}: peak / (weights + cache)", found["peak"] / needed)
    growth = (found["peak"] - found["imports"]) / needed
    return hold(f"{form}: growth after the imports / (weights + cache)", growth, MEMORY)
