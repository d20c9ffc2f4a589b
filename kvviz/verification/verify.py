"""Predicted beside observed: what the policy ``onnxruntime`` says of a session's allocations, and what they were.

The session's own graph is run without numbers, in the order in which the session ran it. What the session's profile
says of shapes stands for kernels that are not known here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from kvviz.decode.single_run import SingleRun
from kvviz.decode.synthetic_inputs import generated
from kvviz.engine.policy import Policy
from kvviz.errors import KvvizError
from kvviz.explain.sentences import sentence
from kvviz.graph.load import load
from kvviz.graph.model import Graph, GraphPath
from kvviz.runtimes.ort.ort_policy import onnxruntime
from kvviz.runtimes.schedules.picks import Picks
from kvviz.trace.units import count, short, size
from kvviz.verification.profile_answers import ProfileAnswers
from kvviz.verification.session_record import ARENA, SessionRecord, observe

_LINES = 12


@dataclass(frozen=True, slots=True)
class VerifiedOp:
    """One node of a session.

    Attributes
    ----------
    node, op_type : str
    step : int
        Its step in ``Verification.trace``.
    predicted : int
        Bytes that it allocates by the rules of the policy ``onnxruntime``.
    observed : int
        Bytes that it allocated; the arena rounds each output up to 256 B.
    microseconds : float
        Time inside its kernel.
    why : str
        What it does to memory by the policy, and why.
    agrees : bool
        Whether both are the same, but for the arena's rounding.
    """

    node: str
    op_type: str
    step: int
    predicted: int
    observed: int
    microseconds: float
    why: str
    agrees: bool


@dataclass(frozen=True)
class Verification:
    """What a session did beside what was predicted; ``str()`` of it is a report.

    Attributes
    ----------
    ops : tuple of VerifiedOp
        Those that differ first, then those that took most time.
    trace : Trace
        The prediction: a dry run of the session's own graph, in its order.
    version : str
        Of onnxruntime.
    unknown : tuple of str
        Nodes of bodies, and those of which the session reported no allocations; they are in no count.
    """

    ops: tuple[VerifiedOp, ...]
    trace: Any = field(repr=False, compare=False)
    version: str
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Nodes that were compared."""
        return len(self.ops)

    @property
    def agree(self) -> int:
        """Nodes that allocated as predicted."""
        return sum(op.agrees for op in self.ops)

    @property
    def differences(self) -> tuple[VerifiedOp, ...]:
        """Nodes that did not."""
        return tuple(op for op in self.ops if not op.agrees)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        names = VerifiedOp.__slots__
        return {
            "onnxruntime": self.version,
            "agree": self.agree,
            "total": self.total,
            "unknown": list(self.unknown),
            "ops": [{name: getattr(op, name) for name in names} for op in self.ops],
        }

    def __str__(self) -> str:
        observed = sum(op.observed for op in self.ops)
        time = sum(op.microseconds for op in self.ops)
        lines = [
            f"{self.trace.graph.name}: {self.agree:,} of {count(self.total, 'node')} allocated as predicted, "
            f"by onnxruntime {self.version} on this machine",
            f"{size(observed)} allocated in {time / 1000:.1f} ms of kernels; "
            f"{sum(not op.observed for op in self.ops):,} nodes allocated nothing",
        ]
        lines += [f"  differs: {_line(op)}" for op in self.differences[:_LINES]]
        lines += [f"  and {len(self.differences) - _LINES:,} more"] if len(self.differences) > _LINES else []
        lines += [f"{'µs':>10} {'observed':>10} {'predicted':>10}"]
        lines += [
            f"{op.microseconds:>10,.0f} {size(op.observed):>10} {size(op.predicted):>10}  {_line(op)}"
            for op in self.ops[len(self.differences) :][:_LINES]
        ]
        if self.unknown:
            lines.append(f"not compared: {count(len(self.unknown), 'node')} of bodies, or without a report")
        return "\n".join(lines)

    __repr__ = __str__


