"""The pages of the gallery, as people would make them: ``python assets/site/gallery.py FOLDER``.

Each is one HTML file without a kernel. Beside them are pictures of their first findings, and ``gallery.json``, which
says what they show.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kvviz

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "assets" / "models"
STORY = MODELS / "storyteller"
SMOLLM2 = ROOT / "build" / "smollm2"
PROMPT = "once upon a time there was a brave owl named rosa ."
WORDS = json.loads((STORY / "vocab.json").read_text("utf-8"))


def storyteller(page: Path) -> kvviz.Trace:
    """A small Llama tells a story. Its caches grow by Concat, so that every word copies all rows before it."""
    graph = kvviz.load(STORY / "concat" / "model.onnx")
    trace = kvviz.decode(graph, PROMPT, 16, tokenizer=WORDS, progress=False)
    trace.title = "storyteller"
    trace.to_html(page, hazards=True, tour=kvviz.lessons.quickstart_tour(trace))
    return trace


def room(page: Path) -> kvviz.Trace:
    """The same story with room for 40 rows in each cache: a word appends one row to each, and no past row is copied."""
    graph = kvviz.load(STORY / "concat" / "model.onnx")
    trace = kvviz.decode(graph, PROMPT, 16, tokenizer=WORDS, kv_capacity=40, progress=False)
    trace.title = "storyteller, with room"
    trace.to_html(page)
    return trace


def smollm2(page: Path) -> kvviz.Trace:
    """SmolLM2-135M answers a question: 30 layers, and 60 caches that grow by Concat."""
    graph = kvviz.load(SMOLLM2)
    trace = kvviz.decode(graph, graph.chat("What is the capital of France?"), 6, progress=False)
    trace.title = "SmolLM2-135M-Instruct"
    trace.to_html(page)
    return trace


def merged(page: Path) -> kvviz.Trace:
    """A merged decoder: one If holds the graph twice, and its branches capture the caches. Step into the If."""
    graph = kvviz.load(STORY / "merged_if" / "model.onnx")
    trace = kvviz.decode(graph, PROMPT, 6, tokenizer=WORDS, policy="rten", progress=False)
    trace.title = "merged decoder, under rten's rules"
    trace.to_html(page)
    return trace


def llama_cpp(page: Path) -> kvviz.Trace:
    """A decode that llama.cpp ran, recorded through its callback. Rows are written by SET_ROWS into views of the cache,
    and only the order of the nodes keeps a reader behind the write."""
    trace = kvviz.ggml.load(MODELS / "llama_cpp" / "smollm2_fa_off.jsonl.gz").trace
    trace.to_html(page, hazards=True)
    return trace


def device(page: Path) -> kvviz.Trace:
    """A decode on a simulated accelerator: caches stay on the device, and only tokens go over the link to the host."""
    graph = kvviz.load(STORY / "tensor_scatter" / "model.onnx")
    held, ids, place = kvviz.device.Device(), [5, 17, 33, 9], 0
    model = held.program(graph, name="decode")
    shapes = {value.name: (1, *(value.shape or ())[1:]) for value in graph.inputs if "cache" in value.name}
    caches = {name: held.to_device(np.zeros(shape, np.float32), name=name) for name, shape in shapes.items()}
    for _ in range(6):
        until = place + len(ids)
        control = {"input_ids": [ids], "position_ids": [range(place, until)]}
        control |= {"write_indices": [place], "nonpad_kv_seqlen": [until]}
        given = {name: held.to_device(np.asarray(array), name=name) for name, array in control.items()}
        out = held.submit(model, given | caches)
        ids, place = [int(held.to_host(out.pop("logits"))[0, -1].argmax())], until
        caches = {name: out.pop(f"updated_{name}") for name in caches}
    trace = held.trace
    trace.title = "stitched decode on a device"
    trace.to_html(page)
    return trace


def verify(page: Path) -> kvviz.Trace:
    """What a session of onnxruntime allocated for each node, beside what was predicted, in the order of the session."""
    found = kvviz.verify(MODELS / "o01_optimum_llama" / "model.onnx")
    found.to_html(page)
    return found.trace


PAGES: dict[str, tuple[str, Callable[[Path], kvviz.Trace]]] = {
    "storyteller": ("A story, word by word", storyteller),
    "room": ("The same story, with room to grow", room),
    "smollm2": ("SmolLM2-135M", smollm2),
    "merged": ("A merged decoder", merged),
    "llama_cpp": ("llama.cpp", llama_cpp),
    "device": ("A device", device),
    "verify": ("Verified against onnxruntime", verify),
}


def make(folder: Path) -> None:
    """Write the pages, and what there is to say of them. Without ``make smollm2``, its page is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, (title, show) in PAGES.items():
        if show is smollm2 and not (SMOLLM2 / "model.onnx").exists():
            print(f"without {name}: run make smollm2 first")
            continue
        begun, page = time.perf_counter(), folder / f"{name}.html"
        trace = show(page)
        findings = [one for one in kvviz.findings(trace) if not one.calm]
        for look in ("light", "dark"):
            kvviz.picture(trace, findings[0], dark=look == "dark").save(folder / f"{name}_{look}.svg")
        found = [str(one) for one in findings[:2]]
        about = " ".join((show.__doc__ or "").split())
        facts = {
            "steps": len(trace),
            "peak": trace.peak_bytes,
            "copied": trace.bytes_copied,
            "size": page.stat().st_size,
        }
        made.append({"name": name, "title": title, "about": about, "found": found, **facts})
        print(f"{name}: {facts['size'] / 1e6:.1f} MB, {facts['steps']:,} steps, {time.perf_counter() - begun:.1f} s")
    (folder / "gallery.json").write_text(json.dumps(made, indent=1), "utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
