"""Models to compare with onnxruntime, real ones and random ones, and their plans against the memory that it took."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx

import kvviz
from kvviz.graph.model import Graph
from kvviz.runtimes.ort.allocation_plan import ALLOCATE, ALLOCATE_OUTPUT, AllocationPlan
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.ort.rewiring import walk, with_own_dequantizers, without_duplicates
from tests.engine.ort.oracle import blocks, observe
from tests.graph.build import FILES, file_id
from tests.outside.generator import Kinds, case
from tests.outside.plain_ops import fixed
from tests.outside.scopes import Scope, Val, tensor_type

IDS = [file_id(path) for path in FILES]


def with_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with names of their own for its nodes and for the values of its bodies.

    The statistics count a value once by its name, and branches like to call their outputs as the If calls its own.
    """
    _rename(model.graph, "", {})
    return model


def _rename(graph: onnx.GraphProto, prefix: str, names: Mapping[str, str]) -> None:
    if prefix:
        own = [v.name for v in (*graph.input, *graph.initializer)] + [
            n for node in graph.node for n in node.output if n
        ]
        names = {**names, **{name: f"{prefix}/{name}" for name in own}}
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            value.name = names.get(value.name, value.name)
    for i, node in enumerate(graph.node):
        node.name = f"{prefix}n{i}"
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, f"{node.name}.{attribute.name}.", names)


def stored_inputs(path: Path) -> list[dict[str, np.ndarray]]:
    """Inputs of the stored runs of a model."""
    stored = np.load(path.with_name("ref.npz"))
    first = "encoder" if path.stem == "encoder" else "run"
    runs: dict[str, dict[str, np.ndarray]] = {}
    for key in stored:
        run, _, rest = key.partition(".")
        side, _, value = rest.partition(".")
        if run.startswith(first) and side == "in":
            runs.setdefault(run, {})[value] = stored[key]
    return list(runs.values())


def all_plans(model: onnx.ModelProto | Graph, mem_reuse: bool = True) -> Iterator[tuple[Graph, AllocationPlan]]:
    """The plan of every graph of a model, all of its nodes included, as onnxruntime runs them."""
    main = model if isinstance(model, Graph) else kvviz.load(model)
    known(main)
    graphs = {main: None} | {body: None for _, node in main.walk() for body in node.subgraphs.values()}
    for graph in graphs:
        facts, outputs = known(graph), [value.name for value in graph.outputs]
        copied, copies = with_own_dequantizers(graph, graph.nodes, outputs)
        types = {**facts.types, **{name: replace(facts.types[source], name=name) for name, source in copies.items()}}
        nodes = without_duplicates(graph, copied, outputs, types).nodes
        yield graph, AllocationPlan(graph, walk(nodes), outputs, types, facts.inside, mem_reuse)


def without_dead_nodes(graph: onnx.GraphProto) -> None:
    """Drop, at any depth, what no output of its graph needs."""
    wanted = {value.name for value in graph.output}
    kept: list[Any] = []
    for node in reversed(graph.node):
        if wanted.intersection(filter(None, node.output)):
            wanted.update(node.input)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    without_dead_nodes(attribute.g)
                    wanted.update(_read_inside(attribute.g))
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            kept.append(copy)
    del graph.node[:]
    graph.node.extend(reversed(kept))


def _read_inside(graph: onnx.GraphProto) -> set[str]:
    read = {value.name for value in graph.output} | {name for node in graph.node for name in node.input}
    for node in graph.node:
        for attribute in node.attribute:
            read |= _read_inside(attribute.g) if attribute.type == onnx.AttributeProto.GRAPH else set()
    return read


@dataclass
class Verdict:
    """How plans compare with what onnxruntime did.

    ``decisions``: nodes that ran. ``wrong``: (node, planned kinds, bytes predicted, bytes observed).
    """

    decisions: int = 0
    wrong: list[tuple[str, list[str], int, int]] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)


