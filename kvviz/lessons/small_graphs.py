"""Graphs of a few nodes, written as ONNX text, and what a run of one did, as text."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import parser

from kvviz.errors import KvvizError
from kvviz.graph.load import load
from kvviz.graph.model import Graph
from kvviz.trace.blockers import BlockerCode
from kvviz.trace.recording import Trace


def small_graph(text: str, opset: int = 21) -> Graph:
    """Read one graph in ONNX's text form.

    Parameters
    ----------
    text : str
        Name, inputs, outputs and nodes; without the header, which is written here.
    opset : int
        Version of the ONNX operator set.

    Raises
    ------
    KvvizError
        If the text cannot be read.

    Examples
    --------
    >>> small_graph("one (float[2] x) => (float[2] y) { y = Relu(x) }").nodes[0].op_type
    'Relu'
    """
    try:
        return load(parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}'))
    except parser.ParseError as error:
        said = error.args[0]
        said = said.decode() if isinstance(said, bytes) else str(said)
        raise KvvizError(f"this is not a graph in ONNX's text form: {said}") from None


def print_steps(trace: Trace) -> None:
    """Print for each step its op, how it was called, where its outputs lie, and the blockers that could change."""
    print("\n".join(_lines(trace)))


def _lines(trace: Trace) -> Iterator[str]:
    ops = ["/".join((*step.frame, step.op_type)) for step in trace.steps]
    width = max(map(len, ops), default=0) + 2
    for op, step in zip(ops, trace.steps):
        places = ", ".join(f"{out.name} in {out.label} ({out.how})" for out in step.outs)
        yield f"{op:{width}}{step.decision.dispatch:10}{places}"
        for blocker in step.decision.blockers:
            # Of an op that never runs in place there is nothing to tell.
            if blocker.code != BlockerCode.OP_CANNOT:
                yield f"{'':{width}}  {blocker.code}: {blocker.message}"
