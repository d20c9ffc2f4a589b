"""The tables that the benchmark prints, and the limits that it holds figures against."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import kvviz
from kvviz.graph.model import Graph
from tests.bench.measure import (
    ALONE,
    OFF,
    ON,
    ORT,
    READ,
    REFERENCE,
    decode_feeds,
    in_turns,
    kvviz_turn,
    page_figures,
    ratio,
    runtime_turn,
)
from tests.bench.tell import hold, row
from tests.engine.rten.compare import BESIDES, CORE
from tests.engine.rten.oracle import agreement
from tests.engine.rten.records import models, scenarios
from tests.ort_session import session_of

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
SMALL = ("o01_optimum_llama", "o02_optimum1_merged_gpt2", "storyteller/concat")
TOKENS = 16
LARGE = {"layers": 8, "hidden": 512, "inner": 1536, "vocabulary": 8192, "heads": 8, "kv_heads": 4, "head": 64}
FEW_OPS = {"layers": 2, "hidden": 64, "inner": 96, "vocabulary": 96, "heads": 4, "kv_heads": 2, "head": 16}
MADE_PROMPT = [3, 1415, 926, 5358, 979, 3238, 4626, 433]

AGAINST_REFERENCE, ALONE_LIMIT, RECORDING, RECORDING_LARGE = 0.4, 0.4, 2.0, 0.15


def everything(rounds: int) -> int:
    """Measure and print; the number of figures over their limit. The large model gets a third of the rounds."""
    print(f"ms of processor time a decode step, one thread, {TOKENS} tokens, median of {rounds} rounds in turns")
    times = {name: small(name, rounds) for name in SMALL}
    made, difference = large(max(rounds // 3, 3))
    times["made: 8 layers, 512 wide"] = made
    times["made: 2 layers, 64 wide"] = few_ops(rounds)
    head = [ON, OFF, ALONE, READ, REFERENCE, ORT]
    row("model", head)
    for name, found in times.items():
        row(name, [f"{statistics.median(found[who]):.3f}" if who in found else "" for who in head])
    print(f"\nmade model: largest difference of logits from onnxruntime {difference:.1e} (limit 1e-03)")
    print("\nratios, median over the rounds")
    llama = times[SMALL[0]]
    over = [
        hold(f"{SMALL[0]}: trace on / onnx.reference", ratio(llama, ON, REFERENCE), AGAINST_REFERENCE),
        hold(f"{SMALL[0]}: trace on / trace off", ratio(llama, ON, OFF), RECORDING),
        *(
            hold(f"{n}: kvviz.run alone / onnx.reference", ratio(times[n], ALONE, REFERENCE), ALONE_LIMIT)
            for n in SMALL
        ),
        hold("made model: trace on / trace off - 1", ratio(made, ON, OFF) - 1, RECORDING_LARGE),
    ]
    for name in SMALL[1:]:
        hold(f"{name}: trace on / onnx.reference", ratio(times[name], ON, REFERENCE))
        hold(f"{name}: trace on / trace off", ratio(times[name], ON, OFF))
    few = times.pop("made: 2 layers, 64 wide")
    hold("made: 2 layers, 64 wide: kvviz.run alone / onnx.reference", ratio(few, ALONE, REFERENCE))
    hold("made: 2 layers, 64 wide: kvviz.run and its trace read / onnx.reference", ratio(few, READ, REFERENCE))
    for name, found in times.items():
        hold(f"{name}: trace on / onnxruntime", ratio(found, ON, ORT))
    print(f"\nthe page of {TOKENS} tokens, ms by the clock")
    row("model", ["payload kB", "payload ms", "layout ms"])
    for name in SMALL:
        nbytes, took, layout = page_figures(kvviz.load(_path(name)), _prompt(name), TOKENS)
        row(name, [f"{nbytes / 1e3:.0f}", f"{took:.0f}", f"{layout:.0f}"])
    return sum(over) + (difference > 1e-3)


def small(name: str, rounds: int) -> Mapping[str, Sequence[float]]:
    """Times of one of the committed models."""
    graph, prompt = kvviz.load(_path(name)), _prompt(name)
    feeds = decode_feeds(graph, prompt, TOKENS)
    turns = {
        ON: kvviz_turn(graph, prompt, TOKENS, record=True),
        OFF: kvviz_turn(graph, prompt, TOKENS, record=False),
        ALONE: runtime_turn(lambda _, feed: kvviz.run(graph, feed), feeds),
        REFERENCE: runtime_turn(ReferenceEvaluator(_path(name)).run, feeds),
        ORT: runtime_turn(session_of(Path(_path(name)), rewrite=True).run, feeds),
    }
    return in_turns(turns, rounds)


def few_ops(rounds: int) -> Mapping[str, Sequence[float]]:
    """Times of a graph of some 130 small ops, called again and again, and where the trace is also made each time."""
    graph, proto = made_decoder(FEW_OPS)
    other = kvviz.load(proto)  # how a call repeats depends on whether traces of its graph were read
    feeds = decode_feeds(graph, MADE_PROMPT[:1], TOKENS)
    turns = {
        ALONE: runtime_turn(lambda _, feed: kvviz.run(graph, feed), feeds),
        READ: runtime_turn(lambda _, feed: kvviz.run(other, feed).peak_bytes, feeds),
        REFERENCE: runtime_turn(ReferenceEvaluator(proto).run, feeds),
        ORT: runtime_turn(session_of(proto, rewrite=True).run, feeds),
    }
    return in_turns(turns, rounds)


def large(rounds: int) -> tuple[Mapping[str, Sequence[float]], float]:
    """Times of a model made for the purpose, and how far its logits are from onnxruntime's."""
    graph, proto = made_decoder(LARGE)
    session = session_of(proto, rewrite=True)
    feeds = decode_feeds(graph, MADE_PROMPT, TOKENS)
    expected = [session.run(["logits"], feed)[0][:, -1] for feed in feeds]
    found = kvviz.decode(graph, MADE_PROMPT, TOKENS, progress=False).logits
    difference = max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))
    turns = {
        ON: kvviz_turn(graph, MADE_PROMPT, TOKENS, record=True),
        OFF: kvviz_turn(graph, MADE_PROMPT, TOKENS, record=False),
        ORT: runtime_turn(session.run, feeds),
    }
    return in_turns(turns, rounds), difference


