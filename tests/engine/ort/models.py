"""The real models, named so that onnxruntime's statistics can be told apart, and the plans of a whole model."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import kvviz
from kvviz.graph.model import Graph
from kvviz.runtimes.ort.allocation_plan import AllocationPlan
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.ort.rewiring import walk, with_own_dequantizers, without_duplicates
from tests.graph.build import FILES, file_id

IDS = [file_id(path) for path in FILES]


def real_model(path: Path) -> onnx.ModelProto:
    """A stored model, `with_names`."""
    return with_names(onnx.load(path))


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