def judge(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    verdict: Verdict,
    mem_reuse: tuple[bool, ...] = (True, False),
) -> Verdict:
    """Run a model in onnxruntime and compare every node with its plan; results are added to ``verdict``.

    The outputs of branches, and those of a Scan's body, are computed where the If or Scan wants them: the statistics
    count them at that node, whose own plan says whether they took new memory.
    """
    graph = kvviz.load(model)
    for reuse in mem_reuse:
        seen = observe(model, feeds, reuse)
        for part, plan in all_plans(graph, reuse):
            outside = known(part).inside in ("If", "Scan")
            for node in plan.order:
                sizes = seen.made.get(node.name, ())
                if not sizes:
                    continue
                buffers = [plan.buffers[name] for name in node.outputs if name]
                assert len(buffers) == len(sizes), node.name
                new = [b.kind == ALLOCATE or (b.kind == ALLOCATE_OUTPUT and not outside) for b in buffers]
                predicted = sum(blocks(size) for size, is_new in zip(sizes, new) if is_new)
                observed = seen.allocated[node.name]
                told = [f"{b.kind} {b.rule}".strip() for b in buffers]
                verdict.decisions += 1
                verdict.kinds.update(told)
                if predicted != observed:
                    verdict.wrong.append((node.name, told, predicted, observed))
    return verdict


TO = ("float32", "int32", "float64", "int64")


def run_of_ops(s: Scope) -> None:
    """Ops that may run in place, one after the other."""
    x = s.pick(lambda v: v.dtype == "float32")
    for _ in range(s.random.randrange(2, 5)):
        x = x and s.make(s.random.choice(("Relu", "Neg", "Exp", "Sigmoid", "Abs")), [x], replace(x, exact=False))


def casts(s: Scope) -> None:
    """Casts that read each other, most of them to the type that is there already, with readers of their own."""
    x = s.pick(lambda v: v.dtype in TO and fixed(v))
    if x is None:
        return
    chain = [x]
    for _ in range(s.random.randrange(2, 5)):
        source = chain[-1] if s.random.random() < 0.8 else s.random.choice(chain)
        to = source.dtype if s.random.random() < 0.6 else s.random.choice((x.dtype, *TO))
        chain.append(s.make("Cast", [source], replace(source, dtype=to, exact=False), to=tensor_type(to)))
    for value in chain:
        for _ in range(s.random.randrange(3)):
            s.make(s.random.choice(("Neg", "Abs", "Sign")), [value], value)


def quantized(s: Scope) -> None:
    """A value in eight bits and back, which may be read several times, by one op twice, and be an output."""
    x = s.pick(lambda v: v.dtype == "float32" and fixed(v))
    if x is None:
        return
    how: list[Val | str] = [s.constant(np.float32(0.05)), s.constant(np.uint8(100))]
    small = s.make("QuantizeLinear", [x, *how], replace(x, dtype="uint8", exact=False))
    d = s.make("DequantizeLinear", [small, *how], replace(x, exact=False))
    for _ in range(s.random.randrange(3)):
        op = s.random.choice(("Relu", "Neg", "Mul", "QuantizeLinear"))
        if op == "QuantizeLinear":
            s.make(op, [d, *how], replace(d, dtype="uint8"))
        else:
            s.make(op, [d] * (1 + (op == "Mul")), d)


def random_model(seed: int, more: Kinds = ()) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of a number whose nodes have names of their own, and inputs for it; ``more``: kinds of nodes."""
    one, draw = case(seed, plain=True, more=((run_of_ops, 30), *more)), Random(seed)
    # A sequence is copied there and holds its parts here, so that none is an output.
    outputs = [output for output in one.model.graph.output if output.type.HasField("tensor_type")]
    del one.model.graph.output[:]
    one.model.graph.output.extend(outputs)
    known = {output.name for output in outputs}
    known |= {name for node in one.model.graph.node for name in node.input}
    for value in one.values.values():
        # Most ends are wanted, so that little of the model is dead.
        if isinstance(value, Val) and value.name not in known and draw.random() < 0.7:
            one.model.graph.output.append(value.declared(loose=True))
    return with_names(one.model), {name: np.array(fed.numbers) for name, fed in one.inputs.items()}
