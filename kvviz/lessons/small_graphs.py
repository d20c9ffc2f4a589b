"""Graphs of a few nodes, written as ONNX text, and what a run of one did, as text."""

from __future__ import annotations

from onnx import parser

from kvviz.errors import KvvizError
from kvviz.graph.load import load
from kvviz.graph.model import Graph
from kvviz.trace.blockers import BlockerCode
from kvviz.trace.recording import Trace


def small_graph(text: str, opset: int = 21) -> Graph:
    """Read one graph in ONNX's text form: name, inputs, outputs and nodes, without the header.

    Raises `KvvizError`: if the text cannot be read.

    >>> small_graph("one (float[2] x) => (float[2] y) { y = Relu(x) }").nodes[0].op_type
    'Relu'
    """
    try:
        return load(parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}'))
    except parser.ParseError as error:
        reason = error.args[0]
        reason = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise KvvizError(f"this is not a graph in ONNX's text form: {reason}") from None


def print_steps(trace: Trace) -> None:
    """Print for each step its op, how it was called, where its outputs lie, and the blockers that could change."""
    ops = ["/".join((*step.frame, step.op_type)) for step in trace.steps]
    width = max(map(len, ops), default=0) + 2
    for op, step in zip(ops, trace.steps):
        places = ", ".join(f"{out.name} in {out.label} ({out.how})" for out in step.outs)
        print(f"{op:{width}}{step.decision.dispatch:10}{places}")
        for blocker in step.decision.blockers:
            if blocker.code != BlockerCode.OP_CANNOT:  # an op that never runs in place is no news
                print(f"{'':{width}}  {blocker.code}: {blocker.message}")