def made_decoder(sizes: Mapping[str, int]) -> tuple[Graph, onnx.ModelProto]:
    """A Llama of plain ops with random weights, whose cache grows by Concat; of the model, weights are inside."""
    graph = kvviz.shapes.preset("llama-3-8b", form="concat", dtype="float32", seed=0, positions=256, **sizes)
    proto = onnx.ModelProto()
    proto.CopyFrom(graph.proto)
    for tensor in proto.graph.initializer:
        if tensor.data_location:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(graph.weights[tensor.name]), tensor.name))
    return graph, proto


def _path(name: str) -> str:
    return str(MODELS / name / "model.onnx")


def _prompt(name: str) -> list[int]:
    return np.load(MODELS / name / "ref.npz")["prompt"].tolist()


AGREE = 100.0


def agreement_table() -> bool:
    """Print what was compared, and say whether a decision (order, dispatch, positions taken, identity) differs."""
    print("\npolicy rten against recordings of rten c7f7bad9: facts compared, or how many agree of how many")
    rows = {name: agreement([name]) for name in models()} | {"scenarios": agreement(scenarios())}
    rows["all"] = sum(rows.values(), Counter())
    print(f"{'':<30}" + "".join(f"{kind:>14}" for kind in CORE + BESIDES))
    for name, found in rows.items():
        print(f"{name:<30}" + "".join(f"{_cell(found, kind):>14}" for kind in CORE + BESIDES))
    agree, differ = (sum(rows["all"][kind, same] for kind in CORE) for same in (True, False))
    percent = 100 * agree / (agree + differ)
    print(f"decisions as recorded: {percent:.2f} % (limit {AGREE:.0f})")
    return percent < AGREE


def _cell(found: Counter[tuple[str, bool]], kind: str) -> str:
    agree, differ = found[kind, True], found[kind, False]
    return f"{agree}/{agree + differ}" if differ else f"{agree}"
