"""Planned against observed: which outputs of a model took new memory, to the byte."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

import kvviz
from kvviz.runtimes.ort.allocation_plan import ALLOCATE, ALLOCATE_OUTPUT
from kvviz.runtimes.ort.known_types import known
from tests.engine.ort.models import all_plans
from tests.engine.ort.oracle import blocks, observe


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