def verify(
    model: Graph | str | os.PathLike[str], inputs: Mapping[str, Any] | None = None, options: Any = None
) -> Verification:
    """Run a model in the onnxruntime that is installed, and compare what it allocates with what the policy says.

    Parameters
    ----------
    model : path or Graph
        A model that onnxruntime can run here.
    inputs : mapping of str to array_like, optional
        By name; those that are missing are made as by `kvviz.inputs`.
    options : onnxruntime.SessionOptions, optional
        Of the session; by default those of a session without options, with all optimisations. What makes the session
        report on itself is added to them.

    Returns
    -------
    Verification

    Raises
    ------
    KvvizError
        Without onnxruntime, or if it refuses the model.

    Examples
    --------
    >>> found = kvviz.verify("model.onnx")                                                  # doctest: +SKIP
    >>> found.agree, found.total                                                            # doctest: +SKIP
    (1342, 1342)
    """
    graph = model if isinstance(model, Graph) else load(model)
    feeds = generated(graph, {}, dict(inputs or {}))
    record = observe(opened(graph), feeds, options, graph.folder)
    return compared(record, feeds)


def compared(record: SessionRecord, feeds: Mapping[str, Any]) -> Verification:
    """A session's record beside the prediction for its graph, in its order."""
    graph, wanted = record.graph, {value.name for value in record.graph.inputs}
    places = _places(graph)
    session = SingleRun(
        graph,
        {name: value for name, value in feeds.items() if name in wanted},
        policy=observed_order(record),
        dry=ProfileAnswers(graph, record.runs),
    )
    trace = session.run_to_end()
    trace.title = f"{graph.name}, as onnxruntime runs it"
    times = {run.name: run.microseconds for run in record.runs}
    ops, unknown = [], []
    for step, row in enumerate(trace.log):
        node = row.op.node
        if row.op.control:
            continue
        # What the outputs of a body take the session does not report, so bodies are not compared.
        inside = trace.frames[row.frame].parent is not None
        if inside or node.name not in record.allocated or node.name not in places:
            unknown.append(node.name)
            continue
        observed, most = record.allocated[node.name], row.allocated + (ARENA - 1) * len(row.outs)
        agrees = bool(row.allocated) == bool(observed) and row.allocated <= observed <= most
        told, time = sentence(trace.steps[step], trace), times.get(node.name, 0.0)
        ops.append(VerifiedOp(node.name, node.qualified_op, step, row.allocated, observed, time, told, agrees))
    ops.sort(key=lambda op: (op.agrees, -op.microseconds))
    return Verification(tuple(ops), trace, record.version, tuple(unknown))


def observed_order(record: SessionRecord) -> Policy:
    """The policy ``onnxruntime``, with the nodes in the order in which a session ran them."""
    places = _places(record.graph)
    picks = dict.fromkeys(places[run.name] for run in record.runs if run.name in places)
    return replace(onnxruntime, schedule=Picks(tuple(picks)))


def _places(graph: Graph) -> dict[str, tuple[GraphPath, int]]:
    """Graph and index of each node whose name no other node has."""
    often = Counter(node.name for _, node in graph.walk())
    return {node.name: (part.path, node.index) for part, node in graph.walk() if often[node.name] == 1}


def opened(graph: Graph) -> str | bytes:
    """What onnxruntime opens: the model's file, or where nodes have no names of their own, the same with names."""
    proto = graph.proto
    path = os.path.join(graph.folder or "", graph.file.name) if graph.file.name else ""
    named = proto is not None and len({node.name for node in proto.graph.node} - {""}) == len(proto.graph.node)
    if (named or proto is None) and os.path.isfile(path):
        return path
    if proto is None:
        raise KvvizError("the model has no file that onnxruntime could open: pass its path")
    if not named:
        proto = deepcopy(proto)
        for at, node in enumerate(proto.graph.node):
            node.name = f"{node.op_type}_{at}"
    data: bytes = proto.SerializeToString()
    return data


def _line(op: VerifiedOp) -> str:
    return f"{op.op_type} {short(op.node, 48)}: {op.why}"
